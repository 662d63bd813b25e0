// An inference request of KServe V2, over HTTP or gRPC, and the conversion of its tensors to samples: by slot, packed,
// or as lines of a log. docs/reference/kserve.md is the page for users.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/kserve/tensor.h"

namespace elasticctr::serve::kserve {

class InferRequest : public Parsed {
 public:
  std::deque<Tensor> inputs;  // a deque: tensors must not move
  // Parameters of the request, as text: fields for sticky variants, and `values`, `format`, `timeout`.
  std::vector<std::pair<std::string, std::string>> parameters;

  // Removes `timeout` (microseconds) from the parameters and stores it.
  void ReadTimeout();
  // Checks an output the client requests. Throws DataError unless it is `scores`.
  void AskFor(std::string_view output);

  // The parameter of that name, else an input of that name with one value for all samples.
  bool Field(std::string_view name, std::string* value) const override;
  void Fill(Samples* samples, const Limits& limits) const override;

  const std::string* parameter(std::string_view name) const;

 private:
  void FillLines(Samples* samples, const Tensor& lines, const Limits& limits) const;

  bool has_outputs_ = false;
};

std::string Join(const std::vector<std::string>& words, std::string_view between);

// Throws DataError for an unsupported parameter of an input or output: shared memory, classes.
void CheckTensorParameter(std::string_view name);

}  // namespace elasticctr::serve::kserve
