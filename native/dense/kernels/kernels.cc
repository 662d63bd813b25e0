#include "dense/kernels/kernels.h"

#include <string>

#include "dense/kernels/kernel_sets.h"
#include "util/cpu.h"
#include "util/status.h"

namespace elasticctr::dense {

const std::vector<const Kernels*>& UsableKernels() {
  static const std::vector<const Kernels*> usable = [] {
    std::vector<const Kernels*> sets;
#if defined(__x86_64__)
    const CpuFeatures& cpu = Cpu();
    if (cpu.avx512) sets.push_back(&kFloat32Avx512);
    if (cpu.avx2) sets.push_back(&kFloat32Avx2);
    if (cpu.amx_usable) sets.push_back(&kBfloat16Amx);
    if (cpu.avx512_bf16) sets.push_back(&kBfloat16Avx512);
#endif
    sets.push_back(&kFloat32Portable);
    return sets;
  }();
  return usable;
}

const Kernels& FindKernels(Precision precision, std::string_view name) {
  const CpuFeatures& cpu = Cpu();
  if (name.empty() && !cpu.amx_usable && !cpu.bf16_is_fast) precision = Precision::kFloat32;
  std::string names;
  for (const Kernels* kernels : UsableKernels()) {
    if (name.empty() ? kernels->precision == precision : kernels->name == name) return *kernels;
    names += names.empty() ? "" : ", ";
    names += kernels->name;
  }
  throw Error(Code::kConfig, "this CPU has no tower kernels named '" + std::string(name) + "'; it has " + names);
}

}  // namespace elasticctr::dense
