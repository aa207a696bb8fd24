#include "runtime/cluster/frame_stream.hpp"

#include "messages/wire.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

using Length = std::uint32_t;

constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;
constexpr std::size_t kReadInATurn = std::size_t{256} << 10;  // before all others have their turn

}  // namespace

void FrameStream::say(std::string_view frame) {
  const auto length = static_cast<Length>(frame.size());
  waiting_.append(reinterpret_cast<const char*>(&length), sizeof length);
  waiting_.append(frame);
}

std::size_t FrameStream::write() {
  std::size_t written = 0;
  while (!hung_up_ && unsent() > 0) {
    if (sent_ == out_.size()) {
      out_.clear();
      out_.swap(waiting_);
      sent_ = 0;
    }
    const ControlStream::Passed now = stream_->write(std::span(out_).subspan(sent_));
    sent_ += now.bytes;
    written += now.bytes;
    hung_up_ = now.gone;
    writing_awaits_ = now.await;
    if (now.bytes == 0) {
      break;
    }
  }
  if (hung_up_) {
    out_.clear();
    waiting_.clear();
    sent_ = 0;
  }
  return written;
}

/// Bytes of the next frame that have not come yet, as far as that is known; 0 where it is longer than `most`.
std::size_t FrameStream::missing(std::size_t most) const {
  const std::size_t here = in_.size() - taken_;
  Length length = 0;
  if (here >= sizeof length) {
    std::memcpy(&length, in_.data() + taken_, sizeof length);
  }
  return length <= most && here < sizeof length + length ? sizeof length + length - here : 0;
}

/// Takes up to `most` bytes and adds how many to `read`; false where there are none now.
bool FrameStream::take(std::size_t most, std::size_t& read) {
  const std::size_t here = in_.size();
  in_.resize(here + most);
  const ControlStream::Passed now = stream_->read(std::span(in_).subspan(here));
  in_.resize(here + now.bytes);
  read += now.bytes;
  ended_ = now.gone;
  if (now.bytes == 0) {
    reading_awaits_ = now.await;
  }
  return now.bytes > 0;
}

std::size_t FrameStream::read() {
  std::size_t read = 0;
  in_.erase(0, std::exchange(taken_, 0));
  has_more_ = true;
  while (has_more_ && read < kReadInATurn) {
    has_more_ = !ended_ && take(kReadAtOnce, read) && !ended_;
  }
  return read;
}

std::size_t FrameStream::read_frame(std::size_t most) {
  std::size_t read = 0;
  in_.erase(0, std::exchange(taken_, 0));
  for (std::size_t left = missing(most); !ended_ && left > 0; left = missing(most)) {
    if (!take(std::min(left, kReadAtOnce), read)) {
      break;
    }
  }
  return read;
}

std::optional<std::span<const std::byte>> FrameStream::next(std::size_t most) {
  const std::size_t here = in_.size() - taken_;
  Length length = 0;
  if (here < sizeof length) {
    return {};
  }
  std::memcpy(&length, in_.data() + taken_, sizeof length);
  if (length > most) {
    throw WireError("a frame is longer than any that could come now");
  }
  if (here < sizeof length + length) {
    return {};
  }
  const auto frame = std::as_bytes(std::span(in_)).subspan(taken_ + sizeof length, length);
  taken_ += sizeof length + length;
  return frame;
}

void FrameStream::poll_with(std::vector<pollfd>& all, bool reads) {
  short events = reads && !ended_ ? reading_awaits_ : 0;
  if (unsent() > 0) {
    events = static_cast<short>(events | writing_awaits_);
  }
  polled_ = events == 0 ? SIZE_MAX : all.size();
  if (events != 0) {
    all.push_back({stream_->descriptor(), events, 0});
  }
}

bool FrameStream::ready(const std::vector<pollfd>& all) const {
  return polled_ < all.size() && all[polled_].revents != 0;
}

}  // namespace troupe
