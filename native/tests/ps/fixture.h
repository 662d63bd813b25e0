// Pushes, pulls and shards for the tests of the parameter server.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ps/shard/shard.h"
#include "tests/check.h"
#include "util/hash.h"

namespace elasticctr::ps {

inline std::string MakeDirectory(const std::string& name) {
  static const std::filesystem::path root = [] {
    const auto path = std::filesystem::temp_directory_path() / ("ps_test-" + std::to_string(::getpid()));
    std::atexit([] {
      std::filesystem::remove_all(std::filesystem::temp_directory_path() / ("ps_test-" + std::to_string(::getpid())));
    });
    return path;
  }();
  std::filesystem::remove_all(root / name);
  std::filesystem::create_directories(root / name);
  return (root / name).string();
}

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes of every file, by name.
inline std::map<std::string, std::string> SavedFiles(const Shard& shard, const std::string& name) {
  const std::string directory = MakeDirectory(name);
  shard.Save(directory);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = ReadAll(entry.path());
  }
  return files;
}

constexpr uint32_t kWide = 3;  // weights of a row of the first table; the second has one, admitted at its second sight
constexpr uint64_t kFloats = 40;

inline ShardSettings MakeShardSettings(uint32_t shard = 0, uint32_t shards = 1, bool has_admission = false) {
  ShardSettings settings;
  settings.shard = shard;
  settings.shards = shards;
  settings.dense_floats = kFloats;
  settings.dense_optimizer.learning_rate = 0.01f;
  settings.group_timeout_ms = 60'000;
  TableSettings wide, narrow;
  wide.name = "wide";
  wide.segments = {{"embedding", kWide, {}, {InitializerKind::kUniform, -0.1f, 0.1f}}};
  wide.segments[0].optimizer.kind = OptimizerKind::kAdam;
  narrow.name = "narrow";
  narrow.segments = {{"linear", 1, {}, {}}};
  narrow.segments[0].optimizer.kind = OptimizerKind::kAdagrad;
  narrow.segments[0].optimizer.learning_rate = 0.05f;
  if (has_admission) narrow.admission.count = 2;
  settings.tables = {wide, narrow};
  return settings;
}

// A push of the whole job; Body extracts the part for one shard.
struct Batch {
  uint64_t trainer = 1, chunk = 7;
  uint32_t from = 0, to = 1, weight = 10, now = 1;
  float rate_scale = 1.0f;
  PushKind kind = PushKind::kGradients;
  GroupMode group = GroupMode::kNone;
  Encoding encoding = Encoding::kFp32;
  uint64_t era = 0;
  std::vector<uint64_t> feasigns;
  std::vector<float> wide, narrow;  // gradients
  std::vector<float> dense;         // kFloats, or none

  static Batch Random(uint64_t seed, uint64_t vocabulary = 300, bool has_dense = true) {
    std::mt19937_64 rng(seed);
    const auto draw = [&] { return static_cast<float>(static_cast<int>(rng() % 2001) - 1000) * 1e-4f; };
    Batch batch;
    std::map<uint64_t, bool> distinct;
    for (size_t i = 0; i < 40; ++i) distinct[rng() % vocabulary * 0x9E3779B97F4A7C15ull] = true;
    for (const auto& [feasign, _] : distinct) batch.feasigns.push_back(feasign);
    for (size_t i = 0; i < batch.feasigns.size() * kWide; ++i) batch.wide.push_back(draw());
    for (size_t i = 0; i < batch.feasigns.size(); ++i) batch.narrow.push_back(draw());
    for (size_t i = 0; has_dense && i < kFloats; ++i) batch.dense.push_back(draw());
    return batch;
  }

  std::vector<uint8_t> Body(const Shard& shard) const {
    const Share& share = shard.share();
    std::vector<uint64_t> own;
    std::vector<float> ones, halves, rows[2];
    for (size_t i = 0; i < feasigns.size(); ++i) {
      const uint32_t bucket = BucketOf(feasigns[i]);
      if (bucket < share.first_bucket || bucket >= share.last_bucket) continue;
      own.push_back(feasigns[i]);
      ones.push_back(1.0f);
      halves.push_back(0.5f);
      rows[0].insert(rows[0].end(), wide.begin() + static_cast<long>(i * kWide),
                     wide.begin() + static_cast<long>((i + 1) * kWide));
      rows[1].push_back(narrow[i]);
    }
    PushRequest push;
    push.trainer = trainer;
    push.chunk = chunk;
    push.from = from;
    push.to = to;
    push.weight = weight;
    push.now = now;
    push.rate_scale = rate_scale;
    push.kind = kind;
    push.group = group;
    push.encoding = encoding;
    std::vector<uint8_t> encoded[2], floats;
    const bool has_content = kind == PushKind::kGradients || kind == PushKind::kDeltas;
    for (uint32_t t = 0; has_content && t < 2; ++t) {
      const size_t dim = shard.shapes()[t].dim;
      encoded[t].resize(own.size() * EncodedBytes(encoding, dim));
      EncodeRows(encoding, rows[t].data(), own.size(), dim, encoded[t].data());
      push.tables.push_back(
          {t, static_cast<uint32_t>(own.size()), own.data(), ones.data(), halves.data(), nullptr, encoded[t].data()});
    }
    const std::span<const float> part =
        dense.empty() || !has_content
            ? std::span<const float>()
            : std::span<const float>(dense).subspan(share.first_float, share.last_float - share.first_float);
    push.dense_encoding = encoding == Encoding::kInt8 ? Encoding::kBf16 : encoding;
    floats.resize(EncodedBytes(push.dense_encoding, part.size()));
    EncodeRows(push.dense_encoding, part.data(), part.empty() ? 0 : 1, part.size(), floats.data());
    push.dense_floats = static_cast<uint32_t>(part.size());
    push.dense = floats.data();
    std::vector<uint8_t> body(PushBytes(push, shard.shapes()));
    WritePush(push, shard.shapes(), body.data());
    return body;
  }
};

// The result of a push: nothing while it waits.
struct Outcome {
  std::optional<PushOutcome> outcome;
  std::string error;
  uint64_t place = 0;
  bool is_over() const { return outcome.has_value() || !error.empty(); }
};

inline std::shared_ptr<Outcome> Push(Shard* shard, const Batch& batch) {
  auto body = std::make_shared<std::vector<uint8_t>>(batch.Body(*shard));
  auto outcome = std::make_shared<Outcome>();
  PushRequest request = ReadPush(*body, shard->shapes());
  request.era = batch.era;
  shard->Push(request, [body, outcome](const PushResult* result, const std::exception* error) {
    if (result != nullptr) outcome->outcome = result->outcome;
    if (result != nullptr) outcome->place = result->place;
    if (error != nullptr) outcome->error = error->what();
  });
  return outcome;
}

// Rows of both tables, one after the other, then the dense part if requested.
inline std::vector<float> Pull(Shard* shard, std::span<const uint64_t> feasigns, bool insert, bool with_dense = false,
                               uint64_t era = 0) {
  const Share& share = shard->share();
  std::vector<uint64_t> own;
  for (const uint64_t feasign : feasigns) {
    const uint32_t bucket = BucketOf(feasign);
    if (bucket >= share.first_bucket && bucket < share.last_bucket) own.push_back(feasign);
  }
  const std::vector<uint32_t> occurrences(own.size(), 1);
  PullRequest pull;
  pull.era = era;
  pull.flags = static_cast<uint8_t>((insert ? kPullInserts : 0) | (with_dense ? kPullDense : 0));
  for (uint32_t t = 0; t < 2; ++t) {
    pull.tables.push_back({t, static_cast<uint32_t>(own.size()), own.data(), occurrences.data()});
  }
  std::vector<uint8_t> out(shard->PullAnswerBytes(pull));
  const size_t bytes = shard->Pull(pull, out.data()).bytes;
  std::vector<float> floats((bytes - kPullAnswerHead) / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), out.data() + kPullAnswerHead, floats.size() * sizeof(float));
  return floats;
}

inline std::vector<float> DenseOf(const Shard& shard) {
  std::vector<float> values(shard.share().last_float - shard.share().first_float);
  shard.CopyDense(values.data());
  return values;
}

inline void SetDense(Shard* shard) {
  std::vector<float> values;
  for (uint64_t i = shard->share().first_float; i < shard->share().last_float; ++i) {
    values.push_back(0.01f * static_cast<float>(i));
  }
  CHECK(shard->SetDense(shard->share().first_float, values));
}

inline std::vector<Batch> GroupOf(uint32_t step, GroupMode mode) {
  std::vector<Batch> batches;
  for (uint64_t trainer = 1; trainer <= 3; ++trainer) {
    Batch batch = Batch::Random(step * 10 + trainer, 60);
    batch.trainer = trainer;
    batch.chunk = 100 + trainer;
    batch.from = step;
    batch.to = step + 1;
    batch.weight = static_cast<uint32_t>(10 * trainer * trainer);
    batch.group = mode;
    batches.push_back(batch);
  }
  return batches;
}

}  // namespace elasticctr::ps
