#include "util/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "dense/kernels/amx_tiles.h"
#endif

namespace elasticctr::dense {
namespace {

#if defined(__x86_64__)

constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;

uint64_t EnabledStates() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

__attribute__((target("avx512f,amx-tile,amx-bf16"))) bool TrialProduct() {
  alignas(64) uint16_t a[512], b[512];
  alignas(64) float c[256];
  for (int i = 0; i < 512; ++i) {
    a[i] = 0x3F80;  // 1
    b[i] = 0x4000;  // 2
  }
  LoadTileConfig();
  _tile_zero(0);
  _tile_loadd(1, a, 64);
  _tile_loadd(2, b, 64);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, c, 64);
  _tile_release();
  for (const float value : c) {
    if (value != 64.0f) return false;
  }
  return true;
}

// The trial runs in a child process, because an illegal instruction would kill it.
bool AmxWorks() {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) _exit(1);
    _exit(TrialProduct() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures Probe() {
  CpuFeatures cpu;
  __builtin_cpu_init();
  cpu.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cpu.avx512 = cpu.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  uint32_t a, b, c, d;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) cpu.avx512_bf16 = cpu.avx512 && (a >> 5 & 1);
  cpu.bf16_is_fast = cpu.avx512_bf16 && __builtin_cpu_is("amd");
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) cpu.amx_bf16 = (d >> 22 & 1) && (d >> 24 & 1);
  if (cpu.amx_bf16) {
    const bool has_palette = __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) && a != 0;
    cpu.onednn_amx_broken = !has_palette;
    const uint64_t tile_states = uint64_t{3} << 17;
    cpu.amx_usable = cpu.avx512_bf16 && (EnabledStates() & tile_states) == tile_states && AmxWorks();
  }
  return cpu;
}

#else

CpuFeatures Probe() { return {}; }

#endif

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures features = Probe();
  return features;
}

}  // namespace elasticctr::dense
