#include "cube/client/cluster.h"

#include <random>

#include "cube/client/exchange.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr auto kProbeTime = std::chrono::milliseconds(500);

}  // namespace

Cluster::Cluster(ClientSettings settings)
    : settings_(std::move(settings)), next_id_((uint64_t{std::random_device{}()} << 32) + 1) {
  if (settings_.shards.empty() || settings_.shards.size() > 4096) {
    throw Error(Code::kConfig, "a cube has 1 to 4096 shards, not " + std::to_string(settings_.shards.size()));
  }
  if (settings_.timeout_ms == 0) throw Error(Code::kConfig, "timeout_ms must be at least 1");
  const std::shared_ptr<net::TlsClient> tls = net::MakeTlsClient(settings_.tls);
  bool out = false;
  for (uint32_t i = 0; i < settings_.shards.size(); ++i) {
    shards_.push_back(std::make_unique<ReplicaSet>(settings_.shards[i], i, settings_, tls));
    for (size_t k = 0; k < shards_[i]->size(); ++k) out |= shard(i)[k].is_ejected();
  }
  if (out) WakeProber();
}

Cluster::~Cluster() {
  std::thread prober;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    prober.swap(prober_);
  }
  wake_.notify_all();
  if (!prober.joinable()) return;
  if (prober_generation_ == net::ForkGeneration()) {
    prober.join();
  } else {
    prober.detach();
  }
}

void Cluster::WakeProber() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  if (stopping_) return;
  if (prober_.joinable() && prober_generation_ == net::ForkGeneration()) return wake_.notify_all();
  if (prober_.joinable()) prober_.detach();
  prober_generation_ = net::ForkGeneration();
  prober_ = std::thread([this] { Probe(); });
}

void Cluster::Probe() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    lock.unlock();
    const Clock::time_point next = ProbeDue();
    lock.lock();
    const auto ready = [this] { return stopping_ || woken_; };
    if (next == Clock::time_point::max()) {
      wake_.wait(lock, ready);
    } else {
      wake_.wait_until(lock, next, ready);
    }
  }
}

Clock::time_point Cluster::ProbeDue() {
  std::vector<Leg> pings;
  for (uint32_t i = 0; i < shards(); ++i) {
    for (size_t k = 0; k < shard(i).size(); ++k) {
      Replica& replica = shard(i)[k];
      if (!replica.is_ejected() || replica.probe_at() > Clock::now()) continue;
      replica.ResolveAgain();
      Leg ping;
      ping.opcode = net::wire::Opcode::kPing;
      ping.shard = i;
      ping.replica = static_cast<int>(k);
      pings.push_back(ping);
    }
  }
  Exchange exchange(*this);
  if (!pings.empty()) exchange.Run(pings, Clock::now() + kProbeTime);
  for (const Leg& ping : pings) {
    Replica& replica = shard(ping.shard)[static_cast<size_t>(ping.replica)];
    if (ping.answer == nullptr) {
      replica.ProbeFailed();
    } else {
      counters_.returns.fetch_add(1, std::memory_order_relaxed);
    }
  }
  auto next = Clock::time_point::max();
  for (uint32_t i = 0; i < shards(); ++i) {
    for (size_t k = 0; k < shard(i).size(); ++k) {
      if (shard(i)[k].is_ejected()) next = std::min(next, shard(i)[k].probe_at());
    }
  }
  return next;
}

}  // namespace elasticctr::cube
