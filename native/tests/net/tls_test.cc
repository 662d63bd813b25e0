// Both ends of TLS: streams in memory, fed a byte at a time, and connections to a real server. Certificates are
// generated here. Run under the thread and address sanitizers.

// PROMISE: traffic changed in transit, a false server | every byte unchanged, or a refusal that says why

// PROMISE: a client's certificate replaced on disk | used for new connections; files that do not match change nothing

#include "net/tls.h"

#include <cstdio>

#include "tests/check.h"

#ifndef ELASTICCTR_TLS

int main() {
  CHECK(elasticctr::net::TlsLibrary().empty());
  std::puts("built without TLS: nothing to test");
  return 0;
}

#else

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "net/connection.h"
#include "net/loop/server.h"
#include "net/wire.h"
#include "tests/net/tls_fixture.h"
#include "util/status.h"

using namespace elasticctr;
using namespace elasticctr::net;

namespace {

void TestStreams(const Papers& papers) {
  for (const bool is_mutual : {false, true}) {
    const TlsContext server(papers.served(is_mutual)), client(papers.calling());
    for (const size_t step : {size_t{1}, size_t{7}, size_t{1} << 20}) {
      Wire wire(server, client, "127.0.0.1", step);
      CHECK(!wire.client.is_open() && !wire.server.is_open());
      CHECK(wire.Run() && wire.client.is_open() && wire.server.is_open());
      const std::string asked(step == 1 ? 40'000 : 900'000, 'q'), answered(step == 1 ? 50'000 : 800'000, 'a');
      CHECK(wire.client.Send(Bytes(asked), asked.size(), &wire.to_server) && wire.Run());
      CHECK(wire.server.Send(Bytes(answered), answered.size(), &wire.to_client) && wire.Run());
      CHECK(TextOf(wire.server_plain) == asked && TextOf(wire.client_plain) == answered);
      wire.server.End(&wire.to_client);
      CHECK(wire.Run() && wire.client.is_ended());
    }
  }
}

void CheckRefused(const Papers& papers, const TlsClientOptions& options, const std::string& host, const char* why) {
  const TlsContext server(papers.served(true)), client(options);
  Wire wire(server, client, host, 64);
  CHECK(!wire.Run());
  if (wire.client.trouble().find(why) == std::string::npos) {
    std::fprintf(stderr, "%s: %s\n", why, wire.client.trouble().c_str());
  }
  CHECK(wire.client.trouble().find(why) != std::string::npos);
  CHECK(wire.server_plain.empty());
}

void TestRefusals(const Papers& papers) {
  TlsClientOptions trusting_other = papers.calling();
  trusting_other.ca = papers.other.certificate_path;
  CheckRefused(papers, trusting_other, "127.0.0.1", "its certificate is not trusted");
  CheckRefused(papers, papers.calling(), "127.0.0.2", "its certificate is not for 127.0.0.2");
  CheckRefused(papers, papers.calling(), "another.example", "its certificate is not for another.example");
  CheckRefused(papers, papers.calling_without(), "127.0.0.1", "requires a certificate");
  CheckRefused(papers, papers.calling_as_stranger(), "cube.example", "does not trust our certificate");
  TlsClientOptions careless = papers.calling();
  careless.checks_host = false;
  const TlsContext server(papers.served(true)), client(careless);
  Wire wire(server, client, "another.example", 64);
  CHECK(wire.Run());
}

void TestGarbage(const Papers& papers) {
  const TlsContext server(papers.served(false)), client(papers.calling());
  for (const std::string& garbage : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\0')}) {
    Buffer plain, out;
    TlsStream called(server);
    CHECK(!called.Receive(Bytes(garbage), garbage.size(), &plain, &out) && plain.empty() && !called.trouble().empty());
    TlsStream caller(client, "127.0.0.1");
    caller.Begin(&out);
    CHECK(!caller.Receive(Bytes(garbage), garbage.size(), &plain, &out) && plain.empty());
  }
  // A partial handshake waits for the rest.
  Wire wire(server, client, "127.0.0.1", 64);
  Buffer plain, out;
  CHECK(wire.server.Receive(wire.to_server.data(), wire.to_server.size() / 2, &plain, &out));
  CHECK(!wire.server.is_open() && plain.empty());
}

bool IsConfigError(const TlsClientOptions& options) {
  try {
    MakeTlsClient(options);
  } catch (const Error& error) {
    return error.code() == Code::kConfig;
  }
  return false;
}

void TestFiles(const Papers& papers) {
  CHECK(MakeTlsClient({}) == nullptr);
  CHECK(IsConfigError({"", papers.client.certificate_path, papers.client.key_path}));
  CHECK(IsConfigError({papers.authority.certificate_path, papers.client.certificate_path, ""}));
  CHECK(IsConfigError({(folder / "nowhere.pem").string(), "", ""}));
  CHECK(IsConfigError({papers.authority.certificate_path, papers.client.certificate_path, papers.server.key_path}));

  TlsClientOptions options = papers.calling();
  options.certificate = (folder / "changing.pem").string();
  options.key = (folder / "changing-key.pem").string();
  papers.client.WriteTo(options.certificate, options.key);
  const std::shared_ptr<TlsClient> client = MakeTlsClient(options);
  const auto first = client->Get();
  CHECK(client->Get() == first);
  papers.stranger.WriteTo(options.certificate, (folder / "elsewhere.pem").string());
  CHECK(client->Get() == first);  // the key does not match yet
  papers.stranger.WriteTo(options.certificate, options.key);
  CHECK(client->Get() != first);
}

// Answers every byte with the same byte.
class Echo : public Application {
 public:
  class EchoSession : public Session {
    Step Consume(const uint8_t* data, size_t size, uint64_t, Buffer* out) override {
      Step step;
      step.consumed = std::min(size, kFlushBytes);
      out->Append(data, step.consumed);
      if (step.consumed < size) step.next = Next::kFlush;
      return step;
    }
  };
  std::unique_ptr<Session> Open(Protocol protocol, ConnectionId, int) override {
    return protocol == Protocol::kTls ? nullptr : std::make_unique<EchoSession>();
  }
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return 0; }
};

class Running {
 public:
  explicit Running(TlsOptions tls) : server_(Options(std::move(tls)), &echo_) { server_.Start(); }
  ~Running() { server_.Stop(1); }
  Server& server() { return server_; }
  SocketAddress address() const { return Resolve("127.0.0.1:" + std::to_string(server_.ports()[0]), true); }

 private:
  static ServerOptions Options(TlsOptions tls) {
    ServerOptions options;
    options.ports = {0};
    options.tls = std::move(tls);
    return options;
  }
  Echo echo_;
  Server server_;
};

void Wait(const Connection& connection, short events) {
  pollfd one{connection.fd(), events, 0};
  CHECK(::poll(&one, 1, 30'000) == 1);
}

void Open(Connection* connection) {
  do {
    Wait(*connection, connection->connect_events());
  } while (!connection->FinishConnecting());
}

// Sends all of the text and reads all of the echo, as much at a time as possible.
void Exchange(Connection* connection, const std::string& text) {
  std::string echoed(text.size(), '\0');
  size_t sent = 0, received = 0;
  while (received < text.size()) {
    if (sent < text.size()) {
      const iovec rest{const_cast<char*>(text.data()) + sent, text.size() - sent};
      sent += connection->Send(&rest, 1);
    } else {
      connection->Flush();
    }
    iovec room{echoed.data() + received, echoed.size() - received};
    const size_t got = connection->Receive(&room, 1);
    received += got;
    const bool is_sending = sent < text.size() || connection->has_unsent();
    if (got == 0) Wait(*connection, static_cast<short>(is_sending ? POLLIN | POLLOUT : POLLIN));
  }
  CHECK(echoed == text && !connection->has_received());
}

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('A' + (i * 7 + i / 251) % 26);
  text[0] = '*';
  return text;
}

std::string TroubleOf(const SocketAddress& address, TlsClient* tls) {
  try {
    Connection connection(address, tls, "127.0.0.1");
    Open(&connection);
    Exchange(&connection, "*hello");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kUnavailable);
    return error.what();
  }
  return "";
}

void TestConnections(const Papers& papers) {
  Running running(papers.served(true));
  const std::shared_ptr<TlsClient> client = MakeTlsClient(papers.calling());
  Connection connection(running.address(), client.get(), "127.0.0.1");
  Open(&connection);
  for (const size_t size : {size_t{1}, size_t{40}, size_t{16'384}, size_t{100'000}, size_t{20} << 20}) {
    Exchange(&connection, Pattern(size));
  }
  const auto fails = [&](const TlsClientOptions& options, const char* why) {
    const std::string trouble = TroubleOf(running.address(), MakeTlsClient(options).get());
    if (trouble.find(why) == std::string::npos) std::fprintf(stderr, "%s: %s\n", why, trouble.c_str());
    CHECK(trouble.find(why) != std::string::npos);
  };
  fails(papers.calling_without(), "requires a certificate");
  fails(papers.calling_as_stranger(), "does not trust our certificate");
  TlsClientOptions trusting_other = papers.calling();
  trusting_other.ca = papers.other.certificate_path;
  fails(trusting_other, "its certificate is not trusted");

  // A new certificate applies to new connections.
  running.server().SetTls(
      {papers.stranger.certificate_path, papers.stranger.key_path, papers.authority.certificate_path});
  Exchange(&connection, "*still here");
  fails(papers.calling(), "its certificate is not trusted");
}

void TestOneSideWithoutTls(const Papers& papers) {
  Running secure(papers.served(false)), plain({});
  const std::shared_ptr<TlsClient> client = MakeTlsClient(papers.calling());
  CHECK(TroubleOf(plain.address(), client.get()).find("does that port speak TLS?") != std::string::npos);
  CHECK(TroubleOf(plain.address(), nullptr).empty());

  Connection connection(secure.address());
  Open(&connection);
  wire::Header header;
  header.id = 77;
  header.opcode = static_cast<uint8_t>(wire::Opcode::kHello);
  uint8_t frame[wire::kHeaderBytes];
  wire::EncodeHeader(frame, header);
  const iovec asked{frame, sizeof frame};
  CHECK(connection.Send(&asked, 1) == sizeof frame);
  std::string answer;
  try {
    while (true) {
      char part[256];
      iovec room{part, sizeof part};
      Wait(connection, POLLIN);
      answer.append(part, connection.Receive(&room, 1));
    }
  } catch (const Error&) {
  }
  CHECK(answer.size() > wire::kHeaderBytes && wire::HasMagic(Bytes(answer)));
  const wire::Header said = wire::DecodeHeader(Bytes(answer));
  CHECK(said.id == 77 && said.status == static_cast<uint8_t>(Code::kFailedPrecondition));
  CHECK(answer.find("this port speaks TLS") != std::string::npos);
}

}  // namespace

int main() {
  char name[] = "/tmp/tls_test.XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  folder = name;
  CHECK(TlsLibrary().starts_with("OpenSSL"));
  {
    const Papers papers;
    TestStreams(papers);
    TestRefusals(papers);
    TestGarbage(papers);
    TestFiles(papers);
    TestConnections(papers);
    TestOneSideWithoutTls(papers);
  }
  std::filesystem::remove_all(folder);
  return 0;
}

#endif
