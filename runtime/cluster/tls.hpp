// Who a host is, and streams between hosts that have shown it: TLS 1.3 with certificates of one authority at both
// ends (keys.hpp).
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/openssl.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace troupe {

/// Error (usage) where there is none in the file, or others of this machine may read it.
Result<OpensslKey> read_private_key(const std::filesystem::path& path);
/// Error (usage) where there is none in the file.
Result<OpensslCertificate> read_certificate(const std::filesystem::path& path);

/// TLS 1.3 as one end that shows `certificate`, and asks the other to show its own; whom it believes is the caller's to
/// say. Error (usage) where it cannot be had.
Result<OpensslContext> make_tls(X509* certificate, EVP_PKEY* key);

/// A stream of TLS, whose first words are those by which both ends show their certificates.
class TlsStream final : public ControlStream {
 public:
  /// Owns the socket.
  TlsStream(OpensslSession session, int socket);
  ~TlsStream() override;

  Passed read(std::span<char> into) override;
  Passed write(std::span<const char> bytes) override;
  void finish() override;

  int descriptor() const override { return socket_; }

  bool is_known() const override { return SSL_is_init_finished(session_.get()) != 0; }

  std::string trouble() const override { return trouble_; }

  /// "TLS_AES_128_GCM_SHA256"; once the other end is known.
  std::string cipher() const;

  /// What the kernel encrypts or decrypts by itself; once the other end is known.
  struct ByKernel {
    bool sends = false;
    bool reads = false;
  };

  ByKernel by_kernel() const;

  /// Whose certificate the other end has shown.
  std::string peer() const;

 private:
  friend class Credentials;
  Talk shake_hands(const Patience& patience);
  Passed passed(int result, std::size_t bytes);

  OpensslSession session_;
  int socket_;
  std::string trouble_{};
};

/// What a host shows, and whom it believes.
class Credentials {
 public:
  /// Of a folder with ca.pem and one pair of HOST.pem and HOST.key. Everything that could be wrong is looked at
  /// here: files that are missing, that others may read or that do not belong together, and what has expired.
  /// Error (usage): a sentence.
  static Result<Credentials> load(const std::filesystem::path& folder);

  /// The host's name in its certificate.
  const std::string& name() const { return name_; }

  /// Takes the socket. Error (lost): why the other end is not believed, or does not believe this one. As the
  /// one that has connected to `host`, which must stand in the other's certificate ...
  Result<std::unique_ptr<TlsStream>> greet(int socket,
                                           const std::string& host,
                                           const Patience& patience) const;
  /// ... or as the one that was connected to.
  Result<std::unique_ptr<TlsStream>> welcome(int socket, const Patience& patience) const;

 private:
  Credentials(OpensslContext context, std::string name)
      : context_(std::move(context)), name_(std::move(name)) {}

  OpensslContext context_;
  std::string name_;
};

}  // namespace troupe
