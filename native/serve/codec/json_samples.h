// Adds JSON samples to a micro-batch: {"slot": value or list of values, ...}, or lines of a log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/codec/samples.h"
#include "util/json_reader.h"

namespace elasticctr::serve {

class JsonSampleReader {
 public:
  struct Options {
    bool values_are_feasigns = false;  // sparse values are not hashed, dense ones not transformed
    bool ignores_unknown = false;
  };
  JsonSampleReader(Samples* samples, const Limits& limits, const Options& options);

  // The text of one sample whose values all samples of the request share.
  void AddShared(std::string_view text);
  // The text of a list of samples; errors call it `name`.
  void AddSamples(std::string_view text, const char* name);
  // The text of a list of strings.
  void AddLines(std::string_view text, TextFormat format);

 private:
  // A key of samples and its slot.
  struct Known {
    std::string key;
    std::string text;  // of the key as written, with comma and colon
    bool is_dense;
    bool is_unknown;
    uint32_t index;
  };

  void ReadSample(JsonReader* reader);
  Known& Find(std::string_view key, size_t position);
  void ReadSparse(JsonReader* reader, uint32_t slot);
  void ReadSparseValue(JsonReader* reader, uint32_t slot);
  void ReadDense(JsonReader* reader, uint32_t slot);
  void ReadDenseValue(JsonReader* reader, uint32_t slot, uint32_t i);
  void CountValue();

  Samples* const samples_;
  const Plan& plan_;
  const Limits& limits_;
  const Options options_;
  std::vector<Known> order_;    // keys in the order of the last sample: the next one usually has the same
  std::vector<uint32_t> seen_;  // of each slot, dense ones after sparse ones: the last sample that had it
  uint32_t sample_ = 0;         // counted from 1, the shared one included
  size_t values_ = 0;
};

}  // namespace elasticctr::serve
