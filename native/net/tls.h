// TLS 1.2 and later by OpenSSL, for both ends of a connection. If OpenSSL's headers are missing at build time, the
// library is built without TLS, and requesting TLS throws ConfigError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/buffer.h"

struct ssl_ctx_st;
struct ssl_st;
struct bio_st;

namespace elasticctr::net {

// The TLS library in use, such as "OpenSSL 3.0.15"; empty: this build has no TLS.
std::string TlsLibrary();

// For servers.
struct TlsOptions {
  std::string certificate;  // PEM, with the chain up to the authority
  std::string key;          // PEM, not encrypted
  std::string client_ca;    // PEM; clients must present a certificate signed by it. Empty: not required

  bool is_set() const { return !certificate.empty(); }
};

// For clients.
struct TlsClientOptions {
  std::string ca;           // PEM: authority of the servers' certificates
  std::string certificate;  // the client's own, with its key, for servers that require one; or both empty
  std::string key;
  bool checks_host = true;  // the server's certificate must name the host or address of the connection

  bool is_set() const { return !ca.empty(); }
};

// Loaded certificates and keys. Any number of threads may create streams from it.
class TlsContext {
 public:
  // Throw ConfigError: built without TLS, an unreadable file, a key that does not match the certificate.
  explicit TlsContext(const TlsOptions& options);
  explicit TlsContext(const TlsClientOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  ssl_ctx_st* context_ = nullptr;
  bool checks_host_ = false;
};

// A client's context, reloaded when one of its files has changed. Any thread.
class TlsClient {
 public:
  // Throws as TlsContext.
  explicit TlsClient(TlsClientOptions options);
  // The context for a new connection. Unusable files, such as half-replaced ones, leave the previous context in place.
  std::shared_ptr<const TlsContext> Get();

 private:
  std::vector<int64_t> Stamp() const;

  const TlsClientOptions options_;
  std::mutex mutex_;  // guards all below
  std::vector<int64_t> stamp_;
  std::shared_ptr<const TlsContext> context_;
};

// A client for these options; null if they name no authority: connections are then unencrypted. Throws as TlsContext,
// and if a certificate is given without an authority.
std::shared_ptr<TlsClient> MakeTlsClient(const TlsClientOptions& options);

// One connection's encryption. It handles bytes only, no sockets.
class TlsStream {
 public:
  // The server's end. Both constructors REQUIRE: `context` outlives the stream.
  explicit TlsStream(const TlsContext& context);
  // The client's end of a connection to `host`, a name or an address.
  TlsStream(const TlsContext& context, const std::string& host);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes bytes received from the network. Appends decrypted bytes to `plain` and bytes to be sent (handshake, alerts)
  // to `out`. False: this is not TLS, or one end refuses the other; send `out` and close.
  bool Receive(const uint8_t* data, size_t size, Buffer* plain, Buffer* out);
  // Encrypts into `out`. False: the stream is broken. REQUIRES: is_open().
  bool Send(const uint8_t* data, size_t size, Buffer* out);
  // Writes the client's first handshake message to `out`.
  void Begin(Buffer* out);
  // Writes the closing alert to `out`.
  void End(Buffer* out);
  // Whether the handshake is done.
  bool is_open() const;
  // The peer has announced that it will send no more.
  bool is_ended() const { return is_ended_; }
  // Why Receive or Send failed, and what to do about it.
  const std::string& trouble() const { return trouble_; }

 private:
  void Open(const TlsContext& context);
  void TakeOutput(Buffer* out);
  void Explain();

  ssl_st* ssl_ = nullptr;
  bio_st* in_ = nullptr;  // BIOs in memory, owned by ssl_
  bio_st* out_ = nullptr;
  bool is_caller_ = false;
  bool is_ended_ = false;
  std::string host_;
  std::string trouble_;
};

}  // namespace elasticctr::net
