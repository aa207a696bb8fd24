#include "runtime/cluster/doorkeeper.hpp"

#include "kernels/check.hpp"
#include "messages/wire.hpp"
#include "runtime/cluster/zmq_calls.hpp"

#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr const char* kName = "troupe";  // PLAIN wants one; the token alone counts

// Frames of a question: version, number, domain, address, identity, mechanism, name, password.
constexpr std::size_t kNumber = 1;
constexpr std::size_t kMechanism = 5;
constexpr std::size_t kPassword = 7;
constexpr std::size_t kFrames = 8;

/// The frames of the next message; empty where none has come.
std::vector<std::string> receive(void* socket) {
  std::vector<std::string> frames;
  do {
    ZmqMessage frame;
    if (!frame.receive(socket)) {
      return {};
    }
    frames.emplace_back(reinterpret_cast<const char*>(frame.bytes().data()), frame.bytes().size());
  } while (zmq_option<int>(socket, ZMQ_RCVMORE) != 0);
  return frames;
}

void send(void* socket, const std::vector<std::string>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    zmq_send(socket, frames[i].data(), frames[i].size(), more | ZMQ_DONTWAIT);
  }
}

}  // namespace

Doorkeeper::Doorkeeper(void* context, std::string token)
    : token_(std::move(token)), socket_(zmq_socket(context, ZMQ_REP)) {
  set_zmq_option(socket_, ZMQ_LINGER, 0);
  check_zmq(zmq_bind(socket_, "inproc://zeromq.zap.01") == 0, "the run's doorkeeper");
}

Doorkeeper::~Doorkeeper() {
  zmq_close(socket_);
}

void Doorkeeper::answer() {
  for (;;) {
    const std::vector<std::string> asked = receive(socket_);
    if (asked.size() <= kNumber) {
      return;
    }
    const bool known = asked.size() == kFrames && asked[kMechanism] == "PLAIN" &&
                       same_secret(asked[kPassword], token_);
    send(socket_, {"1.0", asked[kNumber], known ? "200" : "400", known ? "OK" : "unknown", "", ""});
  }
}

void Doorkeeper::guard(void* bound) {
  set_zmq_option(bound, ZMQ_PLAIN_SERVER, 1);
}

void Doorkeeper::show(void* connecting, const std::string& token) {
  check_zmq(zmq_setsockopt(connecting, ZMQ_PLAIN_USERNAME, kName, std::string(kName).size()) == 0,
            "the name of a connection");
  check_zmq(zmq_setsockopt(connecting, ZMQ_PLAIN_PASSWORD, token.data(), token.size()) == 0,
            "the token of a connection");
}

}  // namespace troupe
