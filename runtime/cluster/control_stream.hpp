// The stream between the lead of a run and one of its other processes: bytes in order, both ways, by which either
// end also knows that the other is gone. A socket that was inherited, the pipes of an ssh, or TLS over TCP; the
// talk over it is the same (messages/wire.proto).
#pragma once

#include "messages/proto.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace troupe {

class ControlStream {
 public:
  /// What came of a call that does not wait.
  struct Passed {
    std::size_t bytes = 0;  // 0: none now, or none ever again
    bool gone = false;      // the other end says no more, or is gone
    short await = 0;  // of poll(): what it waits for on descriptor(), where there are none now
  };

  ControlStream() = default;
  virtual ~ControlStream() = default;
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  virtual Passed read(std::span<char> into) = 0;
  virtual Passed write(std::span<const char> bytes) = 0;
  /// Nothing is written any more; the other end sees that. Does not wait.
  virtual void finish() = 0;
  /// To be polled for reading.
  virtual int descriptor() const = 0;

  /// Whether the other end has shown who it is, where it has to.
  virtual bool is_known() const { return true; }

  /// Why it is gone, as far as that is known, or "".
  virtual std::string trouble() const { return ""; }

  /// Of a stream that has nothing more to say: whether it is at its end. What has come none the less counts as such.
  bool at_end();
};

/// Over two descriptors, which it owns and which may be one and the same: a socket, or pipes.
class DescriptorStream final : public ControlStream {
 public:
  DescriptorStream(int in, int out);
  ~DescriptorStream() override;

  Passed read(std::span<char> into) override;
  Passed write(std::span<const char> bytes) override;
  void finish() override;

  int descriptor() const override { return in_; }

 private:
  int in_;
  int out_;  // -1 once it says no more, where that is not in_
};

/// How long somebody waits for the other end of a stream.
struct Patience {
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  std::function<bool()> given_up{};  // asked ten times a second; empty: never
};

enum class Talk {
  done,
  gone,      // the other end, or what has come is not such a message
  late,      // the other end has not answered, or not listened, in time
  given_up,  // the user has
};

/// Waits until `descriptor` is ready for what is `wanted` of poll(): done, late or given_up.
Talk await(int descriptor, short wanted, const Patience& patience);

Talk write_message(ControlStream& stream,
                   const google::protobuf::Message& message,
                   const Patience& patience = {});
/// Memory is taken as bytes come, and not for what a length announces.
Talk read_message(ControlStream& stream,
                  google::protobuf::Message& message,
                  const Patience& patience = {});

/// The calling thread's writes to who is gone are errors from now on, and no reason to end.
void without_broken_pipes();

/// Returns when the other end says no more, or is gone.
void await_silence(ControlStream& stream);

constexpr std::size_t kStrangersWordMax = 64;
constexpr std::size_t kStrangersSentenceMax = 400;

/// Text of a stranger, for a line of a log or of a terminal: its first `most` bytes, those that cannot be
/// printed as question marks.
std::string printable(std::string text, std::size_t most = kStrangersWordMax);

}  // namespace troupe
