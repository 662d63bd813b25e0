#include "serve/brpc/frame.h"

#include <bit>
#include <cstring>

#include "util/coding.h"
#include "util/protobuf.h"
#include "util/status_table.h"

namespace elasticctr::serve::brpc {
namespace {

constexpr char kMagic[4] = {'P', 'R', 'P', 'C'};
constexpr size_t kMaxUserFields = 64;

void PutBigEndian32(std::string* out, size_t at, uint32_t v) { EncodeFixed32(out->data() + at, __builtin_bswap32(v)); }

void ReadRequest(protobuf::Reader reader, RequestMeta* meta) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1: meta->service = reader.AsString(); break;
      case 2: meta->method = reader.AsString(); break;
      case 3: meta->log_id = reader.AsUint64(); break;
      case 7: meta->request_id = reader.AsString(); break;
      case 8: meta->timeout_ms = reader.AsInt32(); break;
      default: break;
    }
  }
}

void ReadUserField(protobuf::Reader reader, RequestMeta* meta) {
  std::string_view key, value;
  while (reader.Next()) {
    if (reader.field() == 1) key = reader.AsString();
    if (reader.field() == 2) value = reader.AsString();
  }
  if (meta->user_fields.size() == kMaxUserFields) throw Error(Code::kData, "RpcMeta has more than 64 user_fields");
  meta->user_fields.emplace_back(key, value);
}

}  // namespace

Errno ErrnoOf(const Error& error) {
  if (const auto* own = dynamic_cast<const BrpcError*>(&error)) return own->number();
  return static_cast<Errno>(StatusOf(error).brpc);
}

bool ReadHeader(const uint8_t* data, Header* header) {
  header->body_bytes = __builtin_bswap32(DecodeFixed32(data + 4));
  header->meta_bytes = __builtin_bswap32(DecodeFixed32(data + 8));
  return std::memcmp(data, kMagic, sizeof kMagic) == 0 && header->meta_bytes <= header->body_bytes &&
         header->meta_bytes <= kMaxMetaBytes;
}

std::string_view RequestMeta::user_field(std::string_view name) const {
  for (const auto& [key, value] : user_fields) {
    if (key == name) return value;
  }
  return {};
}

RequestMeta ReadRequestMeta(std::string_view bytes) {
  RequestMeta meta;
  protobuf::Reader reader(bytes, "RpcMeta");
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        meta.is_request = true;
        ReadRequest(reader.AsMessage("RpcRequestMeta"), &meta);
        break;
      case 3: meta.compress_type = reader.AsInt32(); break;
      case 4: meta.correlation_id = reader.AsUint64(); break;
      case 5: meta.attachment_bytes = reader.AsInt32(); break;
      case 6:
      case 8: meta.is_stream = true; break;
      case 7: meta.authentication = reader.AsBytes(); break;
      case 9: ReadUserField(reader.AsMessage("RpcMeta.user_fields"), &meta); break;
      default: break;
    }
  }
  return meta;
}

std::string FormatResponse(const ResponseMeta& meta, std::string_view message) {
  std::string out;
  out.reserve(kHeaderBytes + 160 + meta.error_text.size() + message.size());
  out.append(kMagic, sizeof kMagic).append(8, '\0');
  protobuf::Writer writer(&out);
  size_t response = writer.Begin(2);
  writer.Int32(1, static_cast<int32_t>(meta.error));
  if (!meta.error_text.empty()) writer.Bytes(2, meta.error_text);
  writer.End(response);
  writer.Uint64(4, meta.correlation_id);
  for (const auto& [key, value] : meta.user_fields) {
    size_t entry = writer.Begin(9);
    writer.Bytes(1, key);
    writer.Bytes(2, value);
    writer.End(entry);
  }
  const auto meta_bytes = static_cast<uint32_t>(out.size() - kHeaderBytes);
  out.append(message);
  PutBigEndian32(&out, 4, static_cast<uint32_t>(out.size() - kHeaderBytes));
  PutBigEndian32(&out, 8, meta_bytes);
  return out;
}

std::string FormatErrorResponse(uint64_t correlation_id, const Error& error) {
  ResponseMeta meta;
  meta.correlation_id = correlation_id;
  meta.error = ErrnoOf(error);
  meta.error_text = error.what();
  return FormatResponse(meta, {});
}

}  // namespace elasticctr::serve::brpc
