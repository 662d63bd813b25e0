#include "ps/server/service.h"

#include "ps/server/refusal.h"
#include "ps/server/session.h"

namespace elasticctr::ps {
namespace {

net::TlsClientOptions CallingOptions(const ServiceOptions& options) {
  if (options.tls_ca.empty()) return {};
  return {options.tls_ca, options.net.tls.certificate, options.net.tls.key, options.tls_checks_host};
}

}  // namespace

Service::Service(const ServiceOptions& options)
    : options_(options),
      secret_(options.token),
      tls_(net::MakeTlsClient(CallingOptions(options))),
      is_primary_(!options.is_standby) {
  net::ServerOptions net = options.net;
  net.unix_send_room = kUnixSendRoom;
  // All trainers of a job may be on one machine.
  net.max_connections_per_address = net.max_connections;
  net.max_buffered_bytes_per_address = net.max_buffered_bytes;
  server_ = std::make_unique<net::Server>(net, this);
  replica_ = std::make_unique<Replica>(options.replica);
  shard_ = std::make_unique<Shard>(options.shard);
  shard_->SetObserver(replica_.get());
  control_ = std::make_unique<Control>();
}

Service::~Service() {
  server_->Stop(0);
  control_.reset();
  follower_.reset();
  shard_->SetObserver(nullptr);
}

void Service::Start() { server_->Start(); }

void Service::Stop(double drain_s) { server_->Stop(drain_s); }

std::unique_ptr<net::Session> Service::Open(net::Protocol protocol, net::ConnectionId id, int) {
  if (protocol != net::Protocol::kWire) return nullptr;
  return std::make_unique<Session>(this, id);
}

void Service::RequireServing() const {
  if (is_primary_.load(std::memory_order_relaxed) && is_ready_.load(std::memory_order_acquire)) return;
  throw Refusal(Code::kUnavailable, Detail::kNotPrimary,
                is_primary_ ? "this pserver is not loaded yet; ask the coordinator"
                            : "this pserver is a standby; ask the coordinator for the primary");
}

void Service::CheckIncarnation(uint64_t incarnation) {
  uint64_t latest = incarnation_.load();
  while (incarnation > latest && !incarnation_.compare_exchange_weak(latest, incarnation)) {
  }
  if (incarnation != 0 && incarnation < latest) {
    throw Refusal(Code::kFailedPrecondition, Detail::kOldIncarnation,
                  "an order of coordinator incarnation " + std::to_string(incarnation) + ", but incarnation " +
                      std::to_string(latest) + " has taken over; this coordinator should end");
  }
}

void Service::Load(const std::string& directory, uint64_t era) {
  is_ready_.store(false);
  replica_->Reset();
  {
    std::lock_guard lock(standby_mutex_);
    follower_.reset();
  }
  if (directory.empty()) {
    shard_->Reset(era);
  } else {
    shard_->Load(directory, era);
  }
  is_primary_.store(true);
  is_ready_.store(true);
}

std::string Service::stats() const {
  const ShardStats stats = shard_->GetStats();
  std::string out = "{";
  const auto add = [&](const char* name, uint64_t value) {
    if (out.size() > 1) out += ", ";
    out += std::string("\"") + name + "\": " + std::to_string(value);
  };
  const auto add_bool = [&](const char* name, bool value) {
    out += std::string(", \"") + name + "\": " + (value ? "true" : "false");
  };
  add("shard", options_.shard.shard);
  add("shards", options_.shard.shards);
  out += std::string(", \"role\": \"") + (is_primary_ ? "primary" : "standby") + "\"";
  add_bool("is_ready", is_ready_.load());
  add_bool("has_dense", stats.has_dense);
  add("step", stats.steps);
  add("dense_version", stats.dense_version);
  add("rows", stats.rows);
  add("pending", stats.pending);
  add("row_bytes", stats.row_bytes);
  add("table_bytes", stats.table_bytes);
  add("pulls", stats.pulls);
  add("pushes", stats.pushes);
  add("pulled_rows", stats.pulled_rows);
  add("pushed_rows", stats.pushed_rows);
  add("inserted", stats.inserted);
  add("applied_before", stats.applied_before);
  add("not_finite", stats.not_finite);
  add("late", stats.late);
  add("old_era", stats.old_era);
  add("era", shard_->era());
  add("waiting", stats.waiting);
  add("group", stats.group);
  add("rounds", stats.rounds);
  out += ", \"missing\": [";
  for (size_t i = 0; i < stats.missing.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(stats.missing[i]);
  out += "]";
  add("chunks", stats.chunks);
  add("connections", server_->connections());
  add("buffered_bytes", server_->budget().used());
  add("incarnation", incarnation_.load());
  AppendStandbyStats(&out);
  return out + "}";
}

}  // namespace elasticctr::ps
