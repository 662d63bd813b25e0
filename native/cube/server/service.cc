#include "cube/server/service.h"

#include "net/socket.h"

namespace elasticctr::cube {

Service::Service(const ServiceOptions& options)
    : options_(options),
      secret_(options.token, options.read_token),
      store_(Store::Make(options.residence, options.check)),
      metrics_(options.net.threads),
      control_(Directory(options.data, options.shard, options.shards), store_.get(), options.activates_newest,
               [this] { server_->WakeAll(); }) {
  server_ = std::make_unique<net::Server>(options.net, this);
  facts_ = {&control_, &metrics_, server_.get(), net::NowNs()};
  wire_ = {&secret_, [this] { return StatusJson(facts_); }};
  resp_ = {&secret_, facts_.started_ns, server_->ports().empty() ? uint16_t{0} : server_->ports()[0]};
  http_.secret = &secret_;
  http_.host = options.net.host;
  http_.control = &control_;
  http_.facts = facts_;
  for (size_t i = 0; i < options.net.threads; ++i) {
    workers_.push_back(
        std::make_unique<Worker>(i, store_.get(), &metrics_, &server_->budget(), options.limits, &is_serving_));
  }
}

Service::~Service() {
  server_->Stop(0);
  control_.Stop();
}

void Service::Start() {
  server_->Start();
  control_.Start([this] {
    is_serving_.store(true, std::memory_order_release);
    server_->WakeAll();
  });
}

std::unique_ptr<net::Session> Service::Open(net::Protocol protocol, net::ConnectionId id, int) {
  Worker* worker = workers_[id.loop].get();
  switch (protocol) {
    case net::Protocol::kWire: return std::make_unique<WireSession>(worker, &wire_);
    case net::Protocol::kHttp:
      return std::make_unique<HttpSession>(worker, &http_, id,
                                           net::HttpLimits{16 * 1024, options_.limits.max_body_bytes});
    case net::Protocol::kResp: return std::make_unique<RespSession>(worker, &resp_, id.serial);
    case net::Protocol::kUndecided:
    case net::Protocol::kBrpc:
    case net::Protocol::kTls:
    case net::Protocol::kUnknown: break;
  }
  return nullptr;
}

}  // namespace elasticctr::cube
