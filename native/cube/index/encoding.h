// Rows of floats as bytes and back (docs/formats/cube-file.md#rows). Publishing, building, serving and clients all use
// these, so encode and decode agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cube/index/format.h"

namespace elasticctr::cube {

// Writes n rows of RowBytes(encoding, dim) bytes. Returns how many values the encoding cannot hold (not finite, or too
// large for fp16; fp32 holds all); what was written for such a row is meaningless. REQUIRES: encoding is not kRaw.
size_t EncodeRows(const float* values, size_t n, uint32_t dim, Encoding encoding, uint8_t* rows);
// The n * dim floats of n rows. REQUIRES: encoding is not kRaw.
void DecodeRows(const uint8_t* rows, size_t n, uint32_t dim, Encoding encoding, float* values);

}  // namespace elasticctr::cube
