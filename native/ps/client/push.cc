// Client::Push: writes the gradients of a batch into one frame per pserver and passes them to the IO thread.

#include <algorithm>
#include <cstring>

#include "ps/client/split.h"
#include "ps/client/state.h"
#include "ps/client/sums.h"
#include "table/remote.h"
#include "util/coding.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint32_t kGroupPatienceMs = 120'000;
constexpr size_t kEncodeRows = 64;  // at a time

class PushPart : public Request {
 public:
  PushPart(uint32_t shard, const PushHead& head, size_t body_bytes, std::shared_ptr<PushBook::Ticket> ticket,
           std::shared_ptr<PushBook> book, std::shared_ptr<DenseStore> dense, std::shared_ptr<ClientCounters> counters)
      : Request(Opcode::kPush, body_bytes),
        shard_(shard),
        chunk_(head.chunk),
        waits_(head.group != GroupMode::kNone),
        ticket_(std::move(ticket)),
        book_(std::move(book)),
        dense_(std::move(dense)),
        counters_(std::move(counters)) {}

  void Place(const net::wire::Header& header, std::vector<iovec>* places) override {
    const size_t dense_bytes = dense_->floats(shard_) * sizeof(float);
    has_dense_ = dense_bytes > 0 && header.body_bytes == sizeof head_ + dense_bytes;
    if (!has_dense_ && header.body_bytes != sizeof head_) {
      throw Error(Code::kCorruption, "an answer to a push of " + std::to_string(header.body_bytes) + " bytes");
    }
    places->push_back({head_, sizeof head_});
    if (!has_dense_) return;
    if (floats_.data() == nullptr) floats_ = dense_->Take(shard_);
    places->push_back({floats_.data(), dense_bytes});
  }

  void OnAnswer(const net::wire::Header&) override {
    if (head_[0] > static_cast<uint8_t>(PushOutcome::kNotFinite) ||
        DecodeFixed32(head_ + 24) != (has_dense_ ? dense_->floats(shard_) : 0)) {
      throw Error(Code::kCorruption, "an answer to a push that contradicts itself");
    }
    if (has_dense_) dense_->Set(shard_, DecodeFixed64(head_ + 16), std::move(floats_));
    const auto outcome = static_cast<PushOutcome>(head_[0]);
    if (outcome == PushOutcome::kBefore) counters_->applied_before.fetch_add(1, std::memory_order_relaxed);
    if (outcome == PushOutcome::kNotFinite) counters_->not_finite.fetch_add(1, std::memory_order_relaxed);
    book_->Acknowledge(*ticket_);
  }

  void OnError(Failure failure) override { book_->Fail(*ticket_, std::move(failure)); }

  Failure ToFailure(const net::wire::Header& header, std::string message) const override {
    if (header.detail != static_cast<uint16_t>(Detail::kCursor)) return Request::ToFailure(header, std::move(message));
    return {Code::kFailedPrecondition, std::move(message), chunk_, shard_, static_cast<uint32_t>(header.version)};
  }

  uint64_t generation() const override { return ticket_->generation; }
  uint32_t patience_ms() const override { return waits_ ? kGroupPatienceMs : 0; }

 private:
  const uint32_t shard_;
  const uint64_t chunk_;
  const bool waits_;
  const std::shared_ptr<PushBook::Ticket> ticket_;
  const std::shared_ptr<PushBook> book_;
  const std::shared_ptr<DenseStore> dense_;
  const std::shared_ptr<ClientCounters> counters_;
  uint8_t head_[kPushAnswerHead];
  bool has_dense_ = false;
  Buffer<float> floats_;
};

// The data for all pservers, and how it is split.
struct Outgoing {
  const ClientOptions& options;
  PushHead head;
  std::span<const GradientTable> tables;
  std::span<const float> dense;
  std::vector<Split> splits;
  bool has_masks = false;

  Encoding encoding() const { return options.gradient_encoding; }
  Encoding dense_encoding() const { return options.dense_gradient_encoding; }
  size_t row_bytes(size_t t) const { return EncodedBytes(encoding(), options.tables[t].dim); }
};

size_t BodyBytes(const Outgoing& push, uint32_t shard, size_t dense_floats) {
  size_t bytes = kPushHead + EncodedBytes(push.dense_encoding(), dense_floats);
  const size_t fixed = sizeof(uint64_t) + 2 * sizeof(float) + (push.has_masks ? sizeof(uint64_t) : 0);
  for (size_t t = 0; t < push.tables.size(); ++t) {
    const size_t count = push.splits[t].count(shard);
    if (count > 0) bytes += 8 + count * (fixed + push.row_bytes(t));
  }
  return bytes;
}

uint8_t* WriteHead(const Outgoing& push, uint32_t shard, uint32_t dense_floats, uint8_t* out) {
  const PushHead& head = push.head;
  uint16_t tables = 0;
  for (const Split& split : push.splits) tables += split.count(shard) > 0;
  EncodeFixed64(out, push.options.trainer);
  EncodeFixed64(out + 8, head.chunk);
  EncodeFixed32(out + 16, head.from);
  EncodeFixed32(out + 20, head.to);
  EncodeFixed32(out + 24, head.weight);
  EncodeFixed32(out + 28, head.now);
  std::memcpy(out + 32, &head.rate_scale, sizeof head.rate_scale);
  out[36] = static_cast<uint8_t>(head.kind);
  out[37] = static_cast<uint8_t>(head.group);
  out[38] = static_cast<uint8_t>(push.encoding());
  out[39] = (head.wants_dense ? kPushWantsDense : 0) | (push.has_masks ? kPushMasks : 0);
  std::memcpy(out + 40, &tables, sizeof tables);
  out[42] = static_cast<uint8_t>(push.dense_encoding());
  out[43] = 0;
  EncodeFixed32(out + 44, dense_floats);
  out += kPushHead;
  for (size_t t = 0; t < push.splits.size(); ++t) {
    if (push.splits[t].count(shard) == 0) continue;
    EncodeFixed32(out, static_cast<uint32_t>(t));
    EncodeFixed32(out + 4, static_cast<uint32_t>(push.splits[t].count(shard)));
    out += 8;
  }
  return out;
}

uint8_t* WriteRows(const Outgoing& push, size_t t, uint32_t shard, uint8_t* out) {
  const Split& split = push.splits[t];
  const size_t dim = push.options.tables[t].dim;
  const float* const gradients = push.tables[t].gradients.data();
  if (push.encoding() == Encoding::kFp32) return split.Gather(shard, gradients, dim, out);
  const size_t count = split.count(shard);
  if (split.order() == nullptr) {
    EncodeRows(push.encoding(), gradients, count, dim, out);
    return out + count * push.row_bytes(t);
  }
  std::vector<float> block(kEncodeRows * dim);
  for (size_t begin = 0; begin < count; begin += kEncodeRows) {
    const size_t rows = std::min(kEncodeRows, count - begin);
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(block.data() + i * dim, gradients + split.order()[split.start(shard) + begin + i] * dim,
                  dim * sizeof(float));
    }
    EncodeRows(push.encoding(), block.data(), rows, dim, out);
    out += rows * push.row_bytes(t);
  }
  return out;
}

void WriteBody(const Outgoing& push, uint32_t shard, std::span<const float> dense, uint8_t* out) {
  out = WriteHead(push, shard, static_cast<uint32_t>(dense.size()), out);
  for (size_t t = 0; t < push.tables.size(); ++t) {
    const GradientTable& table = push.tables[t];
    const Split& split = push.splits[t];
    if (split.count(shard) == 0) continue;
    out = split.Gather(shard, table.feasigns.data(), 1, out);
    out = split.Gather(shard, table.shows.data(), 1, out);
    out = split.Gather(shard, table.clicks.data(), 1, out);
    if (push.has_masks && table.masks.empty()) {
      std::memset(out, 0xFF, split.count(shard) * sizeof(uint64_t));
      out += split.count(shard) * sizeof(uint64_t);
    } else if (push.has_masks) {
      out = split.Gather(shard, table.masks.data(), 1, out);
    }
    out = WriteRows(push, t, shard, out);
  }
  if (!dense.empty()) EncodeRows(push.dense_encoding(), dense.data(), 1, dense.size(), out);
}

Outgoing MakeOutgoing(const ClientOptions& options, uint32_t shards, const PushHead& head,
                      std::span<const GradientTable> tables, std::span<const float> dense) {
  Outgoing push{options, head, {}, {}, {}, false};
  if (head.kind > PushKind::kDeltas) return push;
  push.tables = tables;
  push.dense = dense;
  push.splits.resize(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    push.splits[t].Make(tables[t].feasigns, shards);
    push.has_masks |= !tables[t].masks.empty();
  }
  return push;
}

}  // namespace

uint64_t Client::Push(const PushHead& head, std::span<const GradientTable> tables, std::span<const float> dense) {
  const bool has_rows = head.kind <= PushKind::kDeltas;
  for (size_t t = 0; has_rows && t < std::min(tables.size(), state_->options.tables.size()); ++t) {
    CheckTable(tables[t], state_->options.tables[t].dim);
  }
  return PushChecked(head, tables, dense, !has_rows || IsFinite(tables));
}

uint64_t Client::PushBatch(const PushHead& head, std::span<const Lookup* const> lookups,
                           std::span<const Layout* const> layouts, std::span<const std::vector<Target>> gradients,
                           const PushSamples& samples, std::span<const float> dense) {
  std::vector<uint32_t> dims;
  for (const TableShape& table : state_->options.tables) dims.push_back(table.dim);
  bool is_finite = true;
  const auto tables = SumAll(lookups, layouts, gradients, samples, dims, &is_finite);
  return PushChecked(head, tables, dense, is_finite);
}

uint64_t Client::PushChecked(PushHead head, std::span<const GradientTable> tables, std::span<const float> dense,
                             bool is_finite) {
  State& s = *state_;
  if (!tables.empty()) s.CheckTables(tables.size());
  if (!dense.empty() && dense.size() != s.options.dense_floats) {
    throw Error(Code::kFailedPrecondition, "the dense vector has " + std::to_string(s.options.dense_floats) +
                                               " floats, the gradient " + std::to_string(dense.size()));
  }
  if (head.kind <= PushKind::kDeltas && !(is_finite && AllFinite(dense.data(), dense.size()))) {
    head.kind = PushKind::kNothing;
    s.counters->not_finite.fetch_add(1, std::memory_order_relaxed);
  }
  Outgoing push = MakeOutgoing(s.options, s.shards(), head, tables, dense);
  // Each member's pushes reach every pserver of a group, as empty ones if the batches are applied already: a pserver
  // that waits for a member must get its push in every step, or members would wait for each other on different
  // pservers.
  const std::vector<uint32_t> takers = Takers(head);
  const bool is_grouped = head.group != GroupMode::kNone;
  const auto ticket = s.book->Open(is_grouped ? s.shards() : takers.size());
  PushHead empty = head;
  empty.kind = PushKind::kEmpty;
  empty.chunk = ticket->number;
  empty.from = empty.to = empty.weight = 0;
  if (head.kind == PushKind::kEmpty) push.head = empty;
  const Outgoing nothing{s.options, empty, {}, {}, {}, false};
  std::vector<std::pair<uint32_t, std::shared_ptr<Request>>> parts;
  auto taker = takers.begin();  // by shard
  for (uint32_t shard = 0; shard < s.shards(); ++shard) {
    if (taker != takers.end() && *taker == shard) {
      ++taker;
    } else {
      if (!is_grouped) continue;
      const auto part =
          std::make_shared<PushPart>(shard, empty, BodyBytes(nothing, shard, 0), ticket, s.book, s.dense, s.counters);
      WriteBody(nothing, shard, {}, part->body());
      part->era = s.era;
      parts.emplace_back(shard, part);
      continue;
    }
    const Share& share = s.dense->share(shard);
    const auto part_of_dense =
        push.dense.empty() ? push.dense : push.dense.subspan(share.first_float, s.dense->floats(shard));
    const auto part = std::make_shared<PushPart>(shard, head, BodyBytes(push, shard, part_of_dense.size()), ticket,
                                                 s.book, s.dense, s.counters);
    WriteBody(push, shard, part_of_dense, part->body());
    part->era = s.era;
    parts.emplace_back(shard, part);
  }
  s.io.Submit(std::move(parts));
  s.counters->pushes.fetch_add(1, std::memory_order_relaxed);
  return ticket->number;
}

// The pservers that have not applied these batches yet.
std::vector<uint32_t> Client::Takers(const PushHead& head) const {
  std::vector<uint32_t> takers;
  std::lock_guard lock(state_->cursors_mutex);
  const auto known = state_->cursors.find(head.chunk);
  for (uint32_t shard = 0; shard < state_->shards(); ++shard) {
    const uint32_t cursor = known == state_->cursors.end() || head.kind == PushKind::kEmpty ? 0 : known->second[shard];
    if (cursor <= head.from) {
      takers.push_back(shard);
    } else if (cursor < head.to) {
      throw Error(Code::kFailedPrecondition, "a push of batches " + std::to_string(head.from) + " to " +
                                                 std::to_string(head.to) + " of chunk " + std::to_string(head.chunk) +
                                                 " spans the cursor of pserver " + std::to_string(shard) + " (" +
                                                 std::to_string(cursor) + "); merge only up to it");
    }
  }
  return takers;
}

void Client::WaitPushes(size_t outstanding, uint32_t timeout_ms) {
  if (state_->book->Wait(outstanding, timeout_ms)) return;
  throw Error(Code::kDeadlineExceeded, std::to_string(state_->book->outstanding()) + " pushes were not acknowledged " +
                                           "in time; they stay queued (" + state_->Trouble() + ")");
}

bool Client::TryWaitPushes(size_t outstanding, uint32_t timeout_ms) {
  return state_->book->Wait(outstanding, timeout_ms);
}

size_t Client::outstanding() const { return state_->book->outstanding(); }

}  // namespace elasticctr::ps
