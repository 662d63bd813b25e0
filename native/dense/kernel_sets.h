// The kernel sets themselves, one source file each. Callers go through FindKernels, which knows the CPU.
#pragma once

#include "dense/kernels.h"

namespace elasticctr::dense {

extern const Kernels kFloat32Portable;
#if defined(__x86_64__)
extern const Kernels kFloat32Avx2;
extern const Kernels kFloat32Avx512;
extern const Kernels kBfloat16Avx512;
extern const Kernels kBfloat16Amx;
#endif

}  // namespace elasticctr::dense
