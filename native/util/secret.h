// The shared secret of a server.
#pragma once

#include <string>
#include <string_view>

namespace elasticctr {

class Secret {
 public:
  explicit Secret(std::string token) : token_(std::move(token)) {}
  bool is_set() const { return !token_.empty(); }
  // Takes as long for a wrong first byte as for a wrong last one.
  bool Matches(std::string_view given) const {
    size_t n = token_.size();
    if (n == 0) return true;
    unsigned char difference = given.size() == n ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i) {
      difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(token_[i % n]);
    }
    return difference == 0;
  }

 private:
  const std::string token_;
};

}  // namespace elasticctr
