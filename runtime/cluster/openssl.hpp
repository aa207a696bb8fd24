// OpenSSL's handles as owners, and its errors in words.
#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace troupe {

template <auto kFree>
struct OpensslFree {
  template <class T>
  void operator()(T* handle) const {
    kFree(handle);
  }
};

using OpensslKey = std::unique_ptr<EVP_PKEY, OpensslFree<&EVP_PKEY_free>>;
using OpensslCertificate = std::unique_ptr<X509, OpensslFree<&X509_free>>;
using OpensslContext = std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>>;
using OpensslSession = std::unique_ptr<SSL, OpensslFree<&SSL_free>>;

/// Of the calling thread's last call, "" where it has left none.
inline std::string openssl_words() {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return reason ? reason : "";
}

}  // namespace troupe
