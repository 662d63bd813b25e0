// A refusal that the client can act on; its reason is the detail of the answer.
#pragma once

#include <string>

#include "ps/wire/frames.h"
#include "util/status.h"

namespace elasticctr::ps {

class Refusal : public Error {
 public:
  Refusal(Code code, Detail detail, const std::string& message) : Error(code, message), detail_(detail) {}
  Detail detail() const { return detail_; }

 private:
  Detail detail_;
};

}  // namespace elasticctr::ps
