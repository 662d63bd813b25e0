#include "ps/client/request.h"

#include <chrono>
#include <cstring>

#include "ps/shard/cursor_error.h"
#include "ps/shard/era_error.h"

namespace elasticctr::ps {
namespace {

constexpr uint32_t kMaxTextBytes = 16u << 20;

}  // namespace

void Failure::Throw() const {
  if (chunk) throw CursorError(message, *chunk, shard, cursor);
  if (era) throw EraError(message, *era);
  throw Error(code, message);
}

Request::Request(Opcode opcode, size_t body_bytes) : opcode_(opcode), body_bytes_(body_bytes) {
  if (body_bytes > kMaxBodyBytes) {
    throw Error(Code::kFailedPrecondition, "a request of " + std::to_string(body_bytes >> 20) +
                                               " MiB to a pserver; at most " + std::to_string(kMaxBodyBytes >> 20) +
                                               " fit: make batches smaller or take more pservers");
  }
  frame_.Reserve(net::wire::kHeaderBytes + body_bytes);
}

void Request::SetHeader(uint64_t id, uint64_t incarnation, uint64_t job) {
  id_ = id;
  net::wire::Header header;
  header.body_bytes = static_cast<uint32_t>(body_bytes_);
  header.id = id;
  header.version = opcode_ == Opcode::kControl ? incarnation : era;
  header.table = job;
  header.opcode = static_cast<uint8_t>(opcode_);
  net::wire::EncodeHeader(frame_.data(), header);
}

Failure Request::ToFailure(const net::wire::Header& header, std::string message) const {
  Failure failure{static_cast<Code>(header.status), std::move(message), {}, 0, 0};
  if (header.detail == static_cast<uint16_t>(Detail::kOldEra)) failure.era = header.version;
  return failure;
}

void Gate::Arrive() { End({}); }

void Gate::Fail(Failure failure) { End(std::move(failure)); }

void Gate::End(std::optional<Failure> failure) {
  std::lock_guard lock(mutex_);
  if (failure && !failure_) failure_ = std::move(failure);
  if (--left_ == 0) done_.notify_all();
}

bool Gate::Wait(uint32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  if (!done_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return left_ == 0; })) return false;
  if (failure_) failure_->Throw();
  return true;
}

void Gate::WaitAll() {
  while (!Wait(60'000)) {
  }
}

TextRequest::TextRequest(Opcode opcode, std::string_view body, std::shared_ptr<Gate> gate)
    : Request(opcode, body.size()), gate_(std::move(gate)) {
  if (!body.empty()) std::memcpy(this->body(), body.data(), body.size());
}

void TextRequest::Place(const net::wire::Header& header, std::vector<iovec>* places) {
  if (header.body_bytes > kMaxTextBytes) throw Error(Code::kCorruption, "an answer that is far too long");
  answer_.resize(header.body_bytes);
  places->push_back({answer_.data(), answer_.size()});
}

void TextRequest::OnAnswer(const net::wire::Header&) { gate_->Arrive(); }

void TextRequest::OnError(Failure failure) { gate_->Fail(std::move(failure)); }

}  // namespace elasticctr::ps
