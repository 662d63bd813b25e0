#include "serve/http/routes.h"

#include <charconv>
#include <iterator>

#include "serve/codec/json.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/kserve/http_codec.h"
#include "serve/paddle/brpc_codec.h"
#include "serve/paddle/http_codec.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

// The names in a path: MODEL or MODEL/versions/VERSION, between `before` and `after`. Without `after` the path is
// `before` itself and has no names.
struct Entry {
  std::string_view before, after;
  const Codec& (*codec)();
};

constexpr Entry kEntries[] = {
    {"/v1/models/", ":predict", JsonCodec},
    {"/v2/models/", "/infer", KServeHttpCodec},
    {"/GeneralModelService/inference", "", PaddleHttpCodec},
    {"/", "/GeneralModelService/inference", PaddleHttpCodec},
    {"/rec/prediction", "", PaddleHttpCodec},
    {"/", "/prediction", PaddleHttpCodec},
};

constexpr const Codec& (*kCodecs[])() = {JsonCodec, KServeHttpCodec, KServeGrpcCodec, PaddleHttpCodec, BrpcCodec};

static_assert(std::size(kCodecs) <= kMaxCodecs);

constexpr std::string_view kVersions = "/versions/";
constexpr size_t kMaxNameBytes = 256;

std::string Decode(std::string_view text) {
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name.push_back(text[i]);
      continue;
    }
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
      throw Error(Code::kData, "the path has a % that is not followed by two hexadecimal digits");
    }
    name.push_back(static_cast<char>(value));
    i += 2;
  }
  if (name.size() > kMaxNameBytes) throw Error(Code::kData, "the path names a model with too long a name");
  return name;
}

}  // namespace

Route FindRoute(std::string_view path) {
  for (const Entry& entry : kEntries) {
    if (!path.starts_with(entry.before)) continue;
    std::string_view rest = path.substr(entry.before.size());
    if (entry.after.empty()) {
      if (rest.empty()) return {&entry.codec(), "", ""};
      continue;
    }
    if (!rest.ends_with(entry.after) || rest.size() == entry.after.size()) continue;
    rest.remove_suffix(entry.after.size());
    size_t versions = rest.find(kVersions);
    std::string_view model = rest.substr(0, versions);
    std::string_view version =
        versions == std::string_view::npos ? std::string_view() : rest.substr(versions + kVersions.size());
    if (model.empty() || model.find('/') != std::string_view::npos || version.find('/') != std::string_view::npos ||
        (versions != std::string_view::npos && version.empty())) {
      continue;
    }
    return {&entry.codec(), Decode(model), Decode(version)};
  }
  return {};
}

const Codec* FindCodec(std::string_view name) {
  for (auto codec : kCodecs) {
    if (codec().name() == name) return &codec();
  }
  return nullptr;
}

size_t IndexOf(const Codec& codec) {
  for (size_t i = 0; i < std::size(kCodecs); ++i) {
    if (&kCodecs[i]() == &codec) return i;
  }
  return kMaxCodecs;
}

const Codec* CodecAt(size_t index) { return index < std::size(kCodecs) ? &kCodecs[index]() : nullptr; }

}  // namespace elasticctr::serve
