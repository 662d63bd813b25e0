#include "cube/server/http.h"

#include <algorithm>
#include <memory>

#include "net/http/site.h"
#include "util/json_object.h"
#include "util/json_text.h"
#include "util/status_table.h"

namespace elasticctr::cube {

namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr char kNoMemory[] = "too many bytes of requests and answers wait; try again";
constexpr size_t kLargeBodyBytes = 16u << 10;
constexpr size_t kControlBodyBytes = 1u << 20;  // of requests other than lookups

std::string Render(const HttpReply& reply, bool keep_alive, bool head_only) {
  std::string_view extra = reply.status == 503   ? "Retry-After: 1\r\n"
                           : reply.status == 401 ? "WWW-Authenticate: Bearer\r\n"
                                                 : "";
  return net::HttpAnswer(reply.status, reply.type, reply.body, keep_alive, extra, head_only);
}

// Paths that a read token does not permit.
bool IsCommand(const std::string& path) {
  return path == "/v1/load" || path == "/v1/activate" || path == "/v1/retire" || path == "/ControlService/cmd";
}

bool IsPost(const std::string& path) { return IsCommand(path) || path == "/DictService/seek"; }

bool IsGet(const std::string& path) {
  return path == "/healthz" || path == "/readyz" || path == "/v1/status" || path == "/metrics";
}

}  // namespace

HttpReply ErrorReply(Code code, std::string_view message) { return {StatusOf(code).http, ErrorJson(code, message)}; }

net::Step HttpSession::Consume(const uint8_t* data, size_t size, uint64_t, net::Buffer* out) {
  net::Step step;
  while (step.consumed < size || is_waiting_its_turn_) {
    if (!is_waiting_its_turn_)
      step.consumed += reader_.Feed(reinterpret_cast<const char*>(data) + step.consumed, size - step.consumed);
    if (reader_.state() == net::HttpReader::State::kBad) {
      worker_->cells().malformed.Add(1);
      HttpReply reply = ErrorReply(Code::kData, reader_.bad_reason());
      reply.status = reader_.bad_status();
      out->Append(Render(reply, false, false));
      step.next = net::Next::kClose;
      return step;
    }
    if (!reader_.head_done()) {
      if (step.consumed < size && data[step.consumed] != '\r' && data[step.consumed] != '\n') return step;
      continue;
    }
    if (!is_checked_ && !CheckHead(out)) {
      step.next = net::Next::kClose;
      return step;
    }
    if (!CheckBody(out)) {
      step.next = net::Next::kClose;
      return step;
    }
    if (reader_.state() != net::HttpReader::State::kDone) continue;
    if (!is_waiting_its_turn_ && reader_.body_bytes() > kLargeBodyBytes) {
      is_waiting_its_turn_ = step.is_large = true;
      step.next = net::Next::kFlush;
      return step;
    }
    is_waiting_its_turn_ = false;
    bool later = Serve(out);
    bool keep_alive = reader_.request().keep_alive;
    reader_.Reset();
    charge_.Set(0);
    is_checked_ = false;
    step.next = later ? net::Next::kWait : keep_alive ? net::Next::kRead : net::Next::kClose;
    if (step.next != net::Next::kRead) return step;
    if (out->size() >= net::kFlushBytes) {
      step.next = net::Next::kFlush;
      return step;
    }
  }
  step.in_request = reader_.in_request();
  step.is_large = reader_.body_bytes() + reader_.announced_bytes() > kLargeBodyBytes;
  return step;
}

// Refuses by the head, before the body arrives.
bool HttpSession::CheckHead(net::Buffer* out) {
  is_checked_ = true;
  const net::HttpRequest& request = reader_.request();
  if (auto refusal = CheckAccess(request)) {
    worker_->cells().unauthorized.Add(1);
    out->Append(Render(*refusal, false, false));
    return false;
  }
  const bool is_lookup = request.path == "/DictService/seek";
  body_limit_ = is_lookup ? worker_->limits().max_body_bytes
                          : std::min<size_t>(kControlBodyBytes, worker_->limits().max_body_bytes);
  if (!CheckBody(out)) return false;
  if (request.wants_continue && reader_.state() != net::HttpReader::State::kDone)
    out->Append("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

std::optional<HttpReply> HttpSession::CheckAccess(const net::HttpRequest& request) const {
  if (!context_->secret->is_set()) {
    auto refusal = net::CheckSite(request, context_->host);
    if (!refusal) return std::nullopt;
    HttpReply reply = ErrorReply(Code::kUnauthorized, refusal->why);
    reply.status = refusal->status;
    return reply;
  }
  if (request.path == "/healthz" || request.path == "/readyz") return std::nullopt;
  std::string_view given = request.authorization;
  const TokenScope scope =
      given.starts_with(kBearer) ? context_->secret->ScopeOf(given.substr(kBearer.size())) : TokenScope::kNone;
  if (scope == TokenScope::kAdmin || (scope == TokenScope::kRead && !IsCommand(request.path))) return std::nullopt;
  if (scope == TokenScope::kNone)
    return ErrorReply(Code::kUnauthorized, "no or a wrong token; send 'Authorization: Bearer TOKEN'");
  HttpReply reply = ErrorReply(Code::kUnauthorized, kReadOnly);
  reply.status = 403;
  return reply;
}

bool HttpSession::CheckBody(net::Buffer* out) {
  const size_t bytes = reader_.body_bytes();
  if (bytes + reader_.announced_bytes() > body_limit_) {
    HttpReply reply = ErrorReply(Code::kData, "the body is over " + std::to_string(body_limit_) + " bytes");
    reply.status = 413;
    out->Append(Render(reply, false, false));
    return false;
  }
  if (bytes != charge_.bytes()) {
    if (charge_.bytes() == 0) charge_ = net::Charge(account());
    charge_.Set(bytes);
    if (!account().HasRoomFor(0)) {
      out->Append(Render(ErrorReply(Code::kUnavailable, kNoMemory), false, false));
      return false;
    }
  }
  return true;
}

bool HttpSession::Serve(net::Buffer* out) {
  const net::HttpRequest& request = reader_.request();
  const std::string& path = request.path;
  bool is_read = request.method == "GET" || request.method == "HEAD";
  HttpReply reply;
  if ((is_read && IsPost(path)) || (!is_read && IsGet(path)) || (!is_read && request.method != "POST")) {
    reply = ErrorReply(Code::kConfig, path + " does not take " + request.method);
    reply.status = 405;
  } else if (path == "/healthz") {
    reply.body = "{\"alive\": true}";
  } else if (path == "/readyz") {
    bool is_ready = context_->control->is_ready();
    reply = is_ready ? HttpReply{200, "{\"ready\": true}"}
                     : ErrorReply(Code::kUnavailable, "not every model has an active version; see /v1/status");
  } else if (path == "/v1/status") {
    reply.body = StatusJson(context_->facts);
  } else if (path == "/metrics") {
    reply.body = MetricsText(context_->facts);
    reply.type = "text/plain; version=0.0.4";
  } else if (path == "/DictService/seek") {
    reply = ServeSeek(worker_, account(), request.query, request.body);
  } else if (path == "/ControlService/cmd") {
    if (context_->is_commanded.exchange(true)) {
      reply = ErrorReply(Code::kInternal, "another command is under way");
    } else {
      bool later =
          ServeLater([context = context_, body = request.body] { return ServeCommand(context, body); }, true, out);
      if (!later) context_->is_commanded = false;
      return later;
    }
  } else if (IsPost(path)) {
    return ServeLater(
        [control = context_->control, path, body = request.body] { return ServeControl(control, path, body); }, false,
        out);
  } else {
    reply = ErrorReply(Code::kNotFound, "no such page: " + path.substr(0, 200));
  }
  Send(reply, out);
  return false;
}

bool HttpSession::ServeLater(std::function<HttpReply()> work, bool is_load, net::Buffer* out) {
  net::Server* server = context_->facts.server;
  bool keep_alive = reader_.request().keep_alive;
  // The body stays charged until the job is done. Jobs are copied, charges must not be.
  auto charge = std::make_shared<net::Charge>(std::move(charge_));
  bool posted = context_->control->Post(
      [server, id = id_, keep_alive, charge, work = std::move(work)] {
        HttpReply reply;
        try {
          reply = work();
        } catch (const Error& e) {
          reply = ErrorReply(e.code(), e.what());
        } catch (const std::exception& e) {
          reply = ErrorReply(Code::kInternal, e.what());
        }
        server->Complete(id, Render(reply, keep_alive, false), !keep_alive);
      },
      is_load);
  if (!posted) Send(ErrorReply(Code::kUnavailable, "too many control requests wait; try again"), out);
  return posted;
}

void HttpSession::Send(const HttpReply& reply, net::Buffer* out) {
  out->Append(Render(reply, reader_.request().keep_alive, reader_.request().method == "HEAD"));
}

HttpReply ServeControl(Control* control, const std::string& path, const std::string& body) {
  const std::optional<JsonObject> object = JsonObject::Parse(body);
  const std::string model = object ? object->Text("model").value_or("") : "";
  const uint64_t version = object ? object->Uint64("version").value_or(0) : 0;
  if (!object || !object->Text("model") || version == 0) {
    throw Error(Code::kConfig, "the body must be {\"model\": \"name\", \"version\": a whole number from 1}");
  }
  if (!IsName(model)) throw Error(Code::kConfig, "'" + model.substr(0, 80) + "' is not a model's name");
  if (path == "/v1/load") {
    bool is_ready = control->RequestLoad(model, version) == LoadState::kReady;
    return {is_ready ? 200 : 202, is_ready ? "{\"state\": \"ready\"}" : "{\"state\": \"loading\"}"};
  }
  std::string answer;
  if (path == "/v1/activate") {
    Live live = control->Activate(model, version);
    AppendNumber(&answer.append("{\"active\":"), live.version);
    AppendNumber(&answer.append(",\"previous\":"), live.previous);
    return {200, answer.append("}")};
  }
  control->Retire(model, version);
  AppendNumber(&answer.append("{\"retired\":"), version);
  return {200, answer.append("}")};
}

}  // namespace elasticctr::cube
