#include "serve/brpc/session.h"

#include "serve/http/status.h"
#include "serve/paddle/brpc_codec.h"

namespace elasticctr::serve {

net::Step BrpcSession::Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) {
  net::Step step;
  const uint64_t limit = context_->engine->options().limits.body_bytes + brpc::kMaxMetaBytes;
  while (true) {
    if (owed_ >= kMaxOwed || (owed_ != 0 && waiting_->load(std::memory_order_relaxed) > kMaxWaitingBytes)) {
      step.next = net::Next::kWait;
      return step;
    }
    const uint8_t* frame = data + step.consumed;
    size_t left = size - step.consumed;
    if (left < brpc::kHeaderBytes) {
      step.need = brpc::kHeaderBytes;
      return step;
    }
    brpc::Header header;
    if (!brpc::ReadHeader(frame, &header)) break;
    const auto* body = reinterpret_cast<const char*>(frame + brpc::kHeaderBytes);
    const uint64_t total = brpc::kHeaderBytes + uint64_t{header.body_bytes};
    const size_t head = brpc::kHeaderBytes + header.meta_bytes;
    const bool is_whole = left >= total;
    if (left < head) {
      step.need = head;
      return step;
    }
    std::string_view meta(body, header.meta_bytes);
    if (header.body_bytes > limit) {
      Refuse(meta,
             TooLarge("a message of " + std::to_string(header.body_bytes) + " bytes; the limit is " +
                      std::to_string(limit)),
             out);
      break;
    }
    if (!is_trusted_ && !Trust(meta, out)) break;
    if (!is_whole) {
      if (!account().HasRoomFor(total)) {
        Refuse(meta, RetryLater("too many bytes of requests wait to be read; try again", 100), out);
        break;
      }
      step.need = total;
      return step;
    }
    step.consumed += total;
    if (!account().HasRoomFor(header.body_bytes)) {
      Refuse(meta, RetryLater("too many bytes of requests wait to be answered; try again", 100), out);
      continue;
    }
    if (!Take({body, header.body_bytes}, header.meta_bytes, received_ns)) break;
  }
  step.next = net::Next::kClose;
  return step;
}

bool BrpcSession::Trust(std::string_view meta, net::Buffer* out) {
  try {
    is_trusted_ = context_->secret->Matches(brpc::ReadRequestMeta(meta).authentication);
  } catch (const Error&) {
    return false;
  }
  if (!is_trusted_) Refuse(meta, Error(Code::kUnauthorized, "authentication_data is not this server's token"), out);
  return is_trusted_;
}

void BrpcSession::Refuse(std::string_view meta, const Error& error, net::Buffer* out) {
  try {
    out->Append(brpc::FormatErrorResponse(brpc::ReadRequestMeta(meta).correlation_id, error));
  } catch (const Error&) {
    // Without a valid meta there is nothing to answer to.
  }
}

bool BrpcSession::Take(std::string_view body, size_t meta_bytes, uint64_t received_ns) {
  auto request = std::make_unique<Request>();
  try {
    brpc::RequestMeta meta = brpc::ReadRequestMeta(body.substr(0, meta_bytes));
    request->call_id = meta.correlation_id;
    request->model = meta.user_field("model");
    request->version = meta.user_field("version");
    if (!meta.request_id.empty()) {
      request->id = meta.request_id;
    } else if (meta.log_id != 0) {
      request->id = std::to_string(meta.log_id);
    }
    if (meta.timeout_ms > 0) request->deadline_ns = received_ns + uint64_t(meta.timeout_ms) * 1'000'000;
  } catch (const Error&) {
    return false;
  }
  request->codec = &BrpcCodec();
  request->body = body;
  request->binary_header = meta_bytes;
  request->received_ns = received_ns;
  request->peer = peer_;
  request->charge = net::Charge(account());
  request->charge.Set(body.size());
  waiting_->fetch_add(body.size(), std::memory_order_relaxed);
  request->answer = [context = context_, id = id_, waiting = waiting_, bytes = body.size()](std::string answer,
                                                                                            bool close) {
    waiting->fetch_sub(bytes, std::memory_order_relaxed);
    context->complete(id, std::move(answer), close);
  };
  ++owed_;
  context_->engine->Submit(std::move(request));
  return true;
}

}  // namespace elasticctr::serve
