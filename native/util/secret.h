// The shared secrets of a server: one that allows everything, and one that allows only reading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace elasticctr {

// In order: a greater scope allows more.
enum class TokenScope : uint8_t { kNone, kRead, kAdmin };

inline constexpr std::string_view kReadOnly = "this token may only read; use the token of --token-file";

class Secret {
 public:
  // Without `admin`, every caller may do everything. REQUIRES: no `read` without `admin`.
  explicit Secret(std::string admin, std::string read = {}) : admin_(std::move(admin)), read_(std::move(read)) {}
  bool is_set() const { return !admin_.empty(); }
  // What the bearer of this token may do.
  TokenScope ScopeOf(std::string_view given) const {
    if (!is_set()) return TokenScope::kAdmin;
    const bool is_admin = Equals(admin_, given);
    const bool is_read = !read_.empty() && Equals(read_, given);
    return is_admin ? TokenScope::kAdmin : is_read ? TokenScope::kRead : TokenScope::kNone;
  }
  bool Matches(std::string_view given) const { return ScopeOf(given) != TokenScope::kNone; }

 private:
  // Takes as long for a wrong first byte as for a wrong last one. REQUIRES: `token` is not empty.
  static bool Equals(const std::string& token, std::string_view given) {
    const size_t n = token.size();
    unsigned char difference = given.size() == n ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i) {
      difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(token[i % n]);
    }
    return difference == 0;
  }

  const std::string admin_;
  const std::string read_;
};

}  // namespace elasticctr
