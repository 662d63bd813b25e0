// Which slot a tensor of a Paddle Serving call feeds, and what a fetched name gets.
//
// A name is, in this order: what settings say (`paddle_feeds`); a slot's own; a label's, or "label", which is not
// looked at; `dense_input`, `dense_feature`, `dense_features` or `dense`, all dense values in the schema's order; `C7`
// or `7`, the 7th sparse slot; `embedding_6.tmp_0`, `sequence_pool_6.tmp_0` or `sparse_6`, the same one counted from 0.
// The name is tried before the alias. A form that slots' own names have (a schema with a slot `C1`) is never taken as a
// position.
//
// Whole numbers are feasigns, texts are hashed where the schema hashes, dense values are after their transform.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/paddle/tensors.h"

namespace elasticctr::serve::paddle {

// One request of all tensors' rows. Every slot the model looks at must be fed, and all with as many rows. Throws
// DataError naming the tensor or the slot.
void Fill(const TensorRequest& request, const Limits& limits, Samples* samples);

// Scores under the names fetched. `prob` and `softmax_*` are pairs, of no click and of a click, as two-class models
// give them; every other name is the score alone. With several labels a name is a label's, or there is one name per
// label, or one for all. No names: `prob`, or the labels'. Throws DataError where names do not fit.
std::vector<TensorAnswer::Output> MakeOutputs(const std::vector<std::string_view>& fetch,
                                              const std::vector<std::string>& labels, const float* scores,
                                              size_t count);

}  // namespace elasticctr::serve::paddle
