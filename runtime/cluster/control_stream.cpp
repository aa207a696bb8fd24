#include "runtime/cluster/control_stream.hpp"

#include "kernels/check.hpp"

#include <fcntl.h>
#include <google/protobuf/message.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace troupe {
namespace {

constexpr std::uint32_t kBytesMax = 64 << 20;  // of a message: an experiment's text is the longest
constexpr std::size_t kBytesFirst = 1 << 12;   // of memory before any byte has come ...
constexpr std::size_t kBytesAhead = 1 << 20;   // ... and at most beyond those that have

/// Of read() and write(), by what they return.
ControlStream::Passed passed(ssize_t n, short waits_for) {
  if (n > 0) {
    return {.bytes = static_cast<std::size_t>(n)};
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return {.await = waits_for};
  }
  return {.gone = true};
}

/// Calls `pass(done)`, which reads or writes what comes behind the first `done` bytes, until there are `size`.
template <class Pass>
Talk pass_all(ControlStream& stream, std::size_t size, const Patience& patience, Pass pass) {
  for (std::size_t done = 0; done < size;) {
    const ControlStream::Passed now = pass(done);
    done += now.bytes;
    if (now.gone) {
      return Talk::gone;
    }
    if (now.bytes == 0) {
      if (const Talk ready = await(stream.descriptor(), now.await, patience); ready != Talk::done) {
        return ready;
      }
    }
  }
  return Talk::done;
}

Talk read_all(ControlStream& stream, std::span<char> into, const Patience& patience) {
  return pass_all(stream, into.size(), patience, [&](std::size_t done) {
    return stream.read(into.subspan(done));
  });
}

}  // namespace

bool ControlStream::at_end() {
  std::array<char, 1> byte{};
  const Passed now = read(byte);
  return now.gone || now.bytes > 0;
}

DescriptorStream::DescriptorStream(int in, int out) : in_(in), out_(out) {
  for (const int descriptor : {in_, out_}) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  }
}

DescriptorStream::~DescriptorStream() {
  ::close(in_);
  if (out_ != in_ && out_ >= 0) {
    ::close(out_);
  }
}

ControlStream::Passed DescriptorStream::read(std::span<char> into) {
  return passed(::read(in_, into.data(), into.size()), POLLIN);
}

ControlStream::Passed DescriptorStream::write(std::span<const char> bytes) {
  const ssize_t n = ::send(out_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return passed(n < 0 && errno == ENOTSOCK ? ::write(out_, bytes.data(), bytes.size()) : n,
                POLLOUT);
}

void DescriptorStream::finish() {
  if (out_ == in_) {
    ::shutdown(out_, SHUT_WR);
  } else if (out_ >= 0) {
    ::shutdown(out_, SHUT_WR);  // where it is a socket that others hold as well
    ::close(out_);
    out_ = -1;
  }
}

Talk await(int descriptor, short wanted, const Patience& patience) {
  constexpr int kLook = 100;  // milliseconds
  // The time first: who sends a byte now and then is late, too.
  while (std::chrono::steady_clock::now() < patience.until) {
    pollfd one{.fd = descriptor, .events = wanted, .revents = 0};
    if (::poll(&one, 1, kLook) > 0) {
      return Talk::done;
    }
    if (patience.given_up && patience.given_up()) {
      return Talk::given_up;
    }
  }
  return Talk::late;
}

Talk write_message(ControlStream& stream,
                   const google::protobuf::Message& message,
                   const Patience& patience) {
  const std::string bytes = message.SerializeAsString();
  TROUPE_CHECK(bytes.size() <= kBytesMax, "[cluster] a word of ", bytes.size(), " bytes");
  const auto size = static_cast<std::uint32_t>(bytes.size());
  const std::string frame = std::string(reinterpret_cast<const char*>(&size), sizeof size) + bytes;
  return pass_all(stream, frame.size(), patience, [&](std::size_t done) {
    return stream.write(std::span(frame).subspan(done));
  });
}

Talk read_message(ControlStream& stream,
                  google::protobuf::Message& message,
                  const Patience& patience) {
  std::array<char, sizeof(std::uint32_t)> head{};
  if (const Talk said = read_all(stream, head, patience); said != Talk::done) {
    return said;
  }
  const auto size = std::bit_cast<std::uint32_t>(head);
  if (size > kBytesMax) {
    return Talk::gone;
  }
  std::string bytes;
  while (bytes.size() < size) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min<std::size_t>(
        size, before + std::clamp<std::size_t>(before, kBytesFirst, kBytesAhead)));
    if (const Talk said = read_all(stream, std::span(bytes).subspan(before), patience);
        said != Talk::done) {
      return said;
    }
  }
  return message.ParseFromString(bytes) ? Talk::done : Talk::gone;
}

void without_broken_pipes() {
  sigset_t pipes;
  ::sigemptyset(&pipes);
  ::sigaddset(&pipes, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
}

void await_silence(ControlStream& stream) {
  std::array<char, 1> byte{};
  while (read_all(stream, byte, {}) == Talk::done) {
  }
}

std::string printable(std::string text, std::size_t most) {
  text.resize(std::min(text.size(), most));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace troupe
