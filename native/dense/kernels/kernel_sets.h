// The kernel sets, one source file each. Callers use FindKernels and AdamStep, which choose for the CPU.
#pragma once

#include "dense/adam.h"
#include "dense/kernels/kernels.h"

namespace elasticctr::dense {

extern const Kernels kFloat32Portable;
void AdamPortable(const AdamSpan& span);
#if defined(__x86_64__)
extern const Kernels kFloat32Avx2;
extern const Kernels kFloat32Avx512;
extern const Kernels kBfloat16Avx512;
extern const Kernels kBfloat16Amx;
void AdamAvx2(const AdamSpan& span);
void AdamAvx512(const AdamSpan& span);
#endif

}  // namespace elasticctr::dense
