// TLS 1.2 and later by OpenSSL, for both ends of a connection. Without its headers at build time the rest is built, and
// asking for TLS is a ConfigError.
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

// Whether this build can do TLS, and the library it found, such as "OpenSSL 3.0.15"; empty: it cannot.
std::string TlsLibrary();

// For those who are called.
struct TlsOptions {
  std::string certificate;  // PEM, with the chain up to the authority
  std::string key;          // PEM, not encrypted
  std::string client_ca;    // PEM; clients must show a certificate of it. Empty: they need none

  bool is_set() const { return !certificate.empty(); }
};

// For those who call.
struct TlsClientOptions {
  std::string ca;           // PEM: authority of the servers' certificates
  std::string certificate;  // own one, with its key, for servers that want to see it; or both empty
  std::string key;
  bool checks_host = true;  // the server's certificate must name the host or address that was called

  bool is_set() const { return !ca.empty(); }
};

// Certificates and keys, ready for use. Any number of threads may make streams of it.
class TlsContext {
 public:
  // Throw ConfigError: built without TLS, a file that cannot be read, a key of another certificate.
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

// The context of a client, read again when one of its files has changed. Any thread.
class TlsClient {
 public:
  // Throws as TlsContext.
  explicit TlsClient(TlsClientOptions options);
  // For a connection made now. Files that cannot be used, half replaced ones say, leave it as it was.
  std::shared_ptr<const TlsContext> Get();

 private:
  std::vector<int64_t> Stamp() const;

  const TlsClientOptions options_;
  std::mutex mutex_;  // guards all below
  std::vector<int64_t> stamp_;
  std::shared_ptr<const TlsContext> context_;
};

// A client as the options want it; null where they name no authority: nothing is encrypted then. Throws as TlsContext,
// and if a certificate is given without an authority.
std::shared_ptr<TlsClient> MakeTlsClient(const TlsClientOptions& options);

// One connection's encryption. Knows no sockets: bytes go in and come out.
class TlsStream {
 public:
  // Of one who is called. REQUIRES, of both: `context` outlives it.
  explicit TlsStream(const TlsContext& context);
  // Of one who calls `host`, a name or an address.
  TlsStream(const TlsContext& context, const std::string& host);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes bytes off the network. What they decrypt to is appended to `plain`, what must be sent (handshake, alerts) to
  // `out`. False: this is not TLS, or one end refuses the other; send `out` and close.
  bool Receive(const uint8_t* data, size_t size, Buffer* plain, Buffer* out);
  // Encrypts into `out`. False: broken. REQUIRES: is_open().
  bool Send(const uint8_t* data, size_t size, Buffer* out);
  // The caller's first words, into `out`.
  void Begin(Buffer* out);
  // A last word, into `out`.
  void End(Buffer* out);
  // Whether the handshake is done.
  bool is_open() const;
  // The peer has said that it will send no more.
  bool is_ended() const { return is_ended_; }
  // Why Receive or Send said no, and what to do about it.
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
