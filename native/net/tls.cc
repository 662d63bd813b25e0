#include "net/tls.h"

#include <dlfcn.h>

#include <algorithm>
#include <new>

#include "util/status.h"

namespace elasticctr::net {
namespace {

// What we use of libssl and libcrypto, versions 1.1 and 3: the same in both.
struct Library {
  const void* (*TLS_server_method)();
  void* (*SSL_CTX_new)(const void* method);
  void (*SSL_CTX_free)(void*);
  long (*SSL_CTX_ctrl)(void*, int command, long number, void* pointer);
  unsigned long (*SSL_CTX_set_options)(void*, unsigned long);
  void (*SSL_CTX_set_default_passwd_cb)(void*, int (*callback)(char*, int, int, void*));
  int (*SSL_CTX_use_certificate_chain_file)(void*, const char*);
  int (*SSL_CTX_use_PrivateKey_file)(void*, const char*, int type);
  int (*SSL_CTX_check_private_key)(const void*);
  int (*SSL_CTX_load_verify_locations)(void*, const char* file, const char* directory);
  void (*SSL_CTX_set_verify)(void*, int mode, int (*callback)(int, void*));
  int (*SSL_CTX_set_session_id_context)(void*, const unsigned char*, unsigned);
  void* (*SSL_load_client_CA_file)(const char*);
  void (*SSL_CTX_set_client_CA_list)(void*, void* names);
  void* (*SSL_new)(void*);
  void (*SSL_free)(void*);
  void (*SSL_set_bio)(void*, void* in, void* out);
  void (*SSL_set_accept_state)(void*);
  int (*SSL_read)(void*, void*, int);
  int (*SSL_write)(void*, const void*, int);
  int (*SSL_shutdown)(void*);
  int (*SSL_get_error)(const void*, int);
  int (*SSL_is_init_finished)(const void*);
  void* (*BIO_new)(const void* method);
  const void* (*BIO_s_mem)();
  int (*BIO_read)(void*, void*, int);
  int (*BIO_write)(void*, const void*, int);
  size_t (*BIO_ctrl_pending)(void*);
  unsigned long (*ERR_get_error)();
  void (*ERR_error_string_n)(unsigned long, char*, size_t);
  void (*ERR_clear_error)();
};

constexpr int kFilePem = 1;             // SSL_FILETYPE_PEM
constexpr int kErrorWantRead = 2;       // SSL_ERROR_WANT_READ
constexpr int kErrorZeroReturn = 6;     // SSL_ERROR_ZERO_RETURN
constexpr int kSetMinVersion = 123;     // SSL_CTRL_SET_MIN_PROTO_VERSION
constexpr long kTls12 = 0x0303;         // TLS1_2_VERSION
constexpr int kMode = 33;               // SSL_CTRL_MODE
constexpr long kReleaseBuffers = 0x10;  // SSL_MODE_RELEASE_BUFFERS
constexpr int kVerifyPeer = 1;          // SSL_VERIFY_PEER
constexpr int kVerifyRequired = 2;      // SSL_VERIFY_FAIL_IF_NO_PEER_CERT
constexpr unsigned long kOptions =      // no renegotiation, no compression
    (1ul << 30) | (1ul << 17);
constexpr size_t kRecordBytes = 16 * 1024;
constexpr size_t kMaxWriteBytes = 1u << 30;

template <typename Function>
void Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (*function == nullptr) throw Error(Code::kConfig, std::string("TLS: the system's libssl has no ") + name);
}

Library Load() {
  void* handle = nullptr;
  for (const char* name : {"libssl.so.3", "libssl.so.1.1"}) {
    handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  if (handle == nullptr) {
    throw Error(Code::kConfig,
                "TLS: neither libssl.so.3 nor libssl.so.1.1 is on this machine; install OpenSSL, or put a proxy that "
                "does TLS in front");
  }
  Library library{};
#define ELASTICCTR_FIND(name) Find(handle, #name, &library.name)
  ELASTICCTR_FIND(TLS_server_method);
  ELASTICCTR_FIND(SSL_CTX_new);
  ELASTICCTR_FIND(SSL_CTX_free);
  ELASTICCTR_FIND(SSL_CTX_ctrl);
  ELASTICCTR_FIND(SSL_CTX_set_options);
  ELASTICCTR_FIND(SSL_CTX_set_default_passwd_cb);
  ELASTICCTR_FIND(SSL_CTX_use_certificate_chain_file);
  ELASTICCTR_FIND(SSL_CTX_use_PrivateKey_file);
  ELASTICCTR_FIND(SSL_CTX_check_private_key);
  ELASTICCTR_FIND(SSL_CTX_load_verify_locations);
  ELASTICCTR_FIND(SSL_CTX_set_verify);
  ELASTICCTR_FIND(SSL_CTX_set_session_id_context);
  ELASTICCTR_FIND(SSL_load_client_CA_file);
  ELASTICCTR_FIND(SSL_CTX_set_client_CA_list);
  ELASTICCTR_FIND(SSL_new);
  ELASTICCTR_FIND(SSL_free);
  ELASTICCTR_FIND(SSL_set_bio);
  ELASTICCTR_FIND(SSL_set_accept_state);
  ELASTICCTR_FIND(SSL_read);
  ELASTICCTR_FIND(SSL_write);
  ELASTICCTR_FIND(SSL_shutdown);
  ELASTICCTR_FIND(SSL_get_error);
  ELASTICCTR_FIND(SSL_is_init_finished);
  ELASTICCTR_FIND(BIO_new);
  ELASTICCTR_FIND(BIO_s_mem);
  ELASTICCTR_FIND(BIO_read);
  ELASTICCTR_FIND(BIO_write);
  ELASTICCTR_FIND(BIO_ctrl_pending);
  ELASTICCTR_FIND(ERR_get_error);
  ELASTICCTR_FIND(ERR_error_string_n);
  ELASTICCTR_FIND(ERR_clear_error);
#undef ELASTICCTR_FIND
  return library;
}

const Library& Ssl() {
  static const Library library = Load();
  return library;
}

// The library's first complaint, and none left.
std::string Reason() {
  char text[256] = "unknown reason";
  if (unsigned long code = Ssl().ERR_get_error(); code != 0) Ssl().ERR_error_string_n(code, text, sizeof text);
  Ssl().ERR_clear_error();
  return text;
}

[[noreturn]] void Refuse(const std::string& what) { throw Error(Code::kConfig, "TLS: " + what + ": " + Reason()); }

// An encrypted key would otherwise be asked for at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace

TlsContext::TlsContext(const TlsOptions& options) {
  const Library& ssl = Ssl();
  ssl.ERR_clear_error();
  std::unique_ptr<void, void (*)(void*)> context(ssl.SSL_CTX_new(ssl.TLS_server_method()), ssl.SSL_CTX_free);
  if (context == nullptr) Refuse("libssl does not start");
  ssl.SSL_CTX_ctrl(context.get(), kSetMinVersion, kTls12, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), kMode, kReleaseBuffers, nullptr);
  ssl.SSL_CTX_set_options(context.get(), kOptions);
  ssl.SSL_CTX_set_default_passwd_cb(context.get(), NoPassword);
  if (ssl.SSL_CTX_use_certificate_chain_file(context.get(), options.certificate.c_str()) != 1) {
    Refuse("certificate " + options.certificate + " cannot be used");
  }
  if (ssl.SSL_CTX_use_PrivateKey_file(context.get(), options.key.c_str(), kFilePem) != 1 ||
      ssl.SSL_CTX_check_private_key(context.get()) != 1) {
    Refuse("key " + options.key + " cannot be used with certificate " + options.certificate);
  }
  if (!options.client_ca.empty()) {
    void* names = ssl.SSL_load_client_CA_file(options.client_ca.c_str());
    if (names == nullptr || ssl.SSL_CTX_load_verify_locations(context.get(), options.client_ca.c_str(), nullptr) != 1) {
      Refuse("clients' authority " + options.client_ca + " cannot be used");
    }
    ssl.SSL_CTX_set_client_CA_list(context.get(), names);
    ssl.SSL_CTX_set_verify(context.get(), kVerifyPeer | kVerifyRequired, nullptr);
    constexpr unsigned char kName[] = "elasticctr";
    ssl.SSL_CTX_set_session_id_context(context.get(), kName, sizeof kName - 1);
  }
  context_ = context.release();
}

TlsContext::~TlsContext() { Ssl().SSL_CTX_free(context_); }

TlsStream::TlsStream(const TlsContext& context) {
  const Library& ssl = Ssl();
  ssl_ = ssl.SSL_new(context.context_);
  if (ssl_ == nullptr) throw std::bad_alloc();
  in_ = ssl.BIO_new(ssl.BIO_s_mem());
  out_ = ssl.BIO_new(ssl.BIO_s_mem());
  if (in_ == nullptr || out_ == nullptr) {
    ssl.SSL_free(ssl_);  // a BIO alone is lost, with all other memory
    throw std::bad_alloc();
  }
  ssl.SSL_set_bio(ssl_, in_, out_);
  ssl.SSL_set_accept_state(ssl_);
}

TlsStream::~TlsStream() { Ssl().SSL_free(ssl_); }

bool TlsStream::is_open() const { return Ssl().SSL_is_init_finished(ssl_) == 1; }

bool TlsStream::Receive(const uint8_t* data, size_t size, Buffer* plain, Buffer* out) {
  const Library& ssl = Ssl();
  ssl.ERR_clear_error();
  // At most a loop's scratch buffer comes at a time, so lengths fit.
  if (ssl.BIO_write(in_, data, static_cast<int>(size)) != static_cast<int>(size)) return false;
  while (true) {
    int n = ssl.SSL_read(ssl_, plain->Reserve(kRecordBytes), static_cast<int>(kRecordBytes));
    if (n > 0) {
      plain->Commit(static_cast<size_t>(n));
      continue;
    }
    int error = ssl.SSL_get_error(ssl_, n);
    TakeOutput(out);
    ssl.ERR_clear_error();
    // A peer that says it will send no more may still want its answers.
    return error == kErrorWantRead || error == kErrorZeroReturn;
  }
}

bool TlsStream::Send(const uint8_t* data, size_t size, Buffer* out) {
  const Library& ssl = Ssl();
  ssl.ERR_clear_error();
  while (size != 0) {
    int n = ssl.SSL_write(ssl_, data, static_cast<int>(std::min(size, kMaxWriteBytes)));
    if (n <= 0) {
      ssl.ERR_clear_error();
      return false;
    }
    data += n;
    size -= static_cast<size_t>(n);
  }
  TakeOutput(out);
  return true;
}

void TlsStream::End(Buffer* out) {
  if (!is_open()) return;
  Ssl().ERR_clear_error();
  Ssl().SSL_shutdown(ssl_);
  Ssl().ERR_clear_error();
  TakeOutput(out);
}

void TlsStream::TakeOutput(Buffer* out) {
  const Library& ssl = Ssl();
  while (size_t waiting = ssl.BIO_ctrl_pending(out_)) {
    int n = ssl.BIO_read(out_, out->Reserve(waiting), static_cast<int>(std::min(waiting, kMaxWriteBytes)));
    if (n <= 0) return;
    out->Commit(static_cast<size_t>(n));
  }
}

}  // namespace elasticctr::net
