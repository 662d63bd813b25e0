// Pservers, batches and pushes for the tests of a trainer's client.
#pragma once

#include "ps/client/client.h"
#include "table/remote.h"
#include "tests/check.h"
#include "tests/ps/fake_pserver.h"
#include "tests/table/fixture.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::ps {

inline constexpr size_t kSamples = 120;
inline constexpr uint32_t kSlots = 4;
inline constexpr uint32_t kDim = 5;
inline constexpr uint64_t kDense = 100;
inline const std::vector<TableShape> kShapes{{kDim + 1, false}, {kDim + 1, true}};

struct Cluster {
  explicit Cluster(uint32_t shards) {
    for (uint32_t s = 0; s < shards; ++s) {
      servers.push_back(std::make_unique<FakePserver>(s, shards, kShapes, kDense));
    }
  }
  ClientOptions Options(uint32_t timeout_ms = 3000) const {
    ClientOptions options;
    for (const auto& server : servers) options.addresses.push_back(server->address());
    options.job = 77;
    options.trainer = 5;
    options.attach = "{}";
    options.tables = kShapes;
    options.table_names = {"a", "b"};
    options.dense_floats = kDense;
    options.timeout_ms = timeout_ms;
    return options;
  }
  FakePserver& operator[](size_t i) { return *servers[i]; }
  std::vector<std::unique_ptr<FakePserver>> servers;
};

struct Batch {
  explicit Batch(uint64_t seed, int longest = 3)
      : first(RandomBatch(seed, kSamples, kSlots, longest, 500).MakeLookup()),
        second(RandomBatch(seed + 1000, kSamples, kSlots, longest, 90).MakeLookup()) {}
  std::vector<const Lookup*> lookups() const { return {&first, &second}; }
  const Lookup& operator[](size_t t) const { return t == 0 ? first : second; }
  Lookup first, second;
};

inline Layout TheLayout() { return MakeLayout(kSlots, kDim); }
inline std::vector<float> Flat(float value = 0.0f) { return std::vector<float>(kSamples * kSlots * (kDim + 1), value); }

template <typename Call>
Code CodeOf(Call&& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return Code{0};
}

inline PushHead HeadOf(uint64_t chunk, uint32_t from, uint32_t to) {
  PushHead head;
  head.chunk = chunk;
  head.from = from;
  head.to = to;
  head.weight = kSamples * (to - from);
  return head;
}

inline uint64_t PushOne(Client& client, const PushHead& head, const Batch& batch, std::vector<float>* flat,
                        std::span<const float> dense = {}) {
  const Layout layout = TheLayout();
  const std::vector<const Layout*> layouts{&layout, &layout};
  const std::vector<Target> targets{MakeTarget(flat, kSamples)};
  const std::vector<std::vector<Target>> gradients{targets, targets};
  return client.PushBatch(head, batch.lookups(), layouts, gradients, {}, dense);
}

}  // namespace elasticctr::ps
