#include "ps/client/attached.h"

#include "util/json_reader.h"
#include "util/status.h"

namespace elasticctr::ps {

void CheckAttached(const std::string& answer, const ClientOptions& options, uint32_t shard) {
  JsonReader reader(answer, 16, "its answer to attach is not JSON");
  uint64_t its_shard = ~uint64_t{0}, shards = 0, dense_floats = options.dense_floats;
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "shard") {
      its_shard = reader.Uint64();
    } else if (key == "shards") {
      shards = reader.Uint64();
    } else if (key == "dense_floats") {
      dense_floats = reader.Uint64();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (its_shard != shard || shards != options.addresses.size()) {
    throw Error(Code::kFailedPrecondition, "it is pserver " + std::to_string(its_shard) + " of " +
                                               std::to_string(shards) + ", not " + std::to_string(shard) + " of " +
                                               std::to_string(options.addresses.size()) +
                                               "; ask the coordinator for the list of pservers");
  }
  if (dense_floats != options.dense_floats) {
    throw Error(Code::kFailedPrecondition,
                "its job has " + std::to_string(dense_floats) + " dense parameters, this one has " +
                    std::to_string(options.dense_floats) + "; start every role from the same job file");
  }
}

}  // namespace elasticctr::ps
