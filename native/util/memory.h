// How the process's allocator treats large blocks.
#pragma once

namespace elasticctr {

// Keeps freed memory for reuse instead of returning it to the system. Training allocates the same megabytes in every
// step; returning them each time costs a page fault per 4 KiB, several percent of a step.
void KeepFreedMemory();

}  // namespace elasticctr
