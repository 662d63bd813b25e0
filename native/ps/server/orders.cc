// Carries out orders to a pserver: opcode 21.
#include <algorithm>
#include <filesystem>

#include "ps/server/service.h"
#include "util/json_reader.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

struct Order {
  std::string op;
  std::string directory, primary;
  bool has_directory = false;
  uint64_t below = 0, era = 0;
  double rate = 1.0, show_weight = 1.0, click_weight = 1.0, min_score = 0.0;
  uint64_t oldest = 0;
};

Order Read(std::string_view text) {
  Order order;
  JsonReader reader(text, 8, "an order is JSON");
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "op") {
      order.op = reader.String();
    } else if (key == "directory") {
      if (reader.Peek() == JsonReader::Kind::kNull) {
        reader.Null();
      } else {
        order.directory = reader.String();
        order.has_directory = true;
      }
    } else if (key == "primary") {
      order.primary = reader.String();
    } else if (key == "below") {
      // Chunks are u64; careful writers of JSON put them into quotes.
      if (reader.Peek() == JsonReader::Kind::kString) {
        const auto chunk = ParseNumber<uint64_t>(reader.String());
        if (!chunk) reader.Fail("a chunk is a number");
        order.below = *chunk;
      } else {
        order.below = reader.Uint64();
      }
    } else if (key == "era") {
      order.era = reader.Uint64();
    } else if (key == "rate") {
      order.rate = reader.Double();
    } else if (key == "show_weight") {
      order.show_weight = reader.Double();
    } else if (key == "click_weight") {
      order.click_weight = reader.Double();
    } else if (key == "min_score") {
      order.min_score = reader.Double();
    } else if (key == "oldest") {
      order.oldest = reader.Uint64();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  return order;
}

}  // namespace

std::string Service::Confine(const std::string& directory) const {
  if (options_.files.empty()) return directory;
  std::error_code error;
  const auto root = std::filesystem::weakly_canonical(options_.files, error);
  const auto asked = std::filesystem::weakly_canonical(directory, error);
  const auto [end, _] = std::mismatch(root.begin(), root.end(), asked.begin(), asked.end());
  if (error || directory.empty() || end != root.end()) {
    throw Error(Code::kFailedPrecondition, "a pserver saves to and loads from its job's run directory, " +
                                               root.string() + ", and '" + directory +
                                               "' is outside of it; start every role with the same absolute run_dir");
  }
  return asked.string();
}

std::string Service::Obey(std::string_view text) {
  const Order order = Read(text);
  if (order.op == "stats") return stats();
  if (order.op == "stop") {
    is_stop_asked_.store(true);
    return "{}";
  }
  if (order.op == "load") {
    Load(order.has_directory ? Confine(order.directory) : "", order.era);
    return stats();
  }
  if (order.op == "follow") {
    if (order.primary.empty()) throw Error(Code::kConfig, "follow needs the address of a primary");
    Follow(order.primary);
    return stats();
  }
  if (order.op == "promote") {
    Promote();
    return stats();
  }
  RequireServing();
  if (order.op == "save") {
    if (!order.has_directory) throw Error(Code::kConfig, "save needs a directory");
    return shard_->Save(Confine(order.directory));
  }
  if (order.op == "forget") {
    shard_->ForgetChunks(order.below);
    return "{}";
  }
  if (order.op == "decay") {
    shard_->Decay(static_cast<float>(order.rate));
    return "{}";
  }
  if (order.op == "evict") {
    if (order.oldest > UINT32_MAX) throw Error(Code::kConfig, "oldest is a time below 2^32");
    const EvictRule rule{static_cast<float>(order.show_weight), static_cast<float>(order.click_weight),
                         static_cast<float>(order.min_score), static_cast<uint32_t>(order.oldest)};
    return "{\"evicted\": " + std::to_string(shard_->Evict(rule)) + "}";
  }
  throw Error(Code::kData, "unknown order '" + order.op + "'");
}

}  // namespace elasticctr::ps
