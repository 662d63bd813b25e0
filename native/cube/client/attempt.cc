#include "cube/client/attempt.h"

#include <poll.h>

#include <algorithm>

#include "cube/client/report.h"

namespace elasticctr::cube {

namespace wire = net::wire;

namespace {

constexpr int kMostReads = 16;  // in a row, so that one fast sender does not block the others

}  // namespace

void Attempt::Prepare(const wire::Header& header, const void* body) {
  wire::EncodeHeader(head, header);
  out[0] = {head, wire::kHeaderBytes};
  out[1] = {const_cast<void*>(body), header.body_bytes};
  sent = 0;
  to_send = wire::kHeaderBytes + header.body_bytes;
}

short Attempt::events() const {
  switch (phase) {
    case Phase::kConnecting: return connection->connect_events();
    case Phase::kReceiving: return static_cast<short>(connection->has_unsent() ? POLLIN | POLLOUT : POLLIN);
    default: return POLLOUT;
  }
}

void Attempt::PrepareHello(const std::string& token, uint64_t id) {
  wire::Header header;
  header.id = id;
  header.opcode = static_cast<uint8_t>(wire::Opcode::kHello);
  header.body_bytes = static_cast<uint32_t>(token.size());
  Prepare(header, token.data());
  is_hello = true;
  reader.Start({wire::Opcode::kHello, id, 0, 0});
}

void Attempt::PrepareRequest(const Leg& asked, uint64_t id, uint32_t time_ms, uint8_t* target) {
  wire::Header header;
  header.id = id;
  header.version = asked.version;
  header.table = asked.table;
  header.opcode = static_cast<uint8_t>(asked.opcode);
  header.time_ms = time_ms;
  header.body_bytes = static_cast<uint32_t>(asked.count * sizeof(uint64_t));
  Prepare(header, asked.keys);
  is_hello = false;
  reader.Start({asked.opcode, id, asked.table, asked.version, asked.count, asked.row_bytes, target});
}

void Attempt::Transmit() {
  phase = Phase::kSending;
  iovec rest[2];
  int n = 0;
  size_t skip = sent;
  for (const iovec& part : out) {
    if (skip < part.iov_len) rest[n++] = {static_cast<uint8_t*>(part.iov_base) + skip, part.iov_len - skip};
    skip -= std::min(skip, part.iov_len);
  }
  sent += connection->Send(rest, n);
  if (sent == to_send) phase = Phase::kReceiving;
}

bool Attempt::Receive() {
  for (int turn = 0; turn < kMostReads || connection->has_received(); ++turn) {
    iovec buffers[2];
    const int n = reader.Buffers(buffers);
    const size_t received = connection->Receive(buffers, n);
    if (received == 0) return false;
    if (!is_hello) has_answered = true;
    if (reader.Consume(received)) return true;
  }
  return false;
}

void Attempt::TakeHello() {
  const Hello hello = ParseHello(reader.text());
  if (hello.protocol != 1) {
    throw Error(Code::kFailedPrecondition,
                "speaks protocol " + std::to_string(hello.protocol) + " where this client speaks 1");
  }
  replica->SetLimits(hello.max_body, hello.max_keys);
  connection->set_greeted();
}

}  // namespace elasticctr::cube
