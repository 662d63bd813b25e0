// Binds the tensors of a request to the slots of a plan: which slots each fills, how many values each sample takes from
// it, and which are shared by all samples. Made for one Fill; must not outlive request and plan.
#pragma once

#include <cstdint>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/codec/samples.h"
#include "serve/kserve/request.h"
#include "serve/version/plan.h"

namespace elasticctr::serve::kserve {

class Columns {
 public:
  // Throws DataError for tensors that match no slot, are given twice, have a type or shape the slot does not take, or
  // contradict each other about the number of samples.
  Columns(const InferRequest& request, const Plan& plan, const Limits& limits);

  // Adds the whole request (BeginRequest … EndRequest).
  void Fill(Samples* samples);

 private:
  enum class Kind : uint8_t { kFeasigns, kNumbers, kTexts, kDense, kRawDense };

  struct Column {
    Kind kind;
    uint32_t slot;   // the first it fills
    uint32_t slots;  // and how many: more than one if packed
    const Tensor* tensor;
    size_t rows = 0;   // 1: shared, if there are more samples
    size_t width = 1;  // values of a slot in a sample, without `lengths`
    bool is_double = false;
    bool is_signed = false;
    std::vector<uint64_t> wide;  // elements converted to 64 bits, if they were narrower
    const char* data = nullptr;
    std::vector<uint32_t> lengths;  // [rows, slots]
    size_t at = 0, bag = 0;         // the next element, the next length
  };

  void CheckName(const Tensor& tensor) const;
  void Bind(const Tensor& tensor);
  void AddSparse(const Tensor& tensor, uint32_t slot, uint32_t slots);
  void AddDense(const Tensor& tensor, uint32_t slot, uint32_t slots);
  void SetLengths(Column* column, const Tensor& lengths);
  void TakeRows(Column* column, const Limits& limits);
  static void Widen(Column* column, bool as_feasigns);
  void Hash(Column* column) const;
  bool FillRows(Samples* samples) const;
  void FillSample(Column* column, Samples* samples) const;
  void FillDense(Column* column, Samples* samples) const;

  const InferRequest& request_;
  const Plan& plan_;
  bool values_are_feasigns_;  // of inputs by slot
  bool dense_is_final_;       // of the packed `dense`
  std::vector<Column> columns_;
  std::vector<bool> sparse_given_, dense_given_;
  size_t count_ = 1;  // samples
};

}  // namespace elasticctr::serve::kserve
