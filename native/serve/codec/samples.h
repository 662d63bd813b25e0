// The samples of one micro-batch, as filled by codecs: request after request, sample after sample.
//
//   samples.BeginRequest();
//   samples.AddFeasign(user_slot, 7);      // before the first BeginSample: shared by all samples of the request
//   samples.BeginSample();
//   samples.AddFeasign(item_slot, 12);     // a slot that a sample gives itself replaces the shared one for it
//   samples.EndRequest();
//
// Shared values are kept, looked up and pooled once. Memory is kept between batches. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "serve/version/plan.h"

namespace elasticctr {
class PieceParser;
}

namespace elasticctr::serve {

class Samples {
 public:
  Samples();
  ~Samples();
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  // Discards everything. REQUIRES: `plan` is sealed and outlives the next Reset.
  void Reset(const Plan* plan);
  const Plan& plan() const { return *plan_; }

  void BeginRequest();
  void BeginSample();
  // Values beyond max_values are cut as the parser cuts them. REQUIRES, also below: slot < plan().spec.sparse.size();
  // EndRequest computes derived slots.
  void AddFeasign(uint32_t slot, uint64_t feasign) {
    Column& column = columns_[slot];
    if (column.next == column.stop) [[unlikely]] {
      if (!MakeRoom(&column)) return;
    }
    if (!column.is_given) Give(slot);
    *column.next++ = feasign;
  }
  // The slot is present even if no value follows: an empty one also replaces the shared one.
  void GiveSlot(uint32_t slot) {
    if (!columns_[slot].is_given) Give(slot);
  }
  // Sets a value after transforms; unset ones take the shared value, or 0. Throws DataError for a value that is not
  // finite or beyond the slot's dimensions. REQUIRES: a sample that sets one dimension of a slot sets all.
  void SetDense(uint32_t slot, uint32_t i, float value);
  // The value is missing: as in training it is the slot's default, even if there is a shared one.
  void MissDense(uint32_t slot, uint32_t i);
  void EndRequest();
  // Discards everything since BeginRequest.
  void DropRequest();

  // Values as they appear in a log, before hashing and transforms. Throw DataError naming the slot.
  void AddText(uint32_t slot, std::string_view value);        // hashed, or a decimal feasign; empty: no value
  void AddNumber(uint32_t slot, uint64_t value);              // a hashed slot hashes its decimal text
  void SetRawDense(uint32_t slot, uint32_t i, double value);  // transformed; NaN and infinity are DataErrors
  // Whole lines of a text format, each a sample, read by the trainer's parser; a label may be absent. A bad line throws
  // DataError with its number, from 1, and the reason. REQUIRES: no BeginSample since BeginRequest or AddLines.
  void AddLines(TextFormat format, std::string_view text);

  // A fast path for samples with exactly one feasign in every slot: feasigns [count, sparse slots] and dense floats
  // after transforms [count, dense floats], or null for zeros. Neither need be aligned. Throws DataError for a float
  // that is not finite. REQUIRES: BeginRequest, and no other call since.
  void AddRows(size_t count, const void* feasigns, const void* dense);

  size_t size() const { return size_; }                 // samples
  size_t requests() const { return requests_.size(); }  // ended ones
  struct Range {
    size_t first, count;
  };
  Range request(size_t i) const { return requests_[i]; }
  size_t request_values() const;  // sparse values of the current request

  // The result. A sample's values of a slot are a bag: values(slot)[first … first + count].
  struct Bag {
    uint32_t first, count;
  };
  const Bag* bags(size_t sample) const { return bags_.data() + sample * columns_.size(); }  // one per slot, derived too
  const uint64_t* values(uint32_t slot) const { return columns_[slot].begin; }
  size_t value_count(uint32_t slot) const { return columns_[slot].start - columns_[slot].begin; }
  // For each slot the index of a request's first value; one past the last request: the end of all values.
  const uint32_t* first_values(size_t request) const { return first_values_.data() + request * columns_.size(); }
  // For each slot the number of values that the samples of a request share; they are the request's first.
  const uint32_t* shared_counts(size_t request) const { return shared_counts_.data() + request * columns_.size(); }
  // The values all samples of a request share, and the values of one sample (counted over the batch) only.
  std::span<const uint64_t> shared(size_t request, uint32_t slot) const {
    return {values(slot) + first_values(request)[slot], shared_counts(request)[slot]};
  }
  std::span<const uint64_t> own(size_t request, size_t sample, uint32_t slot) const {
    const Bag bag = bags(sample)[slot];
    const bool is_shared = bag.first < first_values(request)[slot] + shared(request, slot).size();
    return {values(slot) + bag.first, is_shared ? 0 : bag.count};
  }
  const float* dense(size_t sample) const { return dense_.data() + sample * dense_dim_; }  // slots as in the spec

 private:
  // One slot's values, bag after bag.
  struct Column {
    uint64_t* next = nullptr;   // where the next value goes
    uint64_t* stop = nullptr;   // where room or, if the first are kept, max_values ends
    uint64_t* start = nullptr;  // first value of the current bag
    uint64_t* begin = nullptr;
    size_t capacity = 0;
    uint32_t max_values = 0;
    uint64_t hash_seed = 0;
    bool hashes_text = false;
    bool keep_last = false;
    bool is_given = false;
    std::unique_ptr<uint64_t[]> memory;
  };
  struct LineParser {
    uint64_t plan;
    ParserSpec spec;
    std::unique_ptr<PieceParser> parser;
  };
  enum class Open : uint8_t { kNothing, kShared, kSample };

  void Give(uint32_t slot) {
    columns_[slot].is_given = true;
    given_[given_count_++] = slot;
  }
  void ForgetGiven();
  bool MakeRoom(Column* column);
  static void Reserve(Column* column, size_t count);
  static void StartBag(Column* column);
  void CloseBags();
  void GrowSamples(size_t more);
  void NoteFirstValues(size_t request);
  float* DenseOf(uint32_t slot, uint32_t i);
  void DeriveSlots();
  Bag Derive(const DerivedSlot& derived, uint32_t number, const Bag* bags, const float* dense);
  PieceParser* ParserOf(TextFormat format);

  const Plan* plan_ = nullptr;
  std::vector<Column> columns_;  // of the slots of the log, then of derived ones
  size_t given_slots_ = 0;       // of the log
  // Slots with a value in the current sample or shared part: only these are processed when it ends.
  std::vector<uint32_t> given_;
  size_t given_count_ = 0;
  std::vector<Bag> shared_bags_;  // of the current request
  size_t size_ = 0;
  size_t first_sample_ = 0;  // of the current request
  Open open_ = Open::kNothing;
  bool has_shared_ = false;
  size_t dense_dim_ = 0;
  size_t capacity_ = 0;  // samples
  std::vector<Bag> bags_;
  std::vector<float> dense_;
  std::vector<float> shared_dense_;
  std::vector<uint32_t> dense_offsets_;
  std::vector<uint32_t> first_values_;
  std::vector<uint32_t> shared_counts_;
  std::vector<Range> requests_;
  std::vector<std::unique_ptr<LineParser>> parsers_;  // most recently used first
};

}  // namespace elasticctr::serve
