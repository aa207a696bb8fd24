// Who may speak on a channel between hosts: CURVE, with a pair of keys that a process makes for one run and never
// writes down. The public ones go over the control streams. The end that listens lets in the one key that its peer
// has; the end that connects knows the key of whom it connects to.
#pragma once

#include <array>
#include <map>
#include <string>

namespace troupe {

/// Keys as ZeroMQ writes them: 40 characters.
constexpr std::size_t kCurveKeySize = 40;

class CurveKeys {
 public:
  /// Throws std::runtime_error where ZeroMQ has no CURVE.
  CurveKeys();
  /// Leaves no secret in memory.
  ~CurveKeys();
  CurveKeys(const CurveKeys&) = delete;
  CurveKeys& operator=(const CurveKeys&) = delete;

  const std::string& public_key() const { return public_; }

  /// For a socket that listens. `domain`: what a Doorkeeper knows its one peer by.
  void guard(void* socket, const std::string& domain) const;
  /// For a socket that connects to whom has `server_key`.
  void show(void* socket, const std::string& server_key) const;

 private:
  std::string public_;
  std::array<char, kCurveKeySize + 1> secret_{};
};

/// Answers ZeroMQ, which asks whether a key is let in (ZAP, RFC 27), for all sockets of a context. Of one thread.
class Doorkeeper {
 public:
  explicit Doorkeeper(void* context);

  void expect(const std::string& domain, const std::string& public_key);

  /// To be polled for reading.
  void* socket() const { return socket_; }

  /// Whatever has been asked.
  void answer();
  /// Before the context ends.
  void close();

 private:
  bool knows(const std::string& domain, const std::string& mechanism, const std::string& key) const;

  void* socket_;
  std::map<std::string, std::string> expected_;  // key by domain
};

}  // namespace troupe
