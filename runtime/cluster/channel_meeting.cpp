// How the streams of a channel come about. The end that connects makes one for headers, greets, and when the first tensor is to
// follow a header of either end makes those for tensors. The end that listens takes whoever may come for a visitor until it has greeted.
#include "runtime/cluster/channel_peer.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/tcp.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::seconds kVisitMax{10};  // and for as long a stream of ours is tried for
constexpr std::size_t kVisitorsMax = 64;
constexpr std::chrono::seconds kCutMax{2};
constexpr std::chrono::milliseconds kReachAgain{200};

}  // namespace

/// On this host the kernel has told who it is, between hosts the stream does before it passes a byte.
std::unique_ptr<FrameStream> Channel::line_over(const Peer& peer,
                                                int socket,
                                                RunKeys::End end) const {
  if (peer.on_this_host()) {
    return std::make_unique<FrameStream>(std::make_unique<DescriptorStream>(socket, socket));
  }
  bear_silence(socket);  // who is silent for too long is lost, which is the lead's to tell
  return std::make_unique<FrameStream>(keys_.secure(socket, peer.key, end));
}

/// A stream to the peer that has our greeting to pass; null where there can be none now.
std::unique_ptr<FrameStream> Channel::line_to(Peer& peer, std::uint32_t stream) {
  int socket = -1;
  if (peer.on_this_host()) {
    socket = connect_here(peer.endpoint, peer.pid);
  } else if (const auto address = parse_address(peer.endpoint)) {
    const auto begun = begin_to_connect(*address);
    socket = begun ? *begun : -1;
  }
  if (socket < 0) {
    return nullptr;
  }
  auto line = line_over(peer, socket, RunKeys::End::connects);
  const auto streams = static_cast<std::uint32_t>(peer.on_this_host() ? 1 : streams_);
  line->say(hello_frame(
      static_cast<std::uint32_t>(self_), token_, peer.life, greeting(peer, stream, streams)));
  return line;
}

/// What this end says of itself, and of a stream.
Greeting Channel::greeting(const Peer& peer, std::uint32_t stream, std::uint32_t streams) const {
  return {.stream = stream,
          .streams = streams,
          .memory = peer.lends ? peer.lends->offer() : MemoryOffer{},
          .address = plane_->address()};
}

/// Connects to who has not greeted yet, now and again.
void Channel::reach(Peer& peer) {
  if (peer.greeted) {
    return reach_for_tensors(peer);
  }
  if (peer.endpoint.empty() || (peer.line && !peer.line->over())) {
    return;
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= peer.reach_again) {
    peer.reach_again = now + kReachAgain;
    peer.line = line_to(peer, 0);
  }
}

/// The same for streams of ours that are not there yet.
void Channel::reach_for_tensors(Peer& peer) {
  const auto now = std::chrono::steady_clock::now();
  for (Visitor& visitor : peer.visitors) {
    const bool missing = visitor.stream > 0 && (!visitor.line || visitor.line->over());
    if (missing && now >= visitor.reach_again) {
      visitor.reach_again = now + kReachAgain;
      visitor.line = line_to(peer, visitor.stream);
    }
    if (visitor.stream > 0 && now - visitor.since > kVisitMax) {
      peer.traffic->lost_stream();
    }
  }
}

/// Those who have been here for too long, and have not said who they are.
void Channel::send_away(Peer& peer) {
  peer.full = false;
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(peer.visitors, [&](const Visitor& visitor) {
    return visitor.stream == 0 && now - visitor.since > kVisitMax;
  });
}

/// A process that has ended is told of otherwise before that.
void Channel::look_for_cut(const Peer& peer) {
  if (peer.greeted && peer.line->over()) {
    peer.traffic->lost_stream();
  }
  const PeerTraffic::Time cut = peer.traffic->cut;
  if (cut != PeerTraffic::Time{} && std::chrono::steady_clock::now() - cut > kCutMax) {
    throw WireError(peer.traffic->why.load());
  }
}

/// Of those who have not shown who they are the first, but one from where the peer's headers come is the last to go.
std::vector<Channel::Visitor>::iterator Channel::least_expected(Peer& peer) {
  const auto stranger = [](const Visitor& visitor) {
    return !visitor.line->is_known();
  };
  auto found = std::ranges::find_if(peer.visitors, [&](const Visitor& visitor) {
    return stranger(visitor) && visitor.host != peer.host;
  });
  if (found == peer.visitors.end()) {
    found = std::ranges::find_if(peer.visitors, stranger);
  }
  return found == peer.visitors.end() ? peer.visitors.begin() : found;
}

void Channel::admit(Peer& peer) {
  std::string who;
  for (std::size_t i = 0; i < kVisitorsMax; ++i) {
    const int socket = peer.on_this_host() ? accept_here(peer.listening, peer.pid)
                                           : accept_one(peer.listening, who);
    if (socket < 0) {
      peer.full = errno != EAGAIN;  // no descriptor is left
      return;
    }
    peer.visitors.push_back({.line = line_over(peer, socket, RunKeys::End::listens),
                             .host = who.substr(0, who.rfind(':'))});
    if (peer.visitors.size() > kVisitorsMax) {
      peer.visitors.erase(least_expected(peer));
    }
  }
}

void Channel::meet(Peer& peer, const std::vector<pollfd>& polled) {
  const bool come = peer.listening >= 0 && polled[peer.polled].revents != 0;
  std::erase_if(peer.visitors, [&](Visitor& visitor) {
    return visitor.line && visitor.line->ready(polled) && meet(peer, visitor);
  });
  if (peer.link && peer.heard && peer.link->complete()) {
    peer.stop_listening();
    peer.visitors.clear();
  } else if (come) {
    admit(peer);
  }
}

/// Whether it is a visitor no more. WireError where whoever may come says what cannot be believed.
bool Channel::meet(Peer& peer, Visitor& visitor) {
  FrameStream& line = *visitor.line;
  if (visitor.stream > 0) {  // ours
    peer.traffic->sent += line.write();
    return !line.over() && line.unsent() == 0 &&
           peer.link->join(visitor.stream - 1, line.release());
  }
  line.read_frame(kHelloBytesMax);
  const auto frame = line.next(kHelloBytesMax);
  if (!frame) {
    return line.over();
  }
  const Greeting said =
      check_hello(*frame, static_cast<std::uint32_t>(peer.number), token_, peer.life);
  // Where our greeting was lost on its way, it comes again.
  if (said.stream == 0 && (!peer.line || (peer.line->over() && !peer.heard))) {
    peer.line = std::move(visitor.line);
    peer.host = visitor.host;
    peer.traffic->cut = PeerTraffic::Time{};
    peer.line->say(hello_frame(
        static_cast<std::uint32_t>(self_), token_, peer.life, greeting(peer, 0, said.streams)));
    be_greeted(peer, said);
  } else if (said.stream == 0 || !peer.link || !peer.link->join(said.stream - 1, line.release())) {
    throw WireError("a process connects twice");
  } else {
    peer.heard = true;
  }
  return true;
}

/// At the end that has connected: the answer to its greeting.
void Channel::greet(Peer& peer, std::span<const std::byte> frame) {
  const Greeting said =
      check_hello(frame, static_cast<std::uint32_t>(peer.number), token_, peer.life);
  be_greeted(peer, said);
  peer.heard = true;
  peer.line->say({});  // an empty frame: now the other end has been heard, too
  peer.streams_to_make = ucx_ ? 0 : said.streams;
}

/// Of many processes most tell each other little or nothing: they have one stream, and none for tensors.
void Channel::tensors_follow(Peer& peer) {
  const std::uint32_t streams = std::exchange(peer.streams_to_make, 0);
  for (std::uint32_t stream = 1; stream <= streams; ++stream) {
    peer.visitors.push_back({.line = nullptr, .stream = stream});
  }
  if (streams > 0) {
    reach_for_tensors(peer);
  }
}

void Channel::be_greeted(Peer& peer, const Greeting& said) {
  peer.greeted = true;
  peer.link = plane_->link({self_, peer.number, peer.life}, said, peer.traffic);
  if (auto borrower = peer.lends ? Borrower::open(said.memory) : std::nullopt) {
    peer.unpacker.adopt_by(
        [borrower = *std::move(borrower)](const Place& place, Shape shape, DType type) {
          return borrower.adopt(place, shape, type);
        });
  }
}

}  // namespace troupe
