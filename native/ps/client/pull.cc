// Client::StartPull: asks each pserver for the rows of its feasigns. Rows are received from the socket directly into
// the array they are pooled from.

#include <algorithm>
#include <cstring>

#include "ps/client/split.h"
#include "ps/client/state.h"
#include "table/remote.h"
#include "util/coding.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

struct FetchedTable {
  const Lookup* lookup;
  uint32_t dim;
  Split split;
  Buffer<float> rows;     // by pserver, then in the lookup's order
  Buffer<float> ordered;  // in the lookup's order; made on demand
  bool is_ordered = false;
};

struct Fetched {
  explicit Fetched(size_t shards) : gate(shards), steps(shards) {}
  Gate gate;
  std::vector<FetchedTable> tables;
  std::vector<uint64_t> steps;  // by shard
};

class PullPart : public Request {
 public:
  PullPart(uint32_t shard, Encoding encoding, size_t body_bytes, std::shared_ptr<Fetched> fetched,
           std::shared_ptr<DenseStore> dense)
      : Request(Opcode::kPull, body_bytes),
        shard_(shard),
        encoding_(encoding),
        fetched_(std::move(fetched)),
        dense_(std::move(dense)) {}

  void Place(const net::wire::Header& header, std::vector<iovec>* places) override {
    size_t row_bytes = 0;
    places->push_back({head_, sizeof head_});
    for (FetchedTable& table : fetched_->tables) {
      row_bytes += EncodedBytes(encoding_, table.dim) * table.split.count(shard_);
    }
    if (encoding_ == Encoding::kFp32) {
      for (FetchedTable& table : fetched_->tables) {
        places->push_back({Rows(table), table.split.count(shard_) * table.dim * sizeof(float)});
      }
    } else {
      places->push_back({encoded_.Reserve(row_bytes), row_bytes});
    }
    const size_t without = sizeof head_ + row_bytes, dense_bytes = dense_->floats(shard_) * sizeof(float);
    has_dense_ = dense_bytes > 0 && header.body_bytes == without + dense_bytes;
    if (!has_dense_ && header.body_bytes != without) {
      throw Error(Code::kCorruption, "an answer to a pull of " + std::to_string(header.body_bytes) + " bytes, not " +
                                         std::to_string(without));
    }
    if (!has_dense_) return;
    if (floats_.data() == nullptr) floats_ = dense_->Take(shard_);
    places->push_back({floats_.data(), dense_bytes});
  }

  void OnAnswer(const net::wire::Header&) override {
    if (DecodeFixed32(head_ + 16) != (has_dense_ ? dense_->floats(shard_) : 0)) {
      throw Error(Code::kCorruption, "an answer to a pull that contradicts itself");
    }
    const uint8_t* from = encoded_.data();
    for (FetchedTable& table : fetched_->tables) {
      if (encoding_ == Encoding::kFp32) break;
      const size_t count = table.split.count(shard_);
      DecodeRows(encoding_, from, count, table.dim, Rows(table));
      from += EncodedBytes(encoding_, table.dim) * count;
    }
    fetched_->steps[shard_] = DecodeFixed64(head_);
    if (has_dense_) dense_->Set(shard_, DecodeFixed64(head_ + 8), std::move(floats_));
    fetched_->gate.Arrive();
  }

  void OnError(Failure failure) override { fetched_->gate.Fail(std::move(failure)); }

  // The pserver that answers now has its own version numbers.
  void OnResend() override { EncodeFixed64(body() + 8, 0); }

 private:
  float* Rows(FetchedTable& table) const { return table.rows.data() + table.split.start(shard_) * table.dim; }

  const uint32_t shard_;
  const Encoding encoding_;
  const std::shared_ptr<Fetched> fetched_;
  const std::shared_ptr<DenseStore> dense_;
  uint8_t head_[kPullAnswerHead];
  bool has_dense_ = false;
  Buffer<uint8_t> encoded_;
  Buffer<float> floats_;
};

class ClientFetch : public Fetch {
 public:
  ClientFetch(std::shared_ptr<Fetched> fetched, std::shared_ptr<DenseStore> dense)
      : fetched_(std::move(fetched)), dense_(std::move(dense)) {}

  bool Wait(uint32_t timeout_ms) override { return fetched_->gate.Wait(timeout_ms); }

  void Pool(size_t t, const Layout& layout, const std::vector<Target>& targets) override {
    FetchedTable& table = Here(t);
    PoolRows(*table.lookup, layout, table.rows.data(), table.dim, targets, table.split.places());
  }

  std::span<const float> Rows(size_t t) override {
    FetchedTable& table = Here(t);
    const size_t distinct = table.lookup->distinct();
    if (table.split.places() == nullptr) return {table.rows.data(), distinct * table.dim};
    float* const out = table.ordered.Reserve(distinct * table.dim);
    for (size_t i = 0; !table.is_ordered && i < distinct; ++i) {
      std::memcpy(out + i * table.dim, table.rows.data() + table.split.places()[i] * table.dim,
                  table.dim * sizeof(float));
    }
    table.is_ordered = true;
    return {out, distinct * table.dim};
  }

  uint64_t dense_version() override {
    fetched_->gate.WaitAll();
    return dense_->Sum();
  }

  uint64_t step() override {
    fetched_->gate.WaitAll();
    return *std::min_element(fetched_->steps.begin(), fetched_->steps.end());
  }

 private:
  FetchedTable& Here(size_t t) {
    if (t >= fetched_->tables.size()) throw Error(Code::kFailedPrecondition, "the pull has no such table");
    fetched_->gate.WaitAll();
    return fetched_->tables[t];
  }

  const std::shared_ptr<Fetched> fetched_;
  const std::shared_ptr<DenseStore> dense_;
};

struct Flags {
  uint8_t flags;
  Encoding encoding;
  uint64_t dense_version;
};

// The frame contains only tables that have feasigns of this pserver.
std::shared_ptr<PullPart> MakePart(const ClientOptions& options, uint32_t shard, const Flags& flags,
                                   const std::shared_ptr<Fetched>& fetched, const std::shared_ptr<DenseStore>& dense) {
  const auto counts = [&](size_t t) {
    return (flags.flags & kPullInserts) != 0 && options.tables[t].counts_occurrences;
  };
  size_t bytes = kPullHead;
  uint16_t asked = 0;
  for (size_t t = 0; t < fetched->tables.size(); ++t) {
    const size_t count = fetched->tables[t].split.count(shard);
    if (count == 0) continue;
    ++asked;
    bytes += 8 + count * (sizeof(uint64_t) + (counts(t) ? sizeof(uint32_t) : 0));
  }
  const auto part = std::make_shared<PullPart>(shard, flags.encoding, bytes, fetched, dense);
  uint8_t* out = part->body();
  out[0] = flags.flags;
  out[1] = static_cast<uint8_t>(flags.encoding);
  std::memcpy(out + 2, &asked, sizeof asked);
  EncodeFixed32(out + 4, 0);
  EncodeFixed64(out + 8, flags.dense_version);
  out += kPullHead;
  for (size_t t = 0; t < fetched->tables.size(); ++t) {
    const size_t count = fetched->tables[t].split.count(shard);
    if (count == 0) continue;
    EncodeFixed32(out, static_cast<uint32_t>(t));
    EncodeFixed32(out + 4, static_cast<uint32_t>(count));
    out += 8;
  }
  for (size_t t = 0; t < fetched->tables.size(); ++t) {
    const FetchedTable& table = fetched->tables[t];
    if (table.split.count(shard) == 0) continue;
    out = table.split.Gather(shard, table.lookup->feasigns(), 1, out);
    if (!counts(t)) continue;
    const uint32_t* const starts = table.lookup->starts();
    const uint32_t* const order = table.split.order();
    for (size_t k = 0; k < table.split.count(shard); ++k, out += sizeof(uint32_t)) {
      const size_t i = order == nullptr ? k : order[table.split.start(shard) + k];
      EncodeFixed32(out, starts[i + 1] - starts[i]);
    }
  }
  return part;
}

}  // namespace

std::unique_ptr<Fetch> Client::StartPull(std::span<const Lookup* const> lookups, bool insert, bool wants_dense) {
  State& s = *state_;
  if (!lookups.empty()) s.CheckTables(lookups.size());
  const auto fetched = std::make_shared<Fetched>(s.shards());
  fetched->tables.resize(lookups.size());
  for (size_t t = 0; t < lookups.size(); ++t) {
    FetchedTable& table = fetched->tables[t];
    table.lookup = lookups[t];
    table.dim = s.options.tables[t].dim;
    table.split.Make({lookups[t]->feasigns(), lookups[t]->distinct()}, s.shards());
    table.rows.Reserve(lookups[t]->distinct() * table.dim);
  }
  const uint8_t flags = (insert ? kPullInserts : 0) | (wants_dense ? kPullDense : 0);
  const uint64_t deadline = s.Deadline(s.options.timeout_ms);
  std::vector<std::pair<uint32_t, std::shared_ptr<Request>>> parts;
  for (uint32_t shard = 0; shard < s.shards(); ++shard) {
    const auto part =
        MakePart(s.options, shard, {flags, s.options.row_encoding, s.dense->version(shard)}, fetched, s.dense);
    part->deadline_ns = deadline;
    part->era = s.era;
    parts.emplace_back(shard, part);
  }
  s.io.Submit(std::move(parts));
  s.counters->pulls.fetch_add(1, std::memory_order_relaxed);
  return std::make_unique<ClientFetch>(fetched, s.dense);
}

}  // namespace elasticctr::ps
