// Lets into a process's channels who knows the run's token, before a byte of theirs is read as a message:
// ZeroMQ asks it about each connection (ZMTP's PLAIN mechanism; rfc.zeromq.org/spec/27).
#pragma once

#include <string>

namespace troupe {

class Doorkeeper {
 public:
  /// Asked about all sockets of `context` that guard() has made. Both outlive it.
  Doorkeeper(void* context, std::string token);
  ~Doorkeeper();
  Doorkeeper(const Doorkeeper&) = delete;
  Doorkeeper& operator=(const Doorkeeper&) = delete;

  /// To be polled for input.
  void* socket() const { return socket_; }

  /// Answers all that has been asked.
  void answer();

  /// Of a socket that will be bound: who connects has to show the token. Of one that will be connected:
  /// shows it.
  static void guard(void* bound);
  static void show(void* connecting, const std::string& token);

 private:
  std::string token_;
  void* socket_;
};

}  // namespace troupe
