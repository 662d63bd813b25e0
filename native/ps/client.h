// A trainer's side of all pservers of a job: rows of a batch fetched from every shard at once, gradients sent off the
// critical path, each feasign once per batch. One thread of its own does the sockets.
//
// A push that was not acknowledged is kept and sent again after a reconnect or SetAddress; pservers know it by its
// (chunk, from, to). Everything else fails with Unavailable and is asked again by the caller.
//
// Threads: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ps/frames.h"
#include "table/layout.h"
#include "table/lookup.h"
#include "table/table.h"

namespace elasticctr::ps {

struct ClientOptions {
  std::vector<std::string> addresses;  // host:port or unix:/path, by shard
  std::string token;
  uint64_t job = 0;
  std::string attach;  // JSON, docs/formats/ps-wire.md
  std::vector<TableShape> tables;
  std::vector<std::string> table_names;
  uint64_t dense_floats = 0;
  bool dense_on_first = false;
  Encoding row_encoding = Encoding::kFp32;
  Encoding gradient_encoding = Encoding::kFp32;
  uint32_t timeout_ms = 30'000;  // of a request, reconnecting included
};

// Rows on their way to, or here for, one batch. Lookups must outlive it.
class Fetch {
 public:
  virtual ~Fetch() = default;
  // Waits, then pools rows of table `t` into the arrays. Throws what the request ended with.
  virtual void Pool(size_t t, const Layout& layout, const std::vector<Target>& targets) = 0;
  // Rows of table `t` by the lookup's distinct feasigns, [distinct, dim].
  virtual std::span<const float> Rows(size_t t) = 0;
  virtual uint64_t dense_version() = 0;
  virtual uint64_t step() = 0;
};

// The gradients of a batch, summed per feasign and split by pserver, or of several batches merged.
struct PushHead {
  uint64_t chunk = 0;
  uint32_t from = 0, to = 0;
  uint32_t weight = 0;
  uint32_t now = 0;
  float rate_scale = 1.0f;
  PushKind kind = PushKind::kGradients;
  GroupMode group = GroupMode::kNone;
  bool wants_dense = false;
};

struct GradientTable {  // of one table: distinct feasigns, what they saw, and [count, dim] summed gradients or deltas
  std::span<const uint64_t> feasigns;
  std::span<const float> shows, clicks;
  std::span<const uint64_t> masks;  // empty: every segment
  std::span<const float> gradients;
};

struct ClientStats {
  uint64_t sent_bytes = 0, received_bytes = 0, pulls = 0, pushes = 0, resent = 0, reconnects = 0, applied_before = 0,
           not_finite = 0;
};

class Client {
 public:
  // Connects to every pserver and attaches. Throws Unavailable, Unauthorized, FailedPrecondition (another job or
  // build).
  explicit Client(const ClientOptions& options);
  ~Client();

  // Asks for the rows of a batch, one lookup per table; with `insert` once per training batch. Dense comes along when a
  // pserver has newer floats than this client.
  std::unique_ptr<Fetch> StartPull(std::span<const Lookup* const> lookups, bool insert, bool wants_dense);
  // The whole dense vector as last received; waits for nothing. Its version is the sum of the parts' versions.
  uint64_t CopyDense(std::span<float> out) const;
  uint64_t PullDense(std::span<float> out);      // asks for what is newer first
  bool SetDense(std::span<const float> values);  // false: some pserver had values already; they stay

  // Sends a batch's gradients: encoded and handed over before it returns, acknowledged later. Pservers whose cursor for
  // the chunk (SetCursors) is past `from` get nothing. Empty `dense`: none. A gradient that is not finite turns the
  // push into PushKind::kNothing for every pserver.
  uint64_t Push(const PushHead& head, std::span<const GradientTable> tables, std::span<const float> dense);
  // Waits until at most `outstanding` pushes are not acknowledged. Throws the first refusal: CursorError names the
  // chunk; Unavailable and DeadlineExceeded leave everything queued.
  void WaitPushes(size_t outstanding, uint32_t timeout_ms);
  size_t outstanding() const;

  // Of every pserver, per chunk: [shards][chunks].
  std::vector<std::vector<uint32_t>> Cursors(std::span<const uint64_t> chunks);
  // What was learned that way for the chunk a push is about to come from.
  void SetCursors(uint64_t chunk, std::span<const uint32_t> by_shard);
  // Drops pushes not acknowledged (after a rollback to a checkpoint they are of no more use).
  void Drop();

  void SetAddress(uint32_t shard, const std::string& address, uint64_t incarnation);
  std::string Control(uint32_t shard, const std::string& json, uint32_t timeout_ms);
  ClientStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace elasticctr::ps
