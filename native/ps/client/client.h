// A trainer's connection to all pservers of a job: fetches the rows of a batch from every shard at once and sends
// gradients off the critical path, each feasign once per batch. A thread of its own handles the sockets.
//
// A broken connection is reopened, with pauses, and all unanswered requests are sent again in the same order, also
// after SetAddress; pservers identify a push by its (chunk, from, to). Pushes are kept until they are acknowledged or
// dropped; all other requests fail with Unavailable or DeadlineExceeded after `timeout_ms`. Every byte of an answer is
// checked: an invalid one closes the connection (Corruption). Errors name the pserver and its address.
//
// Threads: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/tls.h"
#include "ps/shard/cursor_error.h"
#include "ps/shard/era_error.h"
#include "ps/wire/frames.h"
#include "table/layout.h"
#include "table/lookup.h"
#include "table/table.h"

namespace elasticctr::ps {

struct ClientOptions {
  std::vector<std::string> addresses;  // host:port or unix:/path, by shard
  std::string token;
  uint64_t job = 0;
  uint64_t trainer = 0;      // sent in every push
  uint64_t incarnation = 0;  // of the coordinator, sent in orders
  uint64_t era = 0;          // sent in all other frames: SetEra
  std::string attach;        // JSON, docs/formats/ps-wire.md
  std::vector<TableShape> tables;
  std::vector<std::string> table_names;
  uint64_t dense_floats = 0;
  bool dense_on_first = false;
  Encoding row_encoding = Encoding::kFp32;
  Encoding gradient_encoding = Encoding::kFp32;        // of rows
  Encoding dense_gradient_encoding = Encoding::kFp32;  // not kInt8
  uint32_t timeout_ms = 30'000;  // of a request, including reconnecting and waiting for a pserver that is not ready
  net::TlsClientOptions tls;     // for host:port; a Unix socket is plain
};

// Rows requested or received for one batch. Lookups must outlive it. Used by one thread.
class Fetch {
 public:
  virtual ~Fetch() = default;
  // Waits up to timeout_ms. True: all rows are here, or the request failed.
  virtual bool Wait(uint32_t timeout_ms) = 0;
  // Waits, then pools rows of table `t` into the arrays. Throws the error the request failed with.
  virtual void Pool(size_t t, const Layout& layout, const std::vector<Target>& targets) = 0;
  // Rows of table `t`, [distinct, dim], in the order of the lookup's distinct feasigns.
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

// The state of the connection to one pserver.
struct LinkState {
  std::string address;
  bool is_ready = false;
  std::string trouble;  // why it is not connected, or why it was not last time
};

class Client {
 public:
  // Connects to every pserver and attaches. Throws Unavailable, Unauthorized, FailedPrecondition (another job or
  // build).
  explicit Client(const ClientOptions& options);
  ~Client();

  // Requests the rows of a batch, one lookup per table; use `insert` once per training batch. Dense values are included
  // if a pserver has newer ones than this client.
  std::unique_ptr<Fetch> StartPull(std::span<const Lookup* const> lookups, bool insert, bool wants_dense);
  // Copies the whole dense vector as last received; does not wait. Returns the sum of the parts' versions.
  uint64_t CopyDense(std::span<float> out) const;
  uint64_t PullDense(std::span<float> out);      // requests newer values first
  bool SetDense(std::span<const float> values);  // false: some pserver had values already; they stay

  // Sends a batch's gradients: encoded and queued before it returns, acknowledged later. `tables` are all tables by
  // number, or none. Pservers whose cursor for the chunk (SetCursors) is at `to` or past it get nothing; a cursor
  // between `from` and `to` is a kFailedPrecondition: do not merge batches across a cursor. Empty `dense`: none. A
  // gradient that is not finite turns the push into PushKind::kNothing for every pserver. Returns the number of the
  // push, from 1 on.
  uint64_t Push(const PushHead& head, std::span<const GradientTable> tables, std::span<const float> dense);
  // As Push, but sums the gradients of a batch per feasign first; one lookup, layout and list of arrays per table.
  uint64_t PushBatch(const PushHead& head, std::span<const Lookup* const> lookups,
                     std::span<const Layout* const> layouts, std::span<const std::vector<Target>> gradients,
                     const PushSamples& samples, std::span<const float> dense);
  // Waits until at most `outstanding` pushes are unacknowledged. Throws the first refusal (CursorError names the chunk,
  // EraError the pservers' era) on every call until Drop; DeadlineExceeded leaves everything queued.
  void WaitPushes(size_t outstanding, uint32_t timeout_ms);
  // As WaitPushes, but returns false on timeout.
  bool TryWaitPushes(size_t outstanding, uint32_t timeout_ms);
  size_t outstanding() const;

  // The cursors of every pserver, per chunk: [shards][chunks].
  std::vector<std::vector<uint32_t>> Cursors(std::span<const uint64_t> chunks);
  // Sets the cursors (as returned by Cursors) of the chunk that the next pushes come from.
  void SetCursors(uint64_t chunk, std::span<const uint32_t> by_shard);
  // Drops unacknowledged pushes, refusals and cursors, which are useless after a rollback to a checkpoint, and requests
  // the whole dense vector next time. A push already sent may still be applied; its pserver's cursor tells.
  void Drop();
  // Later requests and pushes carry this era. Pservers in a later era refuse them (EraError); the client waits for
  // pservers in an earlier one. Call Drop first: requests in flight keep their era.
  void SetEra(uint64_t era);

  // Disconnects and continues with another address. With the same address only the incarnation changes.
  void SetAddress(uint32_t shard, const std::string& address, uint64_t incarnation);
  std::string Control(uint32_t shard, const std::string& json, uint32_t timeout_ms);
  ClientStats stats() const;
  std::vector<LinkState> links() const;
  uint32_t shards() const;

 private:
  struct State;
  uint64_t PushChecked(PushHead head, std::span<const GradientTable> tables, std::span<const float> dense,
                       bool is_finite);
  std::vector<uint32_t> Takers(const PushHead& head) const;

  std::unique_ptr<State> state_;
};

}  // namespace elasticctr::ps
