// The samples of one micro-batch, as codecs put them together: request after request, sample after sample.
//
//   samples.BeginRequest();
//   samples.AddFeasign(user_slot, 7);      // before the first BeginSample: shared by all samples of the request
//   samples.BeginSample();
//   samples.AddFeasign(item_slot, 12);     // a slot that a sample gives itself replaces the shared one for it
//   samples.EndRequest();
//
// Shared values are kept, looked up and pooled once. Memory is kept between batches. One thread's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "serve/plan.h"

namespace elasticctr::serve {

class Samples {
 public:
  Samples();
  ~Samples();

  // Forgets everything. REQUIRES: `plan` outlives the next Reset.
  void Reset(const Plan* plan);
  const Plan& plan() const;

  void BeginRequest();
  void BeginSample();
  void AddFeasign(uint32_t slot, uint64_t feasign);       // beyond max_values: cut as the parser cuts
  void SetDense(uint32_t slot, uint32_t i, float value);  // after transforms; what is not set is 0
  void EndRequest();
  // Forgets all since BeginRequest.
  void DropRequest();

  // As they stand in a log, before hashing and transforms. Throw DataError naming the slot.
  void AddText(uint32_t slot, std::string_view value);        // hashed, or a decimal feasign
  void AddNumber(uint32_t slot, uint64_t value);              // a hashed slot hashes its decimal text
  void SetRawDense(uint32_t slot, uint32_t i, double value);  // transformed; NaN and infinity are DataErrors
  // Whole lines of a text format, each a sample, read by the trainer's parser; a label may be absent. A bad line throws
  // DataError with its number, from 1, and the reason.
  void AddLines(TextFormat format, std::string_view text);

  size_t size() const;      // samples
  size_t requests() const;  // ended ones
  struct Range {
    size_t first, count;
  };
  Range request(size_t i) const;

 private:
  struct State;
  State* state_;
};

}  // namespace elasticctr::serve
