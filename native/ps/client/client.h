// A trainer's side of all pservers of a job: rows of a batch fetched from every shard at once, gradients sent off the
// critical path, each feasign once per batch. A thread of its own handles the sockets.
//
// A connection that breaks is made again, with pauses, and whatever was not answered is sent again in the same order,
// also after SetAddress; pservers know a push by its (chunk, from, to). Pushes are kept until they are acknowledged or
// dropped; everything else ends with Unavailable or DeadlineExceeded after `timeout_ms`. Answers are checked byte by
// byte: the connection to a server that sends anything else is closed (Corruption). Errors name the pserver and its
// address.
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
  uint64_t trainer = 0;      // named in every push
  uint64_t incarnation = 0;  // of the coordinator, named in orders
  uint64_t era = 0;          // named in all other frames: SetEra
  std::string attach;        // JSON, docs/formats/ps-wire.md
  std::vector<TableShape> tables;
  std::vector<std::string> table_names;
  uint64_t dense_floats = 0;
  bool dense_on_first = false;
  Encoding row_encoding = Encoding::kFp32;
  Encoding gradient_encoding = Encoding::kFp32;        // of rows
  Encoding dense_gradient_encoding = Encoding::kFp32;  // not kInt8
  uint32_t timeout_ms = 30'000;  // of a request, reconnecting and waiting for a pserver that is not ready included
  net::TlsClientOptions tls;     // for host:port; a Unix socket is plain
};

// Rows on their way to, or here for, one batch. Lookups must outlive it. One thread's.
class Fetch {
 public:
  virtual ~Fetch() = default;
  // Whether all rows are here, or the request failed, within so many milliseconds.
  virtual bool Wait(uint32_t timeout_ms) = 0;
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

// How the connection to one pserver is.
struct LinkState {
  std::string address;
  bool is_ready = false;
  std::string trouble;  // why it is not, or why it was not the last time
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

  // Sends a batch's gradients: encoded and handed over before it returns, acknowledged later. `tables` are all tables
  // by number, or none. Pservers whose cursor for the chunk (SetCursors) is at `to` or past it get nothing; one whose
  // cursor stands between `from` and `to` is a kFailedPrecondition: merge no batches across a cursor. Empty `dense`:
  // none. A gradient that is not finite turns the push into PushKind::kNothing for every pserver. Returns the number of
  // the push, from 1 on.
  uint64_t Push(const PushHead& head, std::span<const GradientTable> tables, std::span<const float> dense);
  // As Push, of a batch whose gradients are summed per feasign first; one lookup, layout and list of arrays per table.
  uint64_t PushBatch(const PushHead& head, std::span<const Lookup* const> lookups,
                     std::span<const Layout* const> layouts, std::span<const std::vector<Target>> gradients,
                     const PushSamples& samples, std::span<const float> dense);
  // Waits until at most `outstanding` pushes are not acknowledged. Throws the first refusal (CursorError names the
  // chunk, EraError the era pservers are in) again and again until Drop; DeadlineExceeded leaves everything queued.
  void WaitPushes(size_t outstanding, uint32_t timeout_ms);
  // As WaitPushes, but false when the time is over.
  bool TryWaitPushes(size_t outstanding, uint32_t timeout_ms);
  size_t outstanding() const;

  // Of every pserver, per chunk: [shards][chunks].
  std::vector<std::vector<uint32_t>> Cursors(std::span<const uint64_t> chunks);
  // What was learned that way for the chunk a push is about to come from.
  void SetCursors(uint64_t chunk, std::span<const uint32_t> by_shard);
  // Drops pushes not acknowledged, refusals and cursors (after a rollback to a checkpoint they are of no more use), and
  // asks for all of the dense vector. A push already on the wire may still be applied; its pserver's cursor tells.
  void Drop();
  // What is asked and pushed from now on is of this era. Pservers that are in a later one refuse it (EraError), those
  // in an earlier one are waited for. Drop first: what is under way stays of the era it was begun in.
  void SetEra(uint64_t era);

  // Hangs up and continues with another address (the same: nothing but the incarnation changes).
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
