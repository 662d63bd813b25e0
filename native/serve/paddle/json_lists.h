// Tensors that Paddle Serving's clients write as nested lists, and how several of them are combined into one request.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serve/paddle/json.h"

namespace elasticctr::serve::paddle {

// A 64-bit integer, signed or not, as its bits. nullopt: the text is not one.
std::optional<uint64_t> ParseWhole(std::string_view text);

// A value, a list, or a list of rows. All throw DataError.
void ReadList(JsonReader* reader, const Limits& limits, Tensor* tensor);
// A value of a pipeline request: JSON in a string, comma-separated numbers, or one text.
void ReadPairValue(std::string_view text, const Limits& limits, JsonCall* call, Tensor* tensor);

// Attaches `NAME.lod` to its tensor, and makes flat lists of numbers one row if no list has rows.
void SettleRows(std::vector<Tensor>* tensors);

// The index of each name. Throws DataError for a duplicate.
using Places = std::unordered_map<std::string_view, size_t>;
Places FindPlaces(const std::vector<Tensor>& tensors);
// Adds a further feed: one more sample. `places` are those of `all`.
void AppendFeed(std::vector<Tensor> feed, const Places& places, std::vector<Tensor>* all);

}  // namespace elasticctr::serve::paddle
