// ZeroMQ's C calls, with their errors as exceptions and its messages as a class.
#pragma once

#include "kernels/check.hpp"

#include <zmq.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace troupe {

inline void check_zmq(bool fine, const std::string& what) {
  if (!fine) {
    throw std::runtime_error(concat(what, " failed: ", zmq_strerror(zmq_errno())));
  }
}

inline void set_zmq_option(void* socket, int option, int value) {
  check_zmq(zmq_setsockopt(socket, option, &value, sizeof value) == 0,
            concat("option ", option, " of a ZeroMQ socket"));
}

template <class T>
T zmq_option(void* socket, int option) {
  T value{};
  std::size_t size = sizeof value;
  check_zmq(zmq_getsockopt(socket, option, &value, &size) == 0,
            concat("option ", option, " of a ZeroMQ socket"));
  return value;
}

/// One frame.
class ZmqMessage {
 public:
  ZmqMessage() { zmq_msg_init(&message_); }

  /// Of bytes that are read where they lie, until `let_go(nullptr, keeper)` is called, by a thread of
  /// ZeroMQ's.
  ZmqMessage(std::span<const std::byte> bytes, zmq_free_fn* let_go, void* keeper) {
    check_zmq(
        zmq_msg_init_data(
            &message_, const_cast<std::byte*>(bytes.data()), bytes.size(), let_go, keeper) == 0,
        "a message");
  }

  ~ZmqMessage() { zmq_msg_close(&message_); }

  ZmqMessage(const ZmqMessage&) = delete;
  ZmqMessage& operator=(const ZmqMessage&) = delete;

  /// False where none has come.
  bool receive(void* socket) { return done(zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT)); }

  /// False where there is no room now; then it is still the caller's.
  bool send(void* socket) { return done(zmq_msg_send(&message_, socket, ZMQ_DONTWAIT)); }

  std::span<const std::byte> bytes() {
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }

 private:
  static bool done(int result) {
    check_zmq(result >= 0 || zmq_errno() == EAGAIN || zmq_errno() == EINTR, "a channel");
    return result >= 0;
  }

  zmq_msg_t message_;
};

}  // namespace troupe
