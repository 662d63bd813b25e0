// An inference request of KServe V2, over HTTP or gRPC, and how its tensors become samples: by slot, packed, or as
// lines of a log. docs/reference/kserve.md is the page for users.
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
  std::deque<Tensor> inputs;  // a deque: tensors stay where they are
  // Of the request, as text: what variants can be sticky by, and `values`, `format`, `timeout`.
  std::vector<std::pair<std::string, std::string>> parameters;

  // Takes `timeout` (microseconds) out of the parameters.
  void ReadTimeout();
  // An output the client asks for. Throws DataError unless it is `scores`.
  void AskFor(std::string_view output);

  // A parameter of that name, else an input of that name that has one value for all samples.
  bool Field(std::string_view name, std::string* value) const override;
  void Fill(Samples* samples, const Limits& limits) const override;

  const std::string* parameter(std::string_view name) const;

 private:
  void FillLines(Samples* samples, const Tensor& lines, const Limits& limits) const;

  bool has_outputs_ = false;
};

std::string Join(const std::vector<std::string>& words, std::string_view between);

// Throws DataError for a parameter of an input or output that asks for what is not served: shared memory, classes.
void CheckTensorParameter(std::string_view name);

}  // namespace elasticctr::serve::kserve
