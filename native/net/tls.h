// TLS for connections that others open to us, by the system's libssl. It is looked for when a certificate is given, and
// never needed otherwise. Versions 1.2 and later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "net/buffer.h"

namespace elasticctr::net {

struct TlsOptions {
  std::string certificate;  // PEM, with the chain up to the authority
  std::string key;          // PEM, not encrypted
  std::string client_ca;    // PEM; clients must show a certificate of it. Empty: they need none
};

// Certificate and key, ready for use. Any number of threads may make streams of it.
class TlsContext {
 public:
  // Throws ConfigError: no libssl here, a file that cannot be read, a key of another certificate.
  explicit TlsContext(const TlsOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  void* context_ = nullptr;  // SSL_CTX
};

// One connection's encryption. Knows no sockets: bytes go in and come out.
class TlsStream {
 public:
  // REQUIRES: `context` outlives it.
  explicit TlsStream(const TlsContext& context);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes bytes off the network. What they decrypt to is appended to `plain`, what must be sent (handshake, alerts) to
  // `out`. False: this is not TLS, or the peer is refused; send `out` and close.
  bool Receive(const uint8_t* data, size_t size, Buffer* plain, Buffer* out);
  // Encrypts into `out`. False: broken.
  bool Send(const uint8_t* data, size_t size, Buffer* out);
  // A last word, into `out`.
  void End(Buffer* out);
  // Whether the handshake is done.
  bool is_open() const;

 private:
  void TakeOutput(Buffer* out);

  void* ssl_ = nullptr;
  void* in_ = nullptr;  // BIOs in memory, owned by ssl_
  void* out_ = nullptr;
};

}  // namespace elasticctr::net
