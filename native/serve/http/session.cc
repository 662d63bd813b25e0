#include "serve/http/session.h"

#include <strings.h>

#include <random>

#include "net/http/site.h"
#include "serve/http/status.h"
#include "util/gunzip.h"
#include "util/hash.h"

namespace elasticctr::serve {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kRepositoryIndex = "/v2/repository/index";  // KServe requests it by POST
constexpr size_t kHeadBytes = 16 * 1024;
constexpr size_t kControlBodyBytes = 1u << 20;
constexpr size_t kMaxIdBytes = 256;
constexpr uint32_t kOverloadedMs = 1000;
constexpr char kNotGzip[] =
    "the body is not gzip though its Content-Encoding says so; compress it, or send it without that header";

bool NamesGzip(const std::string& encoding) {
  return ::strcasecmp(encoding.c_str(), "gzip") == 0 || ::strcasecmp(encoding.c_str(), "x-gzip") == 0;
}
bool IsOpen(const std::string& path) { return path == "/healthz" || path == "/readyz"; }
bool IsNative(const std::string& path) { return IsOpen(path) || path == "/metrics"; }

}  // namespace

std::string MakeRequestId() {
  static const uint64_t seed = std::random_device()() ^ (static_cast<uint64_t>(std::random_device()()) << 32);
  static std::atomic<uint64_t> last{0};
  constexpr char kDigits[] = "0123456789abcdef";
  uint64_t number = Mix64(seed + last.fetch_add(1, std::memory_order_relaxed));
  std::string id(16, '0');
  for (char& digit : id) {
    digit = kDigits[number & 15];
    number >>= 4;
  }
  return id;
}

HttpSession::HttpSession(HttpContext* context, net::ConnectionId id, std::string peer)
    : context_(context),
      id_(id),
      peer_(std::move(peer)),
      reader_(net::HttpLimits{kHeadBytes, context->engine->options().limits.body_bytes}) {}

net::Step HttpSession::Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) {
  net::Step step;
  received_ns_ = received_ns;
  try {
    while (step.consumed < size) {
      step.consumed += reader_.Feed(reinterpret_cast<const char*>(data) + step.consumed, size - step.consumed);
      if (reader_.state() == net::HttpReader::State::kBad) {
        route_ = FindRoute(reader_.request().path);
        throw HttpError(reader_.bad_status(), Code::kData, reader_.bad_reason());
      }
      if (!reader_.head_done()) {
        if (step.consumed < size && data[step.consumed] != '\r' && data[step.consumed] != '\n') return step;
        continue;
      }
      if (!is_checked_) CheckHead(out);
      CheckBody();
      if (reader_.state() != net::HttpReader::State::kDone) continue;
      // Requests that arrived together with this one are answered too.
      is_last_ = !reader_.request().keep_alive || (step.consumed == size && context_->is_draining->load());
      bool later = Serve(out);
      StartNext();
      step.next = later ? net::Next::kWait : is_last_ ? net::Next::kClose : net::Next::kRead;
      if (step.next != net::Next::kRead) return step;
      if (out->size() >= net::kFlushBytes) {
        step.next = net::Next::kFlush;
        return step;
      }
    }
  } catch (const Error& error) {
    // The start of the next request is unknown or not worth waiting for.
    if (error.code() == Code::kData) context_->stats->malformed.fetch_add(1, std::memory_order_relaxed);
    is_last_ = true;
    Refuse(error, out);
    step.next = net::Next::kClose;
    return step;
  }
  step.in_request = reader_.in_request();
  return step;
}

void HttpSession::CheckHead(net::Buffer* out) {
  is_checked_ = true;
  const net::HttpRequest& request = reader_.request();
  route_ = FindRoute(request.path);  // first: refusals use the format of its protocol
  CheckAccess(request);
  is_gzip_ = route_.codec != nullptr && NamesGzip(request.content_encoding);
  if (!request.content_encoding.empty() && !is_gzip_) {
    const bool may_be = route_.codec != nullptr;
    throw HttpError(415, Code::kData,
                    may_be ? "a body may be compressed by gzip, once, and by nothing else"
                           : "bodies are not decompressed here; send them without Content-Encoding",
                    may_be ? "Accept-Encoding: gzip\r\n" : "Accept-Encoding: identity\r\n");
  }
  body_limit_ = route_.codec != nullptr ? context_->engine->options().limits.body_bytes : kControlBodyBytes;
  if (reader_.announced_bytes() > body_limit_) {
    throw TooLarge("the body is over " + std::to_string(body_limit_) + " bytes");
  }
  if (request.wants_continue && reader_.state() != net::HttpReader::State::kDone) {
    out->Append("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

void HttpSession::CheckAccess(const net::HttpRequest& request) {
  if (!context_->secret->is_set()) {
    if (auto refusal = net::CheckSite(request, context_->host)) {
      context_->stats->unauthorized.fetch_add(1, std::memory_order_relaxed);
      throw HttpError(refusal->status, Code::kUnauthorized, refusal->why);
    }
    return;
  }
  if (IsOpen(request.path)) return;
  std::string_view given = request.authorization;
  const TokenScope scope =
      given.starts_with(kBearer) ? context_->secret->ScopeOf(given.substr(kBearer.size())) : TokenScope::kNone;
  if (scope == TokenScope::kAdmin || (scope == TokenScope::kRead && IsReading(request))) return;
  context_->stats->unauthorized.fetch_add(1, std::memory_order_relaxed);
  if (scope == TokenScope::kRead) throw HttpError(403, Code::kUnauthorized, std::string(kReadOnly));
  throw Error(Code::kUnauthorized, "no or a wrong token; send 'Authorization: Bearer TOKEN'");
}

// Predictions and other requests that change nothing.
bool HttpSession::IsReading(const net::HttpRequest& request) const {
  return route_.codec != nullptr || request.method == "GET" || request.method == "HEAD" ||
         request.path == kRepositoryIndex;
}

void HttpSession::CheckBody() {
  size_t bytes = reader_.body_bytes();
  if (bytes > body_limit_) throw TooLarge("the body is over " + std::to_string(body_limit_) + " bytes");
  if (is_gzip_ && bytes >= 3 && !IsGzip(reader_.request().body)) {
    throw Error(Code::kData, kNotGzip);
  }
  if (charge_.account().all == nullptr) charge_ = net::Charge(account());
  charge_.Set(bytes);
  if (!account().HasRoomFor(0)) {
    context_->stats->overloaded.fetch_add(1, std::memory_order_relaxed);
    throw RetryLater("the server has no memory left for requests; try again", kOverloadedMs);
  }
}

bool HttpSession::Serve(net::Buffer* out) {
  const net::HttpRequest& request = reader_.request();
  bool is_read = request.method == "GET" || request.method == "HEAD";
  bool is_post = request.method == "POST";
  if (route_.codec != nullptr ? !is_post : IsNative(request.path) && !is_read) {
    HttpError error(405, Code::kConfig, request.path.substr(0, 200) + " does not take " + request.method,
                    route_.codec != nullptr ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n");
    Refuse(error, out);
    return false;
  }
  if (route_.codec != nullptr) {
    Submit();
    return true;
  }
  if (request.path == "/healthz") {
    Answer(200, "application/json", "{\"alive\":true}", out);
  } else if (request.path == "/readyz") {
    std::string why = context_->not_ready();
    if (why.empty()) {
      Answer(200, "application/json", "{\"ready\":true}", out);
    } else {
      Refuse(Error(Code::kUnavailable, why), out);
    }
  } else if (request.path == "/metrics") {
    Answer(200, "text/plain; version=0.0.4; charset=utf-8", context_->metrics(), out);
  } else {
    return AskPython(out);
  }
  return false;
}

void HttpSession::Submit() {
  net::HttpRequest http = reader_.TakeRequest();
  auto request = std::make_unique<Request>();
  request->codec = route_.codec;
  request->body = std::move(http.body);
  request->is_gzip = is_gzip_;
  request->model = std::move(route_.model);
  request->version = std::move(route_.version);
  request->id = http.request_id.empty() ? MakeRequestId() : std::move(http.request_id);
  if (request->id.size() > kMaxIdBytes) request->id.resize(kMaxIdBytes);
  request->content_type = std::move(http.content_type);
  request->binary_header = http.inference_header_length;
  request->received_ns = received_ns_;
  if (http.timeout_ms != 0) request->deadline_ns = received_ns_ + uint64_t{http.timeout_ms} * 1'000'000;
  request->keep_alive = !is_last_;
  request->peer = peer_;
  request->charge = std::move(charge_);  // a worker adds what it decompresses
  request->answer = [server = context_->server, id = id_, keep_alive = request->keep_alive](std::string bytes,
                                                                                            bool close) {
    server->Complete(id, std::move(bytes), close || !keep_alive);
  };
  context_->engine->Submit(std::move(request));
}

bool HttpSession::AskPython(net::Buffer* out) {
  const net::HttpRequest& request = reader_.request();
  ControlQueue::Asker asker;
  asker.connection = id_;
  asker.keep_alive = !is_last_;
  asker.head_only = request.method == "HEAD";
  if (context_->on_answered) {
    asker.answered = [this_context = context_, peer = peer_, method = request.method, path = request.path,
                      received_ns = received_ns_](int status) {
      this_context->on_answered(peer, method, path, status, received_ns);
    };
  }
  asker.charge = std::move(charge_);
  ControlRequest control;
  control.method = asker.head_only ? "GET" : request.method;
  control.path = request.path;
  control.query = request.query;
  control.authorization = request.authorization;
  control.body = request.body;
  if (context_->control->Post(std::move(control), std::move(asker))) return true;
  context_->stats->control_full.fetch_add(1, std::memory_order_relaxed);
  Refuse(Error(Code::kUnavailable, "too many requests of this kind wait; try again"), out);
  return false;
}

void HttpSession::Answer(int status, std::string_view type, std::string_view body, net::Buffer* out) {
  const net::HttpRequest& request = reader_.request();
  out->Append(net::HttpAnswer(status, type, body, !is_last_, {}, request.method == "HEAD"));
  if (context_->on_answered) context_->on_answered(peer_, request.method, request.path, status, received_ns_);
}

void HttpSession::Refuse(const Error& error, net::Buffer* out) {
  const net::HttpRequest& request = reader_.request();
  if (route_.codec != nullptr) {
    Request stub;
    stub.codec = route_.codec;
    stub.keep_alive = !is_last_;
    out->Append(route_.codec->FormatError(stub, nullptr, error));
  } else {
    out->Append(HttpErrorAnswer(error, !is_last_, request.method == "HEAD"));
  }
  if (context_->on_answered) {
    context_->on_answered(peer_, request.method, request.path, HttpStatusOf(error), received_ns_);
  }
}

void HttpSession::StartNext() {
  reader_.Reset();
  route_ = Route();
  charge_.Set(0);
  is_checked_ = false;
}

}  // namespace elasticctr::serve
