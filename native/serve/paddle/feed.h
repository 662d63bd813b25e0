// Maps tensors of a Paddle Serving call to slots, and fetched names to outputs.
//
// A name is matched in this order: the settings (`paddle_feeds`); a slot's own name; a label's, or "label", which is
// ignored; `dense_input`, `dense_feature`, `dense_features` or `dense`, all dense values in the schema's order; `C7` or
// `7`, the 7th sparse slot; `embedding_6.tmp_0`, `sequence_pool_6.tmp_0` or `sparse_6`, the same slot counted from 0.
// The name is tried before the alias. A form that slots' own names use (a schema with a slot `C1`) is never read as a
// position.
//
// Integers are feasigns, texts are hashed if the schema hashes, dense values are already transformed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/paddle/tensors.h"

namespace elasticctr::serve::paddle {

// Adds one request with the rows of all tensors. Every slot the model uses must be fed, with equal numbers of rows.
// Throws DataError naming the tensor or the slot.
void Fill(const TensorRequest& request, const Limits& limits, Samples* samples);

// Scores under the names fetched. `prob` and `softmax_*` are pairs, of no click and of a click, as two-class models
// return them; every other name is the score alone. With several labels a name is a label's, or there is one name per
// label, or one for all. No names: `prob`, or the labels'. Throws DataError if the names do not fit.
std::vector<TensorAnswer::Output> MakeOutputs(const std::vector<std::string_view>& fetch,
                                              const std::vector<std::string>& labels, const float* scores,
                                              size_t count);

}  // namespace elasticctr::serve::paddle
