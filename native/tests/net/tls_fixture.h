// Certificates made on the spot, and two ends of TLS with the wires between them in memory.
#pragma once

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "net/buffer.h"
#include "net/tls.h"
#include "tests/check.h"

namespace elasticctr::net {

inline std::filesystem::path folder;  // where they are written

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

inline std::string TextOf(const Buffer& buffer) {
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

inline const uint8_t* Bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace elasticctr::net
