#include "serve/service.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "net/socket.h"
#include "serve/http/metrics_text.h"
#include "serve/request_log/observer.h"

namespace elasticctr::serve {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr uint32_t kOverloadPauseUs = 1000;

std::shared_ptr<VariantStats> FindStats(const Models& models, const std::string& name, const Variant& wanted) {
  for (const Model& model : models.all()) {
    if (model.name != name) continue;
    for (const Variant& variant : model.variants) {
      if (variant.name == wanted.name && variant.version->version() == wanted.version->version()) return variant.stats;
    }
  }
  return nullptr;
}

}  // namespace

Service::Service(const ServiceOptions& options)
    : options_(options),
      secret_(options.token, options.read_token),
      started_ns_(net::NowNs()),
      refusals_seen_(std::max<size_t>(options.net.threads, 1)),
      server_(std::make_unique<net::Server>(options.net, this)),
      engine_(options.engine),
      control_(options.control, [this](net::ConnectionId id, std::string bytes, bool close) {
        server_->Complete(id, std::move(bytes), close);
      }) {
  http_.engine = &engine_;
  http_.server = server_.get();
  http_.control = &control_;
  http_.secret = &secret_;
  http_.host = options.net.host;
  http_.stats = &session_stats_;
  http_.is_draining = &is_draining_;
  http_.not_ready = [this] { return NotReady(); };
  http_.metrics = [this] { return MetricsText(); };
  brpc_.engine = &engine_;
  brpc_.secret = &secret_;
  brpc_.complete = [this](net::ConnectionId id, std::string answer, bool close) {
    server_->Complete(id, std::move(answer), close);
  };
  engine_.OnFinished([this](const Finished& finished) { protocol_stats_.Add(finished); });
  if (!options.access_log.path.empty()) {
    access_log_ = std::make_unique<AccessLog>(options.access_log);
    engine_.OnFinished([this](const Finished& finished) { access_log_->Add(finished); });
    http_.on_answered = [this](const std::string& peer, const std::string& method, const std::string& path, int status,
                               uint64_t received_ns) {
      access_log_->Add(peer, method, path, status, net::NowNs() - received_ns);
    };
  }
  if (!options.request_log.directory.empty()) {
    request_log_ = std::make_unique<RequestLog>(options.request_log);
    engine_.OnFinished([this](const Finished& finished) { LogFinished(finished, request_log_.get()); });
  }
}

Service::~Service() { Stop(0); }

void Service::Start() { server_->Start(); }

void Service::Stop(double drain_s) {
  if (stopped_.exchange(true)) return;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(drain_s));
  is_draining_.store(true);
  // A client that sends another request meanwhile is answered and told to close; silent ones are disconnected
  // afterwards.
  const auto polite = Clock::now() + std::min(until - Clock::now(), Clock::duration(std::chrono::seconds(1))) / 2;
  while (server_->connections() != 0 && Clock::now() < polite) std::this_thread::sleep_for(kPoll);
  auto left_s = [&] { return std::max(0.0, std::chrono::duration<double>(until - Clock::now()).count()); };
  server_->Stop(left_s());
  engine_.Stop(left_s());
  control_.Stop();
  if (request_log_ != nullptr) request_log_->Stop();
  if (access_log_ != nullptr) access_log_->Stop();
}

void Service::SetModels(std::vector<Model> models) {
  std::lock_guard lock(models_mutex_);
  for (Model& model : models) {
    for (Variant& variant : model.variants) {
      if (variant.stats == nullptr) variant.stats = FindStats(*engine_.models(), model.name, variant);
      if (variant.stats == nullptr) variant.stats = std::make_shared<VariantStats>();
    }
  }
  engine_.SetModels(std::make_shared<const Models>(std::move(models)));
}

void Service::SetExtraMetrics(std::string text) {
  std::lock_guard lock(mutex_);
  extra_metrics_ = std::move(text);
}

void Service::SetReady(bool is_ready, std::string why) {
  std::lock_guard lock(mutex_);
  not_ready_ = is_ready ? "" : why.empty() ? "not ready" : std::move(why);
}

uint32_t Service::pause_us(size_t loop) {
  const uint64_t refused = engine_.stats().refused_full.load(std::memory_order_relaxed);
  return std::exchange(refusals_seen_[loop], refused) == refused ? 0 : kOverloadPauseUs;
}

std::string Service::NotReady() const {
  if (is_draining_.load()) return "the server is stopping";
  std::lock_guard lock(mutex_);
  return not_ready_;
}

std::string Service::Call(std::unique_ptr<Request> request, uint32_t timeout_ms) {
  auto answered = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = answered->get_future();
  request->received_ns = net::NowNs();
  if (timeout_ms != 0) request->deadline_ns = request->received_ns + uint64_t{timeout_ms} * 1'000'000;
  if (request->id.empty()) request->id = MakeRequestId();
  request->answer = [answered](std::string bytes, bool) { answered->set_value(std::move(bytes)); };
  engine_.Submit(std::move(request));
  return answer.get();
}

std::string Service::MetricsText() const {
  std::string text = serve::MetricsText(
      {engine_, *server_, session_stats_, protocol_stats_, control_, started_ns_, NotReady().empty()});
  if (access_log_ != nullptr) text += access_log_->Metrics();
  if (request_log_ != nullptr) text += request_log_->Metrics();
  std::lock_guard lock(mutex_);
  return text + extra_metrics_;
}

std::unique_ptr<net::Session> Service::Open(net::Protocol protocol, net::ConnectionId id, int fd) {
  // Text with an unknown method is also answered in HTTP.
  if (protocol == net::Protocol::kHttp || protocol == net::Protocol::kResp)
    return std::make_unique<HttpSession>(&http_, id, net::PeerOf(fd));
  if (protocol == net::Protocol::kBrpc) return std::make_unique<BrpcSession>(&brpc_, id, net::PeerOf(fd));
  return nullptr;
}

}  // namespace elasticctr::serve
