// KServe V2: arbitrary bytes do no harm.
#include <random>

#include "serve/http/status.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/kserve/http_codec.h"
#include "tests/check.h"
#include "tests/serve/kserve_fixture.h"
#include "util/hash.h"
#include "util/protobuf.h"

using namespace elasticctr;
using namespace elasticctr::serve;
using protobuf::Reader;
using protobuf::Writer;

namespace {

void TestFuzz() {
  std::mt19937_64 random(5);
  std::vector<Input> inputs = {{"user", "BYTES", {1}, {}, {}, {"anna"}},
                               {"item", "UINT64", {3}, {1, 2, 3}, {}, {}},
                               {"tags", "BYTES", {4}, {}, {}, {"a", "b", "c", "d"}},
                               {"tags.lengths", "INT32", {3}, {2, 0, 2}, {}, {}},
                               {"age", "FP32", {3}, {}, {1, 2, 3}, {}},
                               {"vector", "FP64", {3, 2}, {}, {1, 2, 3, 4, 5, 6}, {}}};
  std::vector<Request> seeds = AllWays(inputs, {{"values", "raw"}, {"timeout", "100"}});
  for (Request& seed : AllWays({{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                                {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, 6}, {}}},
                               {}))
    seeds.push_back(seed);
  for (Request& seed : AllWays({{"lines", "BYTES", {2}, {}, {}, {"user:anna item:5 age:3", "item:6"}}}, {}))
    seeds.push_back(seed);
  size_t good = 0;
  Samples samples;
  for (int round = 0; round < 12'000; ++round) {
    Request request = seeds[random() % seeds.size()];
    std::string bytes = request.body;
    for (size_t i = 0, changes = 1 + random() % 3; i < changes && !bytes.empty(); ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 4); break;
        case 2: bytes.insert(at, 1 + random() % 4, "{}[]\",:\\0123\xff\x01"[random() % 14]); break;
        case 3: bytes[at] = "0123456789"[random() % 10]; break;
        default: bytes.resize(at); break;
      }
    }
    if (random() % 8 == 0) request.binary_header = random() % (bytes.size() + 8);
    // An exact copy on the heap makes reads past its end visible.
    request.body = std::string();
    request.body.reserve(bytes.size());
    request.body = bytes;
    samples.Reset(&kPlan);
    try {
      auto parsed = request.codec->Read(request, {});
      std::string value;
      parsed->Field("user", &value);
      parsed->Field("item", &value);
      parsed->Fill(&samples, {});
      CHECK(samples.requests() == 1 && samples.size() > 0);
      std::vector<float> scores(samples.size() * 2, 0.5f);
      Coverage coverage;
      request.codec->Format(request, parsed.get(), MakeReply(&scores, &coverage));
      ++good;
    } catch (const Error& error) {
      CHECK(error.code() == Code::kData);
      request.codec->FormatError(request, nullptr, error);
      samples.DropRequest();
      CHECK(samples.size() == 0);
    }
  }
  CHECK(good > 100);
}

}  // namespace

int main() {
  TestFuzz();
  return 0;
}
