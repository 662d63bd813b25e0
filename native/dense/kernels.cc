#include "dense/kernels.h"

#include <string>

#include "dense/cpu.h"
#include "dense/kernel_sets.h"
#include "util/status.h"

namespace elasticctr::dense {

const std::vector<const Kernels*>& UsableKernels() {
  static const std::vector<const Kernels*> usable = [] {
    std::vector<const Kernels*> sets;
#if defined(__x86_64__)
    const CpuFeatures& cpu = Cpu();
    if (cpu.avx512) sets.push_back(&kFloat32Avx512);
    if (cpu.avx2) sets.push_back(&kFloat32Avx2);
#endif
    sets.push_back(&kFloat32Portable);
    return sets;
  }();
  return usable;
}

const Kernels& FindKernels(Precision precision, std::string_view name) {
  std::string names;
  for (const Kernels* kernels : UsableKernels()) {
    if (name.empty() ? kernels->precision == precision : kernels->name == name) return *kernels;
    names += names.empty() ? "" : ", ";
    names += kernels->name;
  }
  if (name.empty()) return FindKernels(Precision::kFloat32);
  throw Error(Code::kConfig, "this CPU has no tower kernels named '" + std::string(name) + "'; it has " + names);
}

}  // namespace elasticctr::dense
