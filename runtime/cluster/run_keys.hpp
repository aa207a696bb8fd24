// Who may speak on a channel between hosts: TLS 1.3 with a key that a process makes for one run and never writes down.
// The public ones go over the control streams, and each end lets in the one key that its peer has.
#pragma once

#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/tls.hpp"

#include <memory>
#include <string>

namespace troupe {

/// A public key as it is told: of Ed25519, in hexadecimal digits.
constexpr std::size_t kRunKeySize = 64;

class RunKeys {
 public:
  /// Throws std::runtime_error where they cannot be made.
  RunKeys();

  const std::string& public_key() const { return public_key_; }

  enum class End { connects, listens };

  /// A stream over a socket, which it owns, to who has `key`, which has to stay where it is: until that has been shown
  /// nothing is read from the other end, nor said to it. No call waits.
  std::unique_ptr<TlsStream> secure(int socket, const std::string& key, End end) const;

 private:
  KeyPair own_;
  std::string public_key_;
  OpensslContext context_;
};

/// By what such streams are encrypted here, for people: "OpenSSL 3.0.19, TLS_AES_128_GCM_SHA256, not by the kernel, ...". It is
/// tried on a connection of this process to itself.
std::string tls_words();

}  // namespace troupe
