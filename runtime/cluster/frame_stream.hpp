// One connection of a channel: frames, each behind its length, both ways. Nothing here waits.
#pragma once

#include "runtime/cluster/control_stream.hpp"

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class FrameStream {
 public:
  explicit FrameStream(std::unique_ptr<ControlStream> stream) : stream_(std::move(stream)) {}

  /// Puts a frame behind what has not left yet.
  void say(std::string_view frame);

  /// Bytes that have not left yet.
  std::size_t unsent() const { return out_.size() - sent_ + waiting_.size(); }

  /// Lets go what the other end takes now; how many bytes.
  std::size_t write();
  /// Takes what has come: how many bytes.
  std::size_t read();
  /// The same of the frame that is next alone, so that whoever has the stream afterwards finds what is behind it. Nothing of
  /// one that is longer than `most`, but its length.
  std::size_t read_frame(std::size_t most);
  /// The next frame, until the next call of this line. WireError where it says that it is longer than `most`.
  std::optional<std::span<const std::byte>> next(std::size_t most);

  /// Whether nothing comes any more, or nothing leaves.
  bool over() const { return ended_ || hung_up_; }

  /// Whether the other end has shown who it is, where it has to.
  bool is_known() const { return stream_->is_known(); }

  /// Whether there may be more to read, whatever poll() says.
  bool has_more() const { return has_more_; }

  /// `reads`: whether anything is wanted from there now.
  void poll_with(std::vector<pollfd>& all, bool reads);
  /// Whether that poll() has found something.
  bool ready(const std::vector<pollfd>& all) const;

  std::unique_ptr<ControlStream> release() { return std::move(stream_); }

 private:
  std::size_t missing(std::size_t most) const;
  bool take(std::size_t most, std::size_t& read);

  std::unique_ptr<ControlStream> stream_;
  std::string
      out_{};  // on its way: TLS may hold on to it, so nothing changes it before all of it has left
  std::size_t sent_ = 0;
  std::string waiting_{};  // behind that
  std::string in_{};
  std::size_t taken_ = 0;
  std::size_t polled_ = SIZE_MAX;
  short reading_awaits_ = POLLIN;
  short writing_awaits_ = POLLOUT;
  bool ended_ = false;
  bool hung_up_ = false;  // the other end takes nothing any more
  bool has_more_ = false;
};

}  // namespace troupe
