#include "runtime/cluster/tensor_plane.hpp"

#include "kernels/check.hpp"
#include "messages/tensor_bytes.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace troupe {
namespace {

constexpr std::size_t kCutBytes = std::size_t{1} << 20;
constexpr int kCallsInATurn = 16;  // of one stream and direction, before all others have their turn

/// Calls `take(offset, bytes)` for each piece of a tensor.
template <class Take>
void cut(std::size_t bytes, Take take) {
  for (std::size_t at = 0; at < bytes; at += kCutBytes) {
    take(at, std::min(kCutBytes, bytes - at));
  }
}

/// One stream to a peer, and what is to go and to come over it.
struct TensorStream {
  struct Out {
    Tensor of;
    std::span<const std::byte> bytes;
  };

  struct In {
    std::shared_ptr<Incoming> of;
    std::size_t offset;
    std::size_t bytes;
  };

  explicit TensorStream(std::shared_ptr<PeerTraffic> of_peer) : traffic(std::move(of_peer)) {}

  const std::shared_ptr<PeerTraffic> traffic;

  // Guarded by the thread's mutex. Only the thread takes pieces out.
  std::unique_ptr<ControlStream> bytes{};
  std::deque<Out> out{};
  std::deque<In> in{};
  bool closed = false;

  // Of the thread.
  std::size_t out_done = 0;
  std::size_t in_done = 0;
  short awaits = 0;  // of poll()
};

/// Serves its streams.
class StreamThread {
 public:
  explicit StreamThread(const TensorPlane::Events& events)
      : events_(events), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) {
      throw std::runtime_error("an eventfd failed");
    }
    thread_ = std::thread([this] { work(); });
  }

  ~StreamThread() {
    change([this] { over_ = true; });
    thread_.join();
    ::close(wake_);
  }

  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  /// `done()` under the mutex; the thread looks at what has changed.
  template <class Done>
  void change(Done done) {
    const std::lock_guard lock(mutex_);
    done();
    if (!std::exchange(woken_, true)) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
    }
  }

  std::vector<std::shared_ptr<TensorStream>> streams;  // guarded by the mutex

 private:
  void work();
  bool living(std::vector<std::shared_ptr<TensorStream>>& all);
  void await(const std::vector<std::shared_ptr<TensorStream>>& all);
  bool turn(TensorStream& stream);
  bool send(TensorStream& stream, TensorStream::Out& piece);
  bool receive(TensorStream& stream, TensorStream::In& piece);
  ControlStream::Passed fill(TensorStream& stream, const TensorStream::In& piece);

  template <class Piece>
  Piece* first(TensorStream& stream, std::deque<Piece> TensorStream::*pieces);
  template <class Piece>
  void leave(TensorStream& stream, std::deque<Piece> TensorStream::*pieces, std::size_t& done);

  const TensorPlane::Events& events_;
  int wake_;
  std::mutex mutex_;
  bool woken_ = false;
  bool over_ = false;
  std::optional<Stream> host_;  // allocates
  std::thread thread_;          // last: it uses all the others
};

void StreamThread::work() {
  without_broken_pipes();
  try {
    host_.emplace(Device{});
    std::vector<std::shared_ptr<TensorStream>> all;
    while (living(all)) {
      bool moved = false;
      for (const auto& stream : all) {
        moved = turn(*stream) || moved;
      }
      if (!moved) {
        await(all);
      }
    }
  } catch (const std::exception& error) {
    events_.failed(error.what());
  }
}

/// Those that are there; false where the thread is to end.
bool StreamThread::living(std::vector<std::shared_ptr<TensorStream>>& all) {
  all.clear();
  std::vector<std::shared_ptr<TensorStream>> gone;  // what they keep goes when the mutex is free
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams) {
    (stream->closed ? gone : all).push_back(stream);
  }
  streams = all;
  return !over_;
}

void StreamThread::await(const std::vector<std::shared_ptr<TensorStream>>& all) {
  std::vector<pollfd> polled{{wake_, POLLIN, 0}};
  for (const auto& stream : all) {
    if (stream->awaits != 0) {
      polled.push_back({stream->bytes->descriptor(), stream->awaits, 0});
    }
  }
  ::poll(polled.data(), polled.size(), -1);
  if (polled[0].revents != 0) {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_, &count, sizeof count);
    woken_ = false;
  }
}

/// Whether anything was sent or has come.
bool StreamThread::turn(TensorStream& stream) {
  stream.awaits = 0;
  bool moved = false;
  for (int i = 0; i < kCallsInATurn; ++i) {
    auto* const piece = first(stream, &TensorStream::out);
    if (!piece || !send(stream, *piece)) {
      break;
    }
    moved = true;
  }
  for (int i = 0; i < kCallsInATurn; ++i) {
    auto* const piece = first(stream, &TensorStream::in);
    if (!piece || !receive(stream, *piece)) {
      break;
    }
    moved = true;
  }
  return moved;
}

/// It stays where it is when others come behind it.
template <class Piece>
Piece* StreamThread::first(TensorStream& stream, std::deque<Piece> TensorStream::*pieces) {
  const std::lock_guard lock(mutex_);
  return stream.closed || (stream.*pieces).empty() ? nullptr : &(stream.*pieces).front();
}

template <class Piece>
void StreamThread::leave(TensorStream& stream,
                         std::deque<Piece> TensorStream::*pieces,
                         std::size_t& done) {
  done = 0;
  std::optional<Piece> gone;  // a tensor's end is for when the mutex is free
  const std::lock_guard lock(mutex_);
  gone.emplace(std::move((stream.*pieces).front()));
  (stream.*pieces).pop_front();
}

bool StreamThread::send(TensorStream& stream, TensorStream::Out& piece) {
  const auto left = piece.bytes.subspan(stream.out_done);
  const auto now = stream.bytes->write({reinterpret_cast<const char*>(left.data()), left.size()});
  stream.traffic->sent += now.bytes;
  stream.out_done += now.bytes;
  stream.awaits = static_cast<short>(stream.awaits | now.await);
  if (now.gone) {
    stream.traffic->lost_stream();
  }
  if (stream.out_done == piece.bytes.size()) {
    leave(stream, &TensorStream::out, stream.out_done);
  }
  return now.bytes > 0;
}

bool StreamThread::receive(TensorStream& stream, TensorStream::In& piece) {
  const auto now = fill(stream, piece);
  stream.in_done += now.bytes;
  stream.awaits = static_cast<short>(stream.awaits | now.await);
  if (now.bytes > 0) {
    stream.traffic->came(now.bytes);
  } else if (now.gone) {
    stream.traffic->lost_stream();
  }
  if (stream.in_done == piece.bytes) {
    Incoming& of = *piece.of;
    const bool whole = of.left.fetch_sub(piece.bytes, std::memory_order_acq_rel) == piece.bytes;
    leave(stream, &TensorStream::in, stream.in_done);
    if (whole) {
      events_.arrived();
    }
  }
  return now.bytes > 0;
}

/// Takes memory when the first byte is there.
ControlStream::Passed StreamThread::fill(TensorStream& stream, const TensorStream::In& piece) {
  Incoming& of = *piece.of;
  if (stream.in_done > 0) {
    const auto into = bytes_of(of.tensor).subspan(piece.offset, piece.bytes);
    const auto left = into.subspan(stream.in_done);
    return stream.bytes->read({reinterpret_cast<char*>(left.data()), left.size()});
  }
  char byte = 0;
  const auto now = stream.bytes->read({&byte, 1});
  if (now.bytes > 0) {
    std::call_once(of.made, [&] { of.tensor = host_->allocate(of.what.shape, of.what.type); });
    std::memcpy(bytes_of(of.tensor).data() + piece.offset, &byte, 1);
  }
  return now;
}

// -- the plane and its links -----------------------------------------------------------------------

class StreamPlane final : public TensorPlane {
 public:
  StreamPlane(int threads, Events events) : events_(std::move(events)) {
    for (int i = 0; i < threads; ++i) {
      threads_.push_back(std::make_unique<StreamThread>(events_));
    }
  }

  StreamThread& thread_of(std::size_t stream) const { return *threads_[stream % threads_.size()]; }

  std::unique_ptr<TensorLink> link(const Ends& ends,
                                   const Greeting& said,
                                   std::shared_ptr<PeerTraffic> traffic) override;

 private:
  Events events_;
  std::vector<std::unique_ptr<StreamThread>> threads_;
};

class StreamLink final : public TensorLink {
 public:
  StreamLink(StreamPlane& plane, std::size_t streams, const std::shared_ptr<PeerTraffic>& traffic)
      : plane_(plane) {
    for (std::size_t i = 0; i < streams; ++i) {
      streams_.push_back(std::make_shared<TensorStream>(traffic));
    }
  }

  ~StreamLink() override {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      plane_.thread_of(i).change([&] { streams_[i]->closed = true; });
    }
  }

  bool join(std::size_t number, std::unique_ptr<ControlStream> stream) override;

  bool complete() const override { return joined_ == streams_.size(); }

  void send(Tensor tensor) override;
  void expect(std::shared_ptr<Incoming> incoming) override;

 private:
  StreamPlane& plane_;
  std::vector<std::shared_ptr<TensorStream>> streams_;
  std::size_t joined_ = 0;
  std::size_t next_out_ = 0;
  std::size_t next_in_ = 0;
};

bool StreamLink::join(std::size_t number, std::unique_ptr<ControlStream> stream) {
  if (number >= streams_.size() || streams_[number]->bytes) {
    return false;
  }
  StreamThread& thread = plane_.thread_of(number);
  thread.change([&] {
    streams_[number]->bytes = std::move(stream);
    thread.streams.push_back(streams_[number]);
  });
  ++joined_;
  return true;
}

void StreamLink::send(Tensor tensor) {
  const std::span<const std::byte> bytes = bytes_of(tensor);
  cut(bytes.size(), [&](std::size_t at, std::size_t size) {
    const std::size_t i = next_out_++ % streams_.size();
    plane_.thread_of(i).change([&] {
      streams_[i]->out.push_back({tensor, bytes.subspan(at, size)});
    });
  });
}

void StreamLink::expect(std::shared_ptr<Incoming> incoming) {
  cut(incoming->what.bytes, [&](std::size_t at, std::size_t size) {
    const std::size_t i = next_in_++ % streams_.size();
    plane_.thread_of(i).change([&] { streams_[i]->in.push_back({incoming, at, size}); });
  });
}

std::unique_ptr<TensorLink> StreamPlane::link(const Ends& /*ends*/,
                                              const Greeting& said,
                                              std::shared_ptr<PeerTraffic> traffic) {
  return std::make_unique<StreamLink>(*this, said.streams, traffic);
}

}  // namespace

std::unique_ptr<TensorPlane> TensorPlane::of_streams(int threads, Events events) {
  return std::make_unique<StreamPlane>(threads, std::move(events));
}

}  // namespace troupe
