#include "runtime/record/order_log.hpp"

#include "runtime/record/sha256.hpp"

#include <charconv>

namespace troupe {

void OrderLog::note(const Delivered& made) {
  Entry& entry = entries_[count_++];
  entry = {.now = made.now,
           .batch = made.stamp.batch,
           .to = made.to,
           .micro_batch = made.stamp.micro_batch,
           .replica = made.stamp.replica,
           .chunk = static_cast<std::uint16_t>(made.stamp.chunk),
           .message = made.message};
  if (text_ && text_bytes_left_ > 0) {
    write_line(entry, made.from);
  }
  if (count_ == kEntries) {
    chain();
  }
}

std::string_view OrderLog::name_of(ActorId id) const {
  return id < names_.size() ? std::string_view(names_[id]) : kNoMachine;
}

void OrderLog::write_line(const Entry& entry, ActorId from) {
  line_.clear();
  const auto append = [&](auto value) {
    std::array<char, 32> text;
    line_.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  };
  append(entry.now);
  line_.append(1, ' ');
  line_ += name_of(entry.to);
  line_.append(1, ' ');
  line_ += message_name(entry.message);
  for (const std::int64_t number : {std::int64_t{entry.replica},
                                    std::int64_t{entry.chunk},
                                    entry.batch,
                                    std::int64_t{entry.micro_batch}}) {
    line_.append(1, ' ');
    append(number);
  }
  line_.append(1, ' ');
  line_ += name_of(from);
  line_.append(1, '\n');
  text_->write(line_);
  text_bytes_left_ -= static_cast<std::int64_t>(line_.size());
  if (text_bytes_left_ <= 0) {
    text_->write(std::string(kCut) + '\n');
  }
}

void OrderLog::chain() {
  Sha256 sha;
  sha.update(digest_.data(), digest_.size());
  sha.update(entries_.data(), count_ * sizeof(Entry));
  digest_ = sha.finish();
  count_ = 0;
}

std::string OrderLog::finish() {
  chain();
  return digest_;
}

Result<void> OrderLog::close() {
  return text_ ? text_->close() : Result<void>{};
}

std::string combined_sha256(const std::vector<std::string>& digests) {
  if (digests.size() == 1) {
    return digests.front();
  }
  Sha256 sha;
  for (const std::string& digest : digests) {
    sha.update(digest.data(), digest.size());
  }
  return sha.finish();
}

}  // namespace troupe
