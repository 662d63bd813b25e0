#include "net/tls.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "util/status.h"

#ifdef ELASTICCTR_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

namespace elasticctr::net {

#ifdef ELASTICCTR_TLS

namespace {

constexpr size_t kRecordBytes = 16 * 1024;
constexpr size_t kMaxWriteBytes = 1u << 30;

// Returns the library's first error and clears its queue.
std::string Reason() {
  char text[256] = "unknown reason";
  if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

[[noreturn]] void Refuse(const std::string& what) { throw Error(Code::kConfig, "TLS: " + what + ": " + Reason()); }

// Otherwise OpenSSL would ask for the password of an encrypted key at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

ContextPtr MakeContext(const SSL_METHOD* method) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(method), &SSL_CTX_free);
  if (context == nullptr) Refuse("OpenSSL does not start");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_default_passwd_cb(context.get(), NoPassword);
  return context;
}

void UseCertificate(SSL_CTX* context, const std::string& certificate, const std::string& key) {
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    Refuse("certificate " + certificate + " cannot be used");
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    Refuse("key " + key + " cannot be used with certificate " + certificate);
  }
}

// A description of the peer's alert; empty: not one of these.
std::string ExplainAlert(int reason, bool is_caller) {
  const std::string peer = is_caller ? "the server" : "the client";
  switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return peer + " requires a certificate signed by its client authority (give tls cert and key)";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return peer + " refused the handshake; it may want to see a certificate (tls cert and key)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return peer + " does not trust our certificate: it is of another authority than the one given there (" +
             (is_caller ? "tls client_ca" : "tls ca") + ")";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED: return peer + " says that our certificate has expired";
    default: return "";
  }
}

}  // namespace

std::string TlsLibrary() {
  const std::string text = OpenSSL_version(OPENSSL_VERSION);
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

TlsContext::TlsContext(const TlsOptions& options) {
  ContextPtr context = MakeContext(TLS_server_method());
  UseCertificate(context.get(), options.certificate, options.key);
  if (!options.client_ca.empty()) {
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(options.client_ca.c_str());
    if (names == nullptr || SSL_CTX_load_verify_locations(context.get(), options.client_ca.c_str(), nullptr) != 1) {
      sk_X509_NAME_pop_free(names, X509_NAME_free);
      Refuse("clients' authority " + options.client_ca + " cannot be used");
    }
    SSL_CTX_set_client_CA_list(context.get(), names);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    constexpr unsigned char kName[] = "elasticctr";
    SSL_CTX_set_session_id_context(context.get(), kName, sizeof kName - 1);
  }
  context_ = context.release();
}

TlsContext::TlsContext(const TlsClientOptions& options) : checks_host_(options.checks_host) {
  ContextPtr context = MakeContext(TLS_client_method());
  if (SSL_CTX_load_verify_locations(context.get(), options.ca.c_str(), nullptr) != 1) {
    Refuse("authority " + options.ca + " cannot be used");
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (!options.certificate.empty()) UseCertificate(context.get(), options.certificate, options.key);
  context_ = context.release();
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsStream::TlsStream(const TlsContext& context) {
  Open(context);
  SSL_set_accept_state(ssl_);
}

TlsStream::TlsStream(const TlsContext& context, const std::string& host) : is_caller_(true), host_(host) {
  Open(context);
  SSL_set_connect_state(ssl_);
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_);
  bool is_set = true;
  if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str()); address != nullptr) {
    ASN1_OCTET_STRING_free(address);
    if (context.checks_host_) is_set = X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1;
  } else {
    SSL_set_tlsext_host_name(ssl_, host.c_str());
    if (context.checks_host_) is_set = X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) == 1;
  }
  if (!is_set) {
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  ERR_clear_error();
}

void TlsStream::Open(const TlsContext& context) {
  ssl_ = SSL_new(context.context_);
  if (ssl_ == nullptr) throw std::bad_alloc();
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (in_ == nullptr || out_ == nullptr) {
    BIO_free(in_);
    BIO_free(out_);
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  SSL_set_bio(ssl_, in_, out_);
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

bool TlsStream::is_open() const { return SSL_is_init_finished(ssl_) == 1; }

void TlsStream::Begin(Buffer* out) {
  ERR_clear_error();
  SSL_do_handshake(ssl_);
  ERR_clear_error();
  TakeOutput(out);
}

bool TlsStream::Receive(const uint8_t* data, size_t size, Buffer* plain, Buffer* out) {
  ERR_clear_error();
  // At most a loop's scratch buffer is passed at a time, so lengths fit.
  if (BIO_write(in_, data, static_cast<int>(size)) != static_cast<int>(size)) return false;
  while (true) {
    const int n = SSL_read(ssl_, plain->Reserve(kRecordBytes), static_cast<int>(kRecordBytes));
    if (n > 0) {
      plain->Commit(static_cast<size_t>(n));
      continue;
    }
    const int error = SSL_get_error(ssl_, n);
    TakeOutput(out);
    is_ended_ = is_ended_ || error == SSL_ERROR_ZERO_RETURN;
    // A peer that will send no more may still want its answers.
    const bool is_good = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN;
    if (!is_good) Explain();
    ERR_clear_error();
    return is_good;
  }
}

bool TlsStream::Send(const uint8_t* data, size_t size, Buffer* out) {
  ERR_clear_error();
  while (size != 0) {
    const int n = SSL_write(ssl_, data, static_cast<int>(std::min(size, kMaxWriteBytes)));
    if (n <= 0) {
      Explain();
      ERR_clear_error();
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
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
  TakeOutput(out);
}

void TlsStream::TakeOutput(Buffer* out) {
  while (const size_t waiting = BIO_ctrl_pending(out_)) {
    const int n = BIO_read(out_, out->Reserve(waiting), static_cast<int>(std::min(waiting, kMaxWriteBytes)));
    if (n <= 0) return;
    out->Commit(static_cast<size_t>(n));
  }
}

void TlsStream::Explain() {
  if (!trouble_.empty()) return;  // keep the first reason
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  const char* said = ERR_reason_error_string(code);
  trouble_ = ExplainAlert(reason, is_caller_);
  if (!trouble_.empty()) return;
  const long verdict = SSL_get_verify_result(ssl_);
  if (is_caller_ && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
      trouble_ = "its certificate is not for " + host_ + "; call it by a name that the certificate has";
    } else {
      trouble_ = std::string("its certificate is not trusted: ") + X509_verify_cert_error_string(verdict) +
                 "; give the authority that signed it (tls ca)";
    }
  } else if (is_caller_ && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG)) {
    trouble_ = "does not speak TLS on that port; start it with --cert-file, or leave tls ca out";
  } else {
    trouble_ = std::string("TLS: ") + (said != nullptr ? said : "the connection is broken");
  }
}

#else  // without OpenSSL's headers

namespace {

[[noreturn]] void Missing() {
  throw Error(Code::kConfig, "built without TLS: install OpenSSL's headers (libssl-dev) and build again");
}

}  // namespace

std::string TlsLibrary() { return ""; }

TlsContext::TlsContext(const TlsOptions&) { Missing(); }
TlsContext::TlsContext(const TlsClientOptions&) { Missing(); }
TlsContext::~TlsContext() = default;

// Without a context there is no stream: these are never called.
TlsStream::TlsStream(const TlsContext&) { Missing(); }
TlsStream::TlsStream(const TlsContext&, const std::string&) { Missing(); }
TlsStream::~TlsStream() = default;
bool TlsStream::is_open() const { return false; }
void TlsStream::Begin(Buffer*) {}
bool TlsStream::Receive(const uint8_t*, size_t, Buffer*, Buffer*) { return false; }
bool TlsStream::Send(const uint8_t*, size_t, Buffer*) { return false; }
void TlsStream::End(Buffer*) {}

#endif

TlsClient::TlsClient(TlsClientOptions options)
    : options_(std::move(options)), stamp_(Stamp()), context_(std::make_shared<const TlsContext>(options_)) {}

std::shared_ptr<const TlsContext> TlsClient::Get() {
  const std::lock_guard lock(mutex_);
  // Taken before the files are read, so that changes made meanwhile are noticed next time.
  if (std::vector<int64_t> stamp = Stamp(); stamp != stamp_) {
    stamp_ = std::move(stamp);
    try {
      context_ = std::make_shared<const TlsContext>(options_);
    } catch (const Error&) {
      // Tried again after the next change of a file.
    }
  }
  return context_;
}

std::vector<int64_t> TlsClient::Stamp() const {
  std::vector<int64_t> stamp;
  for (const std::string* path : {&options_.ca, &options_.certificate, &options_.key}) {
    struct stat found{};
    if (path->empty() || ::stat(path->c_str(), &found) != 0) continue;
    stamp.insert(stamp.end(), {static_cast<int64_t>(found.st_mtim.tv_sec), static_cast<int64_t>(found.st_mtim.tv_nsec),
                               static_cast<int64_t>(found.st_size), static_cast<int64_t>(found.st_ino)});
  }
  return stamp;
}

std::shared_ptr<TlsClient> MakeTlsClient(const TlsClientOptions& options) {
  if (options.certificate.empty() != options.key.empty()) {
    throw Error(Code::kConfig, "TLS: a certificate and its key go together: give both or neither");
  }
  if (!options.is_set()) {
    if (options.certificate.empty()) return nullptr;
    throw Error(Code::kConfig, "TLS: a certificate to show needs an authority to check the other side by: give tls ca");
  }
  return std::make_shared<TlsClient>(options);
}

}  // namespace elasticctr::net
