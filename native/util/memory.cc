#include "util/memory.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace elasticctr {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  // 32 MiB is the largest threshold glibc accepts.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace elasticctr
