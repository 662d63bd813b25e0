#include "cube/server/wire.h"

#include <algorithm>

#include "cube/server/refusal.h"
#include "net/socket.h"

namespace elasticctr::cube {

using net::wire::Detail;
using net::wire::kHeaderBytes;
using net::wire::Opcode;

namespace {

constexpr uint32_t kRetryAfterMs = 50;
constexpr uint32_t kSmallRowBytes = 1024;  // longer rows do not justify a second copy

// The part of a lookup's answer before the found bits.
void EncodeAnswerHead(uint8_t* answer, const Frame& request, const Catalog::Found& found, size_t keys,
                      uint32_t row_bytes) {
  Frame header = request;
  header.body_bytes = static_cast<uint32_t>(net::wire::LookupBodyBytes(keys, row_bytes));
  header.version = found.version;
  header.time_ms = found.tag;
  header.status = 0;
  header.detail = 0;
  net::wire::EncodeHeader(answer, header);
  uint8_t* head = answer + kHeaderBytes;
  EncodeFixed32(head, static_cast<uint32_t>(keys));
  EncodeFixed32(head + 4, row_bytes);
  EncodeFixed64(head + 8, found.active);
}

const uint64_t* Aligned(const uint8_t* body, size_t bytes, Worker* worker) {
  if (reinterpret_cast<uintptr_t>(body) % alignof(uint64_t) == 0) return reinterpret_cast<const uint64_t*>(body);
  uint8_t* aligned = worker->Scratch(bytes);
  std::memcpy(aligned, body, bytes);
  return reinterpret_cast<const uint64_t*>(aligned);
}

}  // namespace

net::Step WireSession::Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) {
  net::Step step;
  worker_->small().Clear();  // a turn that ended with an exception may have left some
  while (true) {
    if (skip_ != 0 && !Skip(size, &step)) return step;
    size_t left = size - step.consumed;
    const uint8_t* frame = data + step.consumed;
    if (left < kHeaderBytes) {
      FlushSmall(received_ns, out);
      if (left >= sizeof net::wire::kMagic && !net::wire::HasMagic(frame)) break;
      step.need = kHeaderBytes;
      return step;
    }
    if (!net::wire::HasMagic(frame)) break;
    Frame request = net::wire::DecodeHeader(frame);
    if (is_trusted_ && SmallLookups::IsSmall(request) && left >= kHeaderBytes + request.body_bytes) {
      SmallLookups& small = worker_->small();
      if (!small.Takes(request)) FlushSmall(received_ns, out);
      small.Add(request, frame + kHeaderBytes);
      step.consumed += kHeaderBytes + request.body_bytes;
      if (out->size() < net::kFlushBytes) continue;
      FlushSmall(received_ns, out);
      step.next = net::Next::kFlush;
      return step;
    }
    FlushSmall(received_ns, out);
    if (request.body_bytes > worker_->limits().max_body_bytes) {
      Refuse(request, Code::kData, Detail::kMalformed, "the body is over the limit that hello tells", out);
      step.next = net::Next::kClose;
      return step;
    }
    size_t total = kHeaderBytes + request.body_bytes;
    if (left < total) {
      if (!is_trusted_ && request.body_bytes > 4096) break;
      if (!account().HasRoomFor(total)) {
        FailMiss(request, &worker_->cells().no_table, request.body_bytes / 8, Miss::kOverloaded, out);
        step.consumed += kHeaderBytes;
        skip_ = request.body_bytes;
        continue;
      }
      step.need = total;
      return step;
    }
    step.consumed += total;
    if (!Answer(request, frame + kHeaderBytes, received_ns, out)) {
      step.next = net::Next::kClose;
      return step;
    }
    if (out->size() >= net::kFlushBytes) {
      step.next = net::Next::kFlush;
      return step;
    }
  }
  FlushSmall(received_ns, out);
  Frame nobody;
  Refuse(nobody, Code::kData, Detail::kMalformed, "not a frame of this protocol", out);
  step.next = net::Next::kClose;
  return step;
}

// Skips the rest of a refused body. False: more of it is to come.
bool WireSession::Skip(size_t size, net::Step* step) {
  const auto n = static_cast<uint32_t>(std::min<size_t>(skip_, size - step->consumed));
  step->consumed += n;
  skip_ -= n;
  step->in_request = skip_ != 0;
  return skip_ == 0;
}

bool WireSession::Answer(const Frame& request, const uint8_t* body, uint64_t received_ns, net::Buffer* out) {
  auto opcode = static_cast<Opcode>(request.opcode);
  if (!is_trusted_ && opcode != Opcode::kHello) {
    worker_->cells().unauthorized.Add(1);
    Fail(request, Code::kUnauthorized, Detail::kNone, "this server wants a token first: send hello", out);
    return false;
  }
  switch (opcode) {
    case Opcode::kLookup: return Lookup(request, body, received_ns, out);
    case Opcode::kPing:
      if (request.body_bytes > net::wire::kMaxPingBytes) {
        return Refuse(request, Code::kData, Detail::kMalformed, "a ping has at most 64 bytes", out);
      }
      AnswerText(request, {reinterpret_cast<const char*>(body), request.body_bytes}, out);
      return true;
    case Opcode::kHello:
      if (!context_->secret->Matches({reinterpret_cast<const char*>(body), request.body_bytes})) {
        worker_->cells().unauthorized.Add(1);
        Fail(request, Code::kUnauthorized, Detail::kNone, "wrong token", out);
        return false;
      }
      is_trusted_ = true;
      AnswerText(
          request,
          "{\"server\": \"cube\", \"protocol\": 1, \"max_body\": " + std::to_string(worker_->limits().max_body_bytes) +
              ", \"max_keys\": " + std::to_string(worker_->limits().max_keys) + "}",
          out);
      return true;
    case Opcode::kDescribe: AnswerText(request, context_->describe(), out); return true;
  }
  return Refuse(request, Code::kData, Detail::kMalformed, "unknown opcode", out);
}

bool WireSession::Lookup(const Frame& request, const uint8_t* body, uint64_t received_ns, net::Buffer* out) {
  size_t keys = request.body_bytes / sizeof(uint64_t);
  if (keys > worker_->limits().max_keys) {
    worker_->CountMiss(&worker_->cells().no_table, Speaks::kWire, keys, Miss::kMalformed);
    return Refuse(request, Code::kData, Detail::kMalformed, "more feasigns than hello allows", out);
  }
  const Worker::Target& target = worker_->Find(request.table, request.version);
  if (target.found.view == nullptr) {
    FailMiss(request, target.cells, keys, worker_->Explain(target.found, request.version), out);
    return true;
  }
  if (request.body_bytes % sizeof(uint64_t) != 0) {
    FailMiss(request, target.cells, keys, Miss::kMalformed, out);
    return true;
  }
  if (request.time_ms != 0 && net::NowNs() - received_ns > uint64_t{request.time_ms} * 1'000'000) {
    FailMiss(request, target.cells, keys, Miss::kDeadline, out);
    return true;
  }
  const uint32_t row_bytes = target.found.view->info().row_bytes;
  uint64_t body_bytes = net::wire::LookupBodyBytes(keys, row_bytes);
  if (body_bytes > worker_->limits().max_answer_bytes) {
    worker_->CountMiss(target.cells, Speaks::kWire, keys, Miss::kMalformed);
    Fail(request, Code::kData, Detail::kMalformed,
         "the answer would be over the limit of bytes; ask for fewer feasigns at once", out, target.found.version);
    return true;
  }
  if (!account().HasRoomFor(body_bytes)) {
    FailMiss(request, target.cells, keys, Miss::kOverloaded, out);
    return true;
  }
  const uint64_t* const feasigns = Aligned(body, request.body_bytes, worker_);
  uint8_t* answer = out->Reserve(kHeaderBytes + body_bytes);
  uint8_t* head = answer + kHeaderBytes;
  uint8_t* found = head + net::wire::kLookupHeadBytes;
  size_t found_bytes = net::wire::FoundBytes(keys);
  if (found_bytes != 0) EncodeFixed64(found + found_bytes - 8, 0);
  size_t hits = 0;
  try {
    if (target.found.view->Lookup(feasigns, keys, found + found_bytes, found, &hits) == LookupResult::kWrongShard) {
      FailMiss(request, target.cells, keys, Miss::kWrongShard, out);
      return true;
    }
  } catch (const Error& e) {
    worker_->CountMiss(target.cells, Speaks::kWire, keys, Miss::kDamaged);
    Fail(request, e.code(), Detail::kNone, e.what(), out, target.found.version);
    return true;
  }
  EncodeAnswerHead(answer, request, target.found, keys, row_bytes);
  out->Commit(kHeaderBytes + body_bytes);
  worker_->CountRequests(target.cells, Speaks::kWire, 1, keys);
  worker_->CountKeys(target.cells, Speaks::kWire, keys, hits);
  return true;
}

void WireSession::FlushSmall(uint64_t received_ns, net::Buffer* out) {
  SmallLookups& small = worker_->small();
  if (small.count() == 0) return;
  if (small.count() == 1 || !AnswerTogether(received_ns, out)) {
    const uint64_t* feasigns = small.feasigns();
    for (size_t i = 0; i < small.count(); ++i) {
      Lookup(small.request(i), reinterpret_cast<const uint8_t*>(feasigns), received_ns, out);
      feasigns += small.request(i).body_bytes / 8;
    }
  }
  small.Clear();
}

bool WireSession::AnswerTogether(uint64_t received_ns, net::Buffer* out) {
  const SmallLookups& small = worker_->small();
  const Worker::Target& target = worker_->Find(small.request(0).table, small.request(0).version);
  if (target.found.view == nullptr) return false;
  const uint32_t row_bytes = target.found.view->info().row_bytes;
  const size_t count = small.count(), keys = small.keys();
  const size_t most = count * (kHeaderBytes + net::wire::kLookupHeadBytes + 8) + keys * row_bytes;
  if (row_bytes > kSmallRowBytes || !account().HasRoomFor(most)) return false;
  const uint64_t waited_ns = net::NowNs() - received_ns;
  for (size_t i = 0; i < count; ++i) {
    uint32_t time_ms = small.request(i).time_ms;
    if (time_ms != 0 && waited_ns > uint64_t{time_ms} * 1'000'000) return false;
  }
  uint8_t* rows = worker_->Scratch(keys * row_bytes);
  uint8_t found[SmallLookups::kTogether / 8 + 8] = {};
  size_t hits = 0;
  try {
    if (target.found.view->Lookup(small.feasigns(), keys, rows, found, &hits) != LookupResult::kOk) return false;
  } catch (const Error&) {
    return false;
  }
  uint8_t* to = out->Reserve(most);
  size_t first = 0, written = 0;
  for (size_t i = 0; i < count; ++i) {
    const Frame& request = small.request(i);
    const size_t its_keys = request.body_bytes / 8, found_bytes = its_keys == 0 ? 0 : 8;
    uint8_t* head = to + written + kHeaderBytes;
    EncodeAnswerHead(to + written, request, target.found, its_keys, row_bytes);
    if (found_bytes != 0) EncodeFixed64(head + net::wire::kLookupHeadBytes, TakeBits(found, first, its_keys));
    std::memcpy(head + net::wire::kLookupHeadBytes + found_bytes, rows + first * row_bytes, its_keys * row_bytes);
    first += its_keys;
    written += kHeaderBytes + net::wire::LookupBodyBytes(its_keys, row_bytes);
    worker_->CountRequests(target.cells, Speaks::kWire, 1, its_keys);
  }
  out->Commit(written);
  worker_->CountKeys(target.cells, Speaks::kWire, keys, hits);
  return true;
}

void WireSession::AnswerText(const Frame& request, std::string_view text, net::Buffer* out) {
  Frame header = request;
  header.body_bytes = static_cast<uint32_t>(text.size());
  header.time_ms = 0;
  header.status = 0;
  header.detail = 0;
  net::wire::EncodeHeader(out->Reserve(kHeaderBytes), header);
  out->Commit(kHeaderBytes);
  out->Append(text);
}

void WireSession::Fail(const Frame& request, Code code, Detail detail, std::string_view message, net::Buffer* out,
                       uint64_t version) {
  Frame header = request;
  header.body_bytes = static_cast<uint32_t>(message.size());
  header.version = version;
  header.time_ms = code == Code::kUnavailable ? kRetryAfterMs : 0;
  header.status = static_cast<uint8_t>(code);
  header.detail = static_cast<uint16_t>(detail);
  net::wire::EncodeHeader(out->Reserve(kHeaderBytes), header);
  out->Commit(kHeaderBytes);
  out->Append(message);
}

// For errors that close the connection.
bool WireSession::Refuse(const Frame& request, Code code, Detail detail, std::string_view message, net::Buffer* out) {
  worker_->cells().malformed.Add(1);
  Fail(request, code, detail, message, out);
  return false;
}

void WireSession::FailMiss(const Frame& request, TableCells* cells, size_t keys, Miss miss, net::Buffer* out) {
  worker_->CountMiss(cells, Speaks::kWire, keys, miss);
  const Refusal& refusal = RefusalOf(miss);
  Fail(request, refusal.code, refusal.detail, refusal.message, out);
}

}  // namespace elasticctr::cube
