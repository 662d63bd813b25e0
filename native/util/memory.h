// How the process's allocator treats big blocks.
#pragma once

namespace elasticctr {

// Keeps freed memory for reuse instead of giving it back to the system. Training allocates the same megabytes in
// every step; returning them each time costs a page fault per 4 KiB, several percent of a step.
void KeepFreedMemory();

}  // namespace elasticctr
