// One line of the request log: a copy of a prediction from the engine, which the log's own thread later writes as JSON.
// docs/formats/request-log.md is the page.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace elasticctr::serve {

// Names of the slots of one version, shared by all its requests.
struct LoggedSlots {
  struct Dense {
    std::string name;
    uint32_t dim;
  };
  std::vector<std::string> sparse;
  std::vector<Dense> dense;
  uint32_t dense_dim() const {
    uint32_t sum = 0;
    for (const Dense& slot : dense) sum += slot.dim;
    return sum;
  }
};

struct LoggedRequest {
  double time = 0;  // unix seconds at which its last byte arrived
  std::string id, model, variant, protocol, content_type;
  uint64_t version = 0;
  uint64_t binary_header = 0;
  std::string body;         // as received; empty if over the log's limit
  uint64_t body_bytes = 0;  // of the request, kept or not

  std::shared_ptr<const LoggedSlots> slots;
  // Values of some slots of one sample. Row 0 holds what all samples share, row i + 1 the values of sample i alone.
  struct Bag {
    uint32_t slot;
    uint32_t count;
  };
  std::vector<Bag> bags;
  std::vector<uint32_t> row_bags;  // [samples + 1]: bags of each row
  std::vector<uint64_t> values;    // of all bags, one after another
  std::vector<float> dense;        // [samples, slots->dense_dim()], after transforms
  uint32_t labels = 1;
  std::vector<float> scores;  // [samples, labels]

  uint64_t asked = 0, found = 0;
  std::vector<uint32_t> dead_shards;
  bool is_late = false, is_degraded = false;

  size_t samples() const { return row_bags.empty() ? 0 : row_bags.size() - 1; }
  // Its memory use, for the bound on the queue.
  size_t bytes() const;
};

// Adds the line, its end included. REQUIRES: rows, values and scores fit together.
void AppendLine(const LoggedRequest& request, std::string* out);

bool IsUtf8(std::string_view text);
std::string Base64(std::string_view bytes);

}  // namespace elasticctr::serve
