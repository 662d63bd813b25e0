// Tensors that Paddle Serving's clients write as nested lists, and how several of them become the rows of one request.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serve/paddle/json.h"

namespace elasticctr::serve::paddle {

// An integer of 64 bits, signed or not, as its bits. Nothing: the text is not one.
std::optional<uint64_t> ParseWhole(std::string_view text);

// A value, a list, or a list of rows. All throw DataError.
void ReadList(JsonReader* reader, const Limits& limits, Tensor* tensor);
// A value of a pipeline request: JSON in a string, numbers by commas, or one text.
void ReadPairValue(std::string_view text, const Limits& limits, JsonCall* call, Tensor* tensor);

// Puts `NAME.lod` where it belongs, and lists of numbers into the one row they are if no list has rows.
void SettleRows(std::vector<Tensor>* tensors);

// Where each name is. Throws DataError for one that is there twice.
using Places = std::unordered_map<std::string_view, size_t>;
Places FindPlaces(const std::vector<Tensor>& tensors);
// Several feeds: each is one more sample. `places` are those of `all`.
void AppendFeed(std::vector<Tensor> feed, const Places& places, std::vector<Tensor>* all);

}  // namespace elasticctr::serve::paddle
