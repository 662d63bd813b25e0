#include "cube/client/replica.h"

#include <algorithm>
#include <random>
#include <utility>

#include "net/wire.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::cube {

Replica::Replica(std::string address, uint32_t shard, const ClientSettings& settings,
                 std::shared_ptr<net::TlsClient> tls)
    : address_(std::move(address)),
      shard_(shard),
      settings_(settings),
      tls_(std::move(tls)),
      max_keys_(net::wire::kUsualMaxKeys),
      out_ms_(settings.eject_ms) {
  net::CheckAddress(address_);
  try {
    target_ = net::Resolve(address_, true);
  } catch (const Error&) {
    // A name may become resolvable later: each probe of the replica resolves it again.
    Eject();
  }
}

std::unique_ptr<net::Connection> Replica::Take(bool fresh) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  std::unique_ptr<net::Connection> connection;
  net::SocketAddress target;
  {
    const std::lock_guard lock(mutex_);
    while (!fresh && connection == nullptr && !idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->generation() != net::ForkGeneration()) connection.reset();
    }
    target = target_;
  }
  if (connection == nullptr) {
    connection = std::make_unique<net::Connection>(target, tls_.get(), net::HostOf(address_));
    connections_.fetch_add(1, std::memory_order_relaxed);
  }
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  return connection;
}

void Replica::Give(std::unique_ptr<net::Connection> connection) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (idle_.size() < settings_.idle_connections) idle_.push_back(std::move(connection));
}

void Replica::Drop(std::unique_ptr<net::Connection> connection) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  connection.reset();
}

void Replica::CloseIdle() {
  std::vector<std::unique_ptr<net::Connection>> closing;
  const std::lock_guard lock(mutex_);
  closing.swap(idle_);
}

void Replica::RecordSuccess() {
  if (consecutive_.load(std::memory_order_relaxed) == 0 && !is_ejected()) return;
  const std::lock_guard lock(mutex_);
  consecutive_ = 0;
  if (ejected_.exchange(false)) returned_at_ = Clock::now();
}

bool Replica::RecordFailure() {
  failures_.fetch_add(1, std::memory_order_relaxed);
  if (consecutive_.fetch_add(1) + 1 < settings_.eject_after || is_ejected()) return false;
  const std::lock_guard lock(mutex_);
  if (is_ejected()) return false;
  // A replica that is ejected again soon after its return stays out longer.
  const bool again = ejections_ > 0 && Clock::now() - returned_at_ < std::chrono::milliseconds(10 * out_ms_);
  out_ms_ = again ? std::min(out_ms_ * 2, settings_.eject_max_ms) : settings_.eject_ms;
  Eject();
  idle_.clear();
  return true;
}

void Replica::Eject() {
  ejected_ = true;
  ejections_.fetch_add(1, std::memory_order_relaxed);
  probe_at_ = Clock::now() + std::chrono::milliseconds(out_ms_);
}

Clock::time_point Replica::probe_at() const {
  const std::lock_guard lock(mutex_);
  return probe_at_;
}

void Replica::ProbeFailed() {
  const std::lock_guard lock(mutex_);
  out_ms_ = std::min(out_ms_ * 2, settings_.eject_max_ms);
  probe_at_ = Clock::now() + std::chrono::milliseconds(out_ms_);
}

void Replica::ResolveAgain() {
  try {
    const net::SocketAddress target = net::Resolve(address_, true);
    const std::lock_guard lock(mutex_);
    target_ = target;
  } catch (const Error&) {
    // The old address, if any, is used.
  }
}

uint64_t Replica::NoteActive(size_t model, uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (active_.size() <= model) active_.resize(model + 1);
  return std::exchange(active_[model], version);
}

void Replica::SetLimits(uint64_t max_body, uint64_t max_keys) {
  max_keys_ = std::max<uint64_t>(1, std::min<uint64_t>({net::wire::kMaxKeys, max_body / 8, max_keys}));
}

ReplicaStats Replica::stats() const {
  return {address_, shard_, is_ejected(), in_flight(), requests_, failures_, ejections_, connections_};
}

ReplicaSet::ReplicaSet(const std::vector<std::string>& addresses, uint32_t shard, const ClientSettings& settings,
                       const std::shared_ptr<net::TlsClient>& tls)
    : balance_(settings.balance), next_(std::random_device{}()) {
  if (addresses.empty() || addresses.size() > 64) {
    throw Error(Code::kConfig, "shard " + std::to_string(shard) + " has " + std::to_string(addresses.size()) +
                                   " replicas; expected 1 to 64");
  }
  for (const std::string& address : addresses) {
    replicas_.push_back(std::make_unique<Replica>(address, shard, settings, tls));
  }
}

int ReplicaSet::Pick(uint64_t tried, bool desperate) const {
  // Only the first choice of a lookup advances the turn: with two replicas, advancing it for second choices too would
  // make every lookup start at the same replica.
  const uint32_t turn =
      tried == 0 ? next_.fetch_add(1, std::memory_order_relaxed) : next_.load(std::memory_order_relaxed);
  const size_t start = (balance_ == Balance::kRandom ? Mix64(turn) : turn) % replicas_.size();
  const int healthy = Pick(tried, false, start);
  return healthy >= 0 || !desperate ? healthy : Pick(tried, true, start);
}

int ReplicaSet::Pick(uint64_t tried, bool ejected, size_t start) const {
  int best = -1;
  for (size_t k = 0; k < replicas_.size(); ++k) {
    const size_t i = (start + k) % replicas_.size();
    if ((tried >> i & 1) != 0 || replicas_[i]->is_ejected() != ejected) continue;
    if (balance_ != Balance::kLeastLoaded) return static_cast<int>(i);
    if (best < 0 || replicas_[i]->in_flight() < replicas_[static_cast<size_t>(best)]->in_flight()) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

}  // namespace elasticctr::cube
