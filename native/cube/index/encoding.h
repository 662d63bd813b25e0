// Rows of floats as bytes and back (docs/formats/cube-file.md#rows). Publishing, building, serving and clients all use
// these, so encode and decode agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cube/index/format.h"

namespace elasticctr::cube {

// Writes n rows of RowBytes(encoding, dim) bytes. Returns how many values the encoding cannot represent (not finite, or
// too large for fp16; fp32 represents all); the bytes of such a row are meaningless. REQUIRES: encoding is not kRaw.
size_t EncodeRows(const float* values, size_t n, uint32_t dim, Encoding encoding, uint8_t* rows);
// Decodes n rows to n * dim floats. REQUIRES: encoding is not kRaw.
void DecodeRows(const uint8_t* rows, size_t n, uint32_t dim, Encoding encoding, float* values);

}  // namespace elasticctr::cube
