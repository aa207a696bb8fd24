#include "runtime/cluster/curve.hpp"

#include "runtime/cluster/zmq_calls.hpp"

#include <string.h>  // explicit_bzero

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::size_t kRawKeySize = 32;

void set_text(void* socket, int option, const std::string& value) {
  check_zmq(zmq_setsockopt(socket, option, value.data(), value.size()) == 0,
            concat("option ", option, " of a ZeroMQ socket"));
}

/// All frames of a message; none where no message has come.
std::vector<std::string> take_message(void* socket) {
  std::vector<std::string> frames;
  do {
    ZmqMessage frame;
    if (!frame.receive(socket)) {
      return {};
    }
    const auto bytes = frame.bytes();
    frames.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } while (zmq_option<int>(socket, ZMQ_RCVMORE) != 0);
  return frames;
}

}  // namespace

CurveKeys::CurveKeys() {
  std::array<char, kCurveKeySize + 1> shown{};
  check_zmq(zmq_curve_keypair(shown.data(), secret_.data()) == 0, "a pair of keys");
  public_ = shown.data();
}

CurveKeys::~CurveKeys() {
  ::explicit_bzero(secret_.data(), secret_.size());
}

void CurveKeys::guard(void* socket, const std::string& domain) const {
  set_zmq_option(socket, ZMQ_CURVE_SERVER, 1);
  check_zmq(zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_.data(), secret_.size()) == 0,
            "the key of a socket");
  set_text(socket, ZMQ_ZAP_DOMAIN, domain);
}

void CurveKeys::show(void* socket, const std::string& server_key) const {
  set_text(socket, ZMQ_CURVE_SERVERKEY, server_key);
  set_text(socket, ZMQ_CURVE_PUBLICKEY, public_);
  check_zmq(zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_.data(), secret_.size()) == 0,
            "the key of a socket");
}

Doorkeeper::Doorkeeper(void* context) : socket_(zmq_socket(context, ZMQ_REP)) {
  check_zmq(socket_ != nullptr && zmq_bind(socket_, "inproc://zeromq.zap.01") == 0,
            "the doorkeeper of the channels");
  set_zmq_option(socket_, ZMQ_LINGER, 0);
}

void Doorkeeper::expect(const std::string& domain, const std::string& public_key) {
  expected_[domain] = public_key;
}

bool Doorkeeper::knows(const std::string& domain,
                       const std::string& mechanism,
                       const std::string& key) const {
  const auto found = expected_.find(domain);
  if (found == expected_.end() || mechanism != "CURVE" || key.size() != kRawKeySize) {
    return false;
  }
  std::array<char, kCurveKeySize + 1> text{};
  zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(key.data()), key.size());
  return found->second == text.data();
}

void Doorkeeper::answer() {
  for (auto asked = take_message(socket_); !asked.empty(); asked = take_message(socket_)) {
    // Version, number of the request, domain, address, identity, mechanism, key.
    const bool fine = asked.size() == 7 && knows(asked[2], asked[5], asked[6]);
    const std::string number = asked.size() > 1 ? asked[1] : "";
    const std::array<std::string, 6> said{"1.0", number, fine ? "200" : "400", "", "", ""};
    for (std::size_t i = 0; i < said.size(); ++i) {
      const int more = i + 1 < said.size() ? ZMQ_SNDMORE : 0;
      check_zmq(zmq_send(socket_, said[i].data(), said[i].size(), more) >= 0,
                "a doorkeeper's word");
    }
  }
}

void Doorkeeper::close() {
  if (void* const socket = std::exchange(socket_, nullptr)) {
    zmq_close(socket);
  }
}

}  // namespace troupe
