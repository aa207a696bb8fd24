#include "runtime/cluster/run_keys.hpp"

#include "kernels/check.hpp"
#include "runtime/cluster/tcp.hpp"

#include <poll.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace troupe {
namespace {

constexpr std::size_t kReadAhead = std::size_t{64} << 10;  // bytes that one call fetches

/// "" where it is none of Ed25519.
std::string hex_of(const EVP_PKEY* key) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::array<unsigned char, kRunKeySize / 2> raw{};
  std::size_t size = raw.size();
  if (!key || EVP_PKEY_get_raw_public_key(key, raw.data(), &size) != 1 || size != raw.size()) {
    ERR_clear_error();
    return "";
  }
  std::string text;
  for (const unsigned char byte : raw) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// In place of OpenSSL's own judgement, which asks who has signed a certificate: here its key tells.
int believe(X509_STORE_CTX* shown, void* /*more*/) {
  const auto* session = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(shown, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* expected = static_cast<const std::string*>(SSL_get_app_data(session));
  const X509* const certificate = X509_STORE_CTX_get0_cert(shown);
  const bool fine =
      certificate && !expected->empty() && hex_of(X509_get0_pubkey(certificate)) == *expected;
  X509_STORE_CTX_set_error(shown, fine ? X509_V_OK : X509_V_ERR_CERT_REJECTED);
  return fine ? 1 : 0;
}

OpensslContext conhex_of(const KeyPair& own) {
  auto made = make_tls(own.certificate.get(), own.key.get());
  if (!made) {
    throw std::runtime_error(made.error().message);
  }
  SSL_CTX_set_cert_verify_callback(made->get(), believe, nullptr);
  SSL_CTX_set_default_read_buffer_len(made->get(), kReadAhead);
  SSL_CTX_set_read_ahead(made->get(), 1);
  return *std::move(made);
}

}  // namespace

RunKeys::RunKeys()
    : own_(make_key_pair("troupe run")),
      public_key_(hex_of(own_.key.get())),
      context_(conhex_of(own_)) {}

std::unique_ptr<TlsStream> RunKeys::secure(int socket, const std::string& key, End end) const {
  OpensslSession session(SSL_new(context_.get()));
  SSL_set_app_data(session.get(), const_cast<std::string*>(&key));
  SSL_set_fd(session.get(), socket);
  end == End::connects ? SSL_set_connect_state(session.get()) : SSL_set_accept_state(session.get());
  return std::make_unique<TlsStream>(std::move(session), socket);
}

namespace {

constexpr int kTries = 200;
constexpr int kPause = 10;  // milliseconds

/// How a stream of this process to itself has come about; null where it has not.
std::unique_ptr<TlsStream> own_stream(const RunKeys& keys) {
  const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
  if (!listening) {
    return nullptr;
  }
  const DescriptorStream listener(*listening, *listening);  // closes it
  const auto address = parse_address(near_address(*listening));
  const auto there = address ? begin_to_connect(*address) : Result<int>(address.error());
  if (!there) {
    return nullptr;
  }
  auto near = keys.secure(*there, keys.public_key(), RunKeys::End::connects);
  std::unique_ptr<TlsStream> far;
  for (int i = 0; i < kTries && !(far && far->is_known() && near->is_known()); ++i) {
    std::string who;
    const int accepted = far ? -1 : accept_one(*listening, who);
    if (accepted >= 0) {
      far = keys.secure(accepted, keys.public_key(), RunKeys::End::listens);
    }
    char byte = 0;
    near->write({&byte, 1});
    if (far) {
      far->read({&byte, 1});
    }
    ::poll(nullptr, 0, near->is_known() ? 0 : kPause);
  }
  return near->is_known() ? std::move(near) : nullptr;
}

}  // namespace

std::string tls_words() {
  const RunKeys keys;
  const auto stream = own_stream(keys);
  const std::string library = concat("OpenSSL ", OpenSSL_version(OPENSSL_VERSION_STRING));
  if (!stream) {
    return library + ", but no stream comes about over the loopback device";
  }
  const auto [sends, reads] = stream->by_kernel();
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_ulp");  // by now its module is loaded
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  return concat(library,
                ", ",
                stream->cipher(),
                sends && reads ? ", by the kernel"
                : sends        ? ", what is sent by the kernel"
                : all.find("tls") == std::string::npos
                    ? ", not by the kernel, which offers no TLS (`modprobe tls`)"
                    : ", not by the kernel, which offers TLS that this OpenSSL does not use");
}

}  // namespace troupe
