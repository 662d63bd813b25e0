// What this CPU can actually do, determined once. An advertised feature is not always usable: a virtual machine may
// hide the tile palette (CPUID leaf 0x1D) from libraries, and the kernel grants tiles only on request.
#pragma once

namespace elasticctr::dense {

struct CpuFeatures {
  bool avx2 = false;          // with FMA
  bool avx512 = false;        // F, BW, DQ and VL
  bool avx512_bf16 = false;   // bf16 dot products
  bool bf16_is_fast = false;  // those dot products do more work per second than fp32 ones (AMD; Intel halves them)
  bool amx_bf16 = false;      // tiles are advertised
  bool amx_usable = false;    // tiles are granted by the kernel and a trial product came out right
  // Tiles are advertised but leaf 0x1D is empty: oneDNN (inside torch) then crashes with an illegal instruction in its
  // first bf16 product unless it is configured not to use tiles.
  bool onednn_amx_broken = false;
};

const CpuFeatures& Cpu();

}  // namespace elasticctr::dense
