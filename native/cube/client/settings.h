// Settings of a client of one group of cube servers; src/elasticctr/cube/settings.py documents these keys for users.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cube/index/index.h"
#include "net/tls.h"

namespace elasticctr::cube {

// Which replica of a shard is asked first.
enum class Balance : uint8_t { kRoundRobin, kLeastLoaded, kRandom };

struct ClientSettings {
  std::vector<std::vector<std::string>> shards;  // in shard order, the replicas of each: host:port or unix:/path
  std::optional<Sharding> sharding;              // nullopt: what the servers report
  std::string token;
  uint32_t timeout_ms = 200;  // for a whole call, retries included
  uint32_t connect_ms = 100;  // for one connection and its hello
  uint32_t retries = 3;       // attempts per shard after the first, backup requests included
  uint32_t backup_ms = 50;    // after this long without an answer, another replica is asked too; 0: never
  Balance balance = Balance::kRoundRobin;
  uint32_t eject_after = 3;  // consecutive failures
  uint32_t eject_ms = 1000;  // the first ejection; doubles up to eject_max_ms
  uint32_t eject_max_ms = 30000;
  uint32_t idle_connections = 64;  // kept per replica
  uint64_t cache_bytes = 0;
  uint32_t refresh_ms = 1000;  // with a cache: the largest age of the known active version
  net::TlsClientOptions tls;   // for host:port; a Unix socket is plain
};

}  // namespace elasticctr::cube
