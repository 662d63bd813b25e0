#include "ps/client/asker.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "net/address.h"
#include "net/frame.h"
#include "net/socket.h"
#include "util/status_table.h"

namespace elasticctr::ps {
namespace {

constexpr uint32_t kMaxAnswerBytes = 300u << 20;

uint64_t In(uint32_t timeout_ms) { return net::NowNs() + uint64_t{timeout_ms} * 1'000'000; }

}  // namespace

Asker::Asker(std::string who, std::string address, uint64_t job, std::shared_ptr<net::TlsClient> tls)
    : who_(std::move(who)), address_(std::move(address)), job_(job), tls_(std::move(tls)) {
  net::CheckAddress(address_);
}

void Asker::Connect(uint32_t timeout_ms) {
  deadline_ns_ = In(timeout_ms);
  try {
    Replace(nullptr);
    Replace(std::make_unique<net::Connection>(net::Resolve(address_, true), tls_.get(), net::HostOf(address_)));
    net::TuneConnection(connection_->fd());
    do {
      Wait(connection_->connect_events());
    } while (!connection_->FinishConnecting());
  } catch (const Error& error) {
    Lost(error.what());
  }
}

std::string Asker::Ask(Opcode opcode, std::string_view body, uint32_t timeout_ms) {
  deadline_ns_ = In(timeout_ms);
  net::wire::Header header;
  header.id = ++id_;
  header.table = job_;
  header.opcode = static_cast<uint8_t>(opcode);
  std::string text;
  try {
    Send(net::wire::MakeFrame(header, body));
    text = Receive();
  } catch (const Error& error) {
    if (error.code() == Code::kUnavailable) Lost(error.what());
    throw Error(error.code(), who_ + ": " + error.what());
  }
  const uint8_t status = answer_.header().status;
  if (status != 0) throw Error(IsCode(status) ? static_cast<Code>(status) : Code::kInternal, who_ + ": " + text);
  return text;
}

void Asker::Interrupt() {
  std::lock_guard lock(mutex_);
  if (connection_) ::shutdown(connection_->fd(), SHUT_RDWR);
}

void Asker::Replace(std::unique_ptr<net::Connection> connection) {
  std::lock_guard lock(mutex_);
  connection_ = std::move(connection);
}

void Asker::Send(std::string_view frame) {
  for (size_t sent = 0; sent < frame.size() || connection_->has_unsent();) {
    const iovec rest{const_cast<char*>(frame.data()) + sent, frame.size() - sent};
    if (rest.iov_len != 0) {
      sent += connection_->Send(&rest, 1);
    } else {
      connection_->Flush();
    }
    if (sent < frame.size() || connection_->has_unsent()) Wait(POLLOUT);
  }
}

std::string Asker::Receive() {
  answer_.Reset();
  while (!answer_.is_whole()) {
    bool is_drained = false;
    if (answer_.Receive(connection_.get(), &is_drained) == 0) Wait(POLLIN);
    if (!answer_.is_undecided()) continue;
    if (answer_.header().body_bytes > kMaxAnswerBytes || answer_.header().id != id_) {
      throw Error(Code::kCorruption, "sent an invalid answer");
    }
    answer_.BeginText();
  }
  return answer_.TakeText();
}

void Asker::Wait(short events) {
  const uint64_t now = net::NowNs();
  pollfd one{connection_->fd(), events, 0};
  const uint64_t left_ms = now < deadline_ns_ ? (deadline_ns_ - now) / 1'000'000 + 1 : 0;
  if (now >= deadline_ns_ || ::poll(&one, 1, static_cast<int>(left_ms)) == 0) {
    throw Error(Code::kUnavailable, "no answer in time");
  }
}

void Asker::Lost(const std::string& why) const { throw Error(Code::kUnavailable, who_ + ": " + why); }

}  // namespace elasticctr::ps
