#include "ps/server/answer_frames.h"

#include <string_view>

#include "net/frame.h"
#include "ps/server/refusal.h"
#include "util/coding.h"

namespace elasticctr::ps {

using net::wire::kHeaderBytes;

std::string AnswerFrame(const net::wire::Header& request, uint64_t version, std::string_view body) {
  net::wire::Header header = request;
  header.version = version;
  header.time_ms = 0;
  return net::wire::MakeFrame(header, body);
}

std::string ErrorFrame(const net::wire::Header& request, const std::exception& error) {
  constexpr uint32_t kRetryAfterMs = 100;
  net::wire::Header header = request;
  header.version = 0;
  header.time_ms = 0;
  header.status = static_cast<uint8_t>(Code::kInternal);
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    header.status = static_cast<uint8_t>(known->code());
    if (known->code() == Code::kData) header.detail = static_cast<uint16_t>(Detail::kMalformed);
    if (known->code() == Code::kUnavailable) header.time_ms = kRetryAfterMs;
  }
  if (const auto* refusal = dynamic_cast<const Refusal*>(&error)) {
    header.detail = static_cast<uint16_t>(refusal->detail());
  }
  if (const auto* cursor = dynamic_cast<const CursorError*>(&error)) {
    header.detail = static_cast<uint16_t>(Detail::kCursor);
    header.version = cursor->cursor();
  }
  if (const auto* old = dynamic_cast<const EraError*>(&error)) {
    header.detail = static_cast<uint16_t>(Detail::kOldEra);
    header.version = old->era();
  }
  return net::wire::MakeFrame(header, error.what());
}

std::string PushFrame(const net::wire::Header& request, const PushResult& result, Shard* shard, bool with_dense) {
  const Share& share = shard->share();
  const size_t floats = with_dense && result.dense_version != 0 ? share.last_float - share.first_float : 0;
  std::string frame(kHeaderBytes + kPushAnswerHead + floats * sizeof(float), '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(frame.data());
  uint8_t* const head = bytes + kHeaderBytes;
  uint64_t version = result.dense_version;
  static_assert((kHeaderBytes + kPushAnswerHead) % alignof(float) == 0);
  if (floats != 0) version = shard->CopyDense(reinterpret_cast<float*>(head + kPushAnswerHead));
  net::wire::Header header = request;
  header.body_bytes = static_cast<uint32_t>(frame.size() - kHeaderBytes);
  header.version = result.step;
  header.time_ms = 0;
  net::wire::EncodeHeader(bytes, header);
  head[0] = static_cast<uint8_t>(result.outcome);
  EncodeFixed64(head + 8, result.step);
  EncodeFixed64(head + 16, version);
  EncodeFixed32(head + 24, static_cast<uint32_t>(floats));
  return frame;
}

}  // namespace elasticctr::ps
