// TLS of both ends: streams in memory, fed a byte at a time, and connections to a real server. Certificates are made
// here. Run under the thread and address sanitizers.

// PROMISE: traffic changed on its way, a false server | every byte unchanged, or a refusal that says why

// PROMISE: a client's certificate replaced on disk | used for new connections; files that do not fit change nothing

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

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
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
#include "util/status.h"

using namespace elasticctr;
using namespace elasticctr::net;

namespace {

std::filesystem::path folder;

// A key and its certificate, signed by `issuer` or by itself.
struct Pair {
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  std::string certificate_path, key_path;

  Pair(const std::string& name, const Pair* issuer, const char* alternative) {
    EVP_PKEY_CTX* making = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nullptr);
    CHECK(EVP_PKEY_keygen_init(making) == 1);
    CHECK(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(making, NID_X9_62_prime256v1) == 1);
    CHECK(EVP_PKEY_keygen(making, &key) == 1);
    EVP_PKEY_CTX_free(making);
    certificate = X509_new();
    X509_set_version(certificate, 2);
    static long number = 1;
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), number++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(certificate, issuer == nullptr ? subject : X509_get_subject_name(issuer->certificate));
    Extend(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    if (alternative != nullptr) Extend(NID_subject_alt_name, alternative);
    CHECK(X509_sign(certificate, issuer == nullptr ? key : issuer->key, EVP_sha256()) > 0);
    certificate_path = (folder / (name + ".pem")).string();
    key_path = (folder / (name + "-key.pem")).string();
    WriteTo(certificate_path, key_path);
  }
  ~Pair() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  Pair(const Pair&) = delete;

  void WriteTo(const std::string& certificate_file, const std::string& key_file) const {
    std::FILE* file = std::fopen((certificate_file + ".new").c_str(), "w");
    CHECK(file != nullptr && PEM_write_X509(file, certificate) == 1 && std::fclose(file) == 0);
    file = std::fopen((key_file + ".new").c_str(), "w");
    CHECK(file != nullptr && PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
    CHECK(std::fclose(file) == 0);
    std::filesystem::rename(certificate_file + ".new", certificate_file);
    std::filesystem::rename(key_file + ".new", key_file);
  }

 private:
  void Extend(int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
  }
};

struct Papers {
  Pair authority{"authority", nullptr, nullptr};
  Pair other{"other", nullptr, nullptr};
  Pair server{"server", &authority, "IP:127.0.0.1,DNS:cube.example"};
  Pair client{"client", &authority, nullptr};
  Pair stranger{"stranger", &other, nullptr};

  TlsOptions served(bool is_mutual) const {
    return {server.certificate_path, server.key_path, is_mutual ? authority.certificate_path : ""};
  }
  TlsClientOptions calling() const { return {authority.certificate_path, client.certificate_path, client.key_path}; }
  TlsClientOptions calling_without() const { return {authority.certificate_path, "", ""}; }
  TlsClientOptions calling_as_stranger() const {
    return {authority.certificate_path, stranger.certificate_path, stranger.key_path};
  }
};

std::string TextOf(const Buffer& buffer) {
  return buffer.empty() ? "" : std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

// Two streams and the wires between them, cut into pieces of `step` bytes.
struct Wire {
  Wire(const TlsContext& server_context, const TlsContext& client_context, const std::string& host, size_t step)
      : server(server_context), client(client_context, host), step(step) {
    client.Begin(&to_server);
  }

  // Until both are silent. False: one of them refused.
  bool Run() {
    bool is_good = true;
    while (is_good && (!to_server.empty() || !to_client.empty())) {
      is_good &= Move(&to_server, &server, &server_plain, &to_client);
      is_good &= Move(&to_client, &client, &client_plain, &to_server);
    }
    // The last words of one who refused reach the other.
    while (!to_client.empty()) Move(&to_client, &client, &client_plain, &to_server);
    while (!to_server.empty()) Move(&to_server, &server, &server_plain, &to_client);
    return is_good;
  }
  bool Move(Buffer* from, TlsStream* to, Buffer* plain, Buffer* answers) const {
    const size_t size = std::min(step, from->size());
    if (size == 0) return true;
    const bool is_good = to->Receive(from->data(), size, plain, answers);
    from->Consume(size);
    return is_good;
  }

  TlsStream server, client;
  const size_t step;
  Buffer to_server, to_client, server_plain, client_plain;
};

const uint8_t* Bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

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
  CheckRefused(papers, papers.calling_without(), "127.0.0.1", "wants to see a certificate");
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
  // Half a handshake waits for the rest.
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
  CHECK(client->Get() == first);  // the key does not fit yet
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
  explicit Running(std::shared_ptr<const TlsContext> tls) : server_(Options(std::move(tls)), &echo_) {
    server_.Start();
  }
  ~Running() { server_.Stop(1); }
  Server& server() { return server_; }
  SocketAddress address() const { return Resolve("127.0.0.1:" + std::to_string(server_.ports()[0]), true); }

 private:
  static ServerOptions Options(std::shared_ptr<const TlsContext> tls) {
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

// Sends all and reads all of the echo, as much at a time as goes.
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
  Running running(std::make_shared<const TlsContext>(papers.served(true)));
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
  fails(papers.calling_without(), "wants to see a certificate");
  fails(papers.calling_as_stranger(), "does not trust our certificate");
  TlsClientOptions trusting_other = papers.calling();
  trusting_other.ca = papers.other.certificate_path;
  fails(trusting_other, "its certificate is not trusted");

  // A new certificate is for new connections.
  running.server().SetTls(std::make_shared<const TlsContext>(
      TlsOptions{papers.stranger.certificate_path, papers.stranger.key_path, papers.authority.certificate_path}));
  Exchange(&connection, "*still here");
  fails(papers.calling(), "its certificate is not trusted");
}

void TestOneSideWithoutTls(const Papers& papers) {
  Running secure(std::make_shared<const TlsContext>(papers.served(false))), plain(nullptr);
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
