// KServe V2: JSON, binary tensors, gRPC's typed and raw contents give the same samples; an invalid request is a
// DataError.
#include <cmath>
#include <limits>

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

void Expect(const std::vector<Input>& inputs, const std::vector<Sample>& expected, const Parameters& parameters = {}) {
  for (const Request& request : AllWays(inputs, parameters)) {
    auto parsed = request.codec->Read(request, {});
    CHECK(parsed->id == "r1");
    CHECK(SamplesOf(*parsed, {}) == expected);
  }
}

void ExpectRefused(const std::vector<Input>& inputs, const std::string& part, const Parameters& parameters = {},
                   const Limits& limits = {}) {
  for (const Request& request : AllWays(inputs, parameters)) {
    bool is_refused = false;
    try {
      SamplesOf(*request.codec->Read(request, limits), limits);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kData;
      if (std::string(error.what()).find(part) == std::string::npos) {
        std::fprintf(stderr, "expected %s, got %s\n", part.c_str(), error.what());
        CHECK(false);
      }
    }
    if (!is_refused) std::fprintf(stderr, "%s did not refuse: %s\n", request.codec->name(), part.c_str());
    CHECK(is_refused);
  }
}

float Log1p(double v) { return static_cast<float>(std::log1p(v)); }

void TestBySlot() {
  const uint64_t big = 0xfedcba9876543210ull;
  Expect({{"user", "BYTES", {2}, {}, {}, {"anna", "bert"}},
          {"item", "UINT64", {2, 2}, {big, 1, 2, 3}, {}, {}},
          {"tags", "BYTES", {2, 3}, {}, {}, {"a", "", "b", "", "", ""}},
          {"age", "FP32", {2}, {}, {1.5, 40}, {}},
          {"vector", "FP64", {2, 2}, {}, {1, 2, 3, 4}, {}}},
         {{{{HashOf(kUser, "anna")}, {big, 1}, {HashOf(kTags, "a"), HashOf(kTags, "b")}}, {Log1p(1.5), 1, 2}},
          {{{HashOf(kUser, "bert")}, {2, 3}, {}}, {Log1p(40), 3, 4}}});
  // Numbers in hashed slots are hashed as text, strings of id slots are decimal; INT64 carries all 64 bits.
  Expect({{"user", "INT64", {1}, {static_cast<uint64_t>(-5)}, {}, {}},
          {"item", "INT64", {1, 1}, {static_cast<uint64_t>(-5)}, {}, {}},
          {"tags", "INT32", {1, 2}, {7, 8}, {}, {}},
          {"age", "INT32", {1, 1}, {3}, {}, {}}},
         {{{{HashOf(kUser, "-5")}, {static_cast<uint64_t>(-5)}, {HashOf(kTags, "7"), HashOf(kTags, "8")}},
           {Log1p(3), 0, 0}}});
  Expect({{"item", "BYTES", {1}, {}, {}, {"18446744073709551615"}}}, {{{{}, {~0ull}, {}}, {0, 0, 0}}});
  // NaN, null in JSON: no value.
  Expect({{"age", "FP64", {2}, {}, {std::nan(""), 2}, {}}},
         {{{{}, {}, {}}, {0, 0, 0}}, {{{}, {}, {}}, {Log1p(2), 0, 0}}});
  Expect({{"user", "UINT64", {1}, {9}, {}, {}}, {"age", "FP32", {1}, {}, {4}, {}}}, {{{{9}, {}, {}}, {4, 0, 0}}},
         {{"values", "feasigns"}});
}

void TestLengths() {
  Expect({{"tags", "BYTES", {5}, {}, {}, {"a", "b", "c", "d", "e"}},
          {"tags.lengths", "INT32", {3}, {3, 0, 2}, {}, {}},
          {"item", "UINT64", {3}, {1, 2, 3}, {}, {}}},
         {{{{}, {1}, {HashOf(kTags, "b"), HashOf(kTags, "c")}}, {0, 0, 0}},
          {{{}, {2}, {}}, {0, 0, 0}},
          {{{}, {3}, {HashOf(kTags, "d"), HashOf(kTags, "e")}}, {0, 0, 0}}});
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}, {"item.lengths", "INT64", {2}, {1, 1}, {}, {}}},
                "add up to 2 of 3");
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}, {"item.lengths", "INT64", {2}, {1, 3}, {}, {}}},
                "more than the 3");
  ExpectRefused(
      {{"item", "UINT64", {1}, {1}, {}, {}}, {"item.lengths", "INT64", {2}, {static_cast<uint64_t>(-1), 2}, {}, {}}},
      "more than the 1");
  ExpectRefused({{"item.lengths", "INT64", {2}, {1, 1}, {}, {}}}, "no input 'item'");
  ExpectRefused({{"age", "FP32", {1}, {}, {1}, {}}, {"age.lengths", "INT64", {1}, {1}, {}, {}}}, "no lengths");
}

void TestShared() {
  Sample one{{{HashOf(kUser, "anna")}, {1}, {}}, {Log1p(30), 0, 0}};
  Sample two = one;
  two.sparse[kItem] = {2};
  Expect({{"user", "BYTES", {1}, {}, {}, {"anna"}},
          {"age", "FP32", {1, 1}, {}, {30}, {}},
          {"item", "UINT64", {2}, {1, 2}, {}, {}}},
         {one, two});
  ExpectRefused({{"user", "BYTES", {3}, {}, {}, {"a", "b", "c"}}, {"item", "UINT64", {2}, {1, 2}, {}, {}}},
                "where another input is for 3");
}

void TestPacked() {
  std::vector<Input> inputs = {{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                               {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, 6}, {}}};
  Expect(inputs, {{{{1}, {2}, {3}}, {1, 2, 3}}, {{{4}, {5}, {6}}, {4, 5, 6}}});
  Expect(inputs, {{{{1}, {2}, {3}}, {Log1p(1), 2, 3}}, {{{4}, {5}, {6}}, {Log1p(4), 5, 6}}}, {{"values", "raw"}});
  Expect({{"feasigns", "INT64", {4}, {1, 2, 3, 4}, {}, {}},
          {"feasigns.lengths", "INT32", {2, 3}, {0, 1, 2, 1, 0, 0}, {}, {}}},
         {{{{}, {1}, {2, 3}}, {0, 0, 0}}, {{{4}, {}, {}}, {0, 0, 0}}});
  // Copied directly, and value by value because one is shared: the same.
  Expect({{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}}, {"dense", "FP32", {1, 3}, {}, {7, 8, 9}, {}}},
         {{{{1}, {2}, {3}}, {7, 8, 9}}, {{{4}, {5}, {6}}, {7, 8, 9}}});
  Expect({{"feasigns", "INT64", {1, 3}, {1, 2, 3}, {}, {}}}, {{{{1}, {2}, {3}}, {0, 0, 0}}});
  ExpectRefused({{"feasigns", "UINT64", {2, 2}, {1, 2, 3, 4}, {}, {}}}, "3 values per sample");
  ExpectRefused({{"feasigns", "UINT64", {1, 3}, {1, 2, 3}, {}, {}}, {"item", "UINT64", {1}, {1}, {}, {}}},
                "given twice");
  ExpectRefused(inputs, "'raw' or 'feasigns'", {{"values", "hashes"}});
}

void TestLines() {
  Sample first{{{HashOf(kUser, "anna")}, {5}, {}}, {Log1p(3), 0, 0}};
  Sample second{{{}, {6, 7}, {HashOf(kTags, "x")}}, {0, 0, 0}};
  std::vector<Input> lines = {{"lines", "BYTES", {2}, {}, {}, {"user:anna item:5 age:3", "item:6 item:7 tags:x\n"}}};
  Expect(lines, {first, second});
  Expect(lines, {first, second}, {{"format", "slot"}});
  ExpectRefused(lines, "'format' must be", {{"format", "xml"}});
  ExpectRefused({{"lines", "BYTES", {2}, {}, {}, {"item:5", ""}}}, "line 2 is empty");
  ExpectRefused({{"lines", "BYTES", {1}, {}, {}, {"item:5\nitem:6"}}}, "more than one");
  ExpectRefused({{"lines", "BYTES", {2}, {}, {}, {"item:5", "item:x"}}}, "line 2");
  ExpectRefused({{"lines", "BYTES", {1}, {}, {}, {"item:5"}}, {"item", "UINT64", {1}, {1}, {}, {}}}, "no other input");
}

void TestRefusals() {
  ExpectRefused({}, "no inputs");
  ExpectRefused({{"nothing", "UINT64", {1}, {1}, {}, {}}}, "no such slot");
  ExpectRefused({{"item", "FP32", {1}, {}, {1}, {}}}, "takes UINT64");
  ExpectRefused({{"age", "BYTES", {1}, {}, {}, {"1"}}}, "takes numbers");
  ExpectRefused({{"item", "UINT64", {0}, {}, {}, {}}}, "no samples");
  ExpectRefused({{"item", "UINT64", {-1}, {}, {}, {}}}, "below 0");
  ExpectRefused({{"item", "UINT64", {1, 1, 1}, {1}, {}, {}}}, "one or two dimensions");
  ExpectRefused({{"item", "UINT64", {1ll << 40, 1ll << 40}, {1}, {}, {}}}, "too many elements");
  ExpectRefused({{"item", "UINT64", {2}, {1}, {}, {}}}, "elements");
  ExpectRefused({{"item", "BYTES", {2}, {}, {}, {"1"}}}, "");
  ExpectRefused({{"item", "INT32", {1}, {static_cast<uint64_t>(-1)}, {}, {}}}, "not below 0");
  ExpectRefused({{"vector", "FP32", {1}, {}, {1}, {}}}, "2 values per sample");
  ExpectRefused({{"age", "FP32", {1, 2}, {}, {1, 2}, {}}}, "1 values per sample");
  ExpectRefused({{"item", "UINT64", {1}, {1}, {}, {}}, {"item", "UINT64", {1}, {1}, {}, {}}}, "given twice");
  ExpectRefused({{"user", "BYTES", {1}, {}, {}, {"a"}}}, "takes UINT64 or INT64", {{"values", "feasigns"}});
  ExpectRefused({{"item", "UINT64", {1}, {1}, {}, {}}}, "microseconds", {{"timeout", "soon"}});
  for (double odd : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    std::vector<Input> packed = {{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                                 {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, odd}, {}}};
    for (const Request& request : AllWays(packed, {})) {
      if (request.codec == &KServeHttpCodec() && request.binary_header == 0) continue;  // JSON has no such numbers
      std::string why;
      try {
        SamplesOf(*request.codec->Read(request, {}), {});
      } catch (const Error& error) {
        why = error.what();
      }
      CHECK(why.find("'vector'") != why.npos && why.find("finite") != why.npos);
    }
  }
  Limits limits;
  limits.samples = 2;
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}}, "at most 2", {}, limits);
  limits = {};
  limits.values = 3;
  ExpectRefused({{"item", "UINT64", {4}, {1, 2, 3, 4}, {}, {}}}, "", {}, limits);
}

}  // namespace

int main() {
  TestBySlot();
  TestLengths();
  TestShared();
  TestPacked();
  TestLines();
  TestRefusals();
  return 0;
}
