// The order of deliveries: a digest of it that two equal runs share, and on request a text of one
// line a delivery.
#pragma once

#include "messages/archive.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/system/driver.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Used by one thread. Lines of the text: "seconds recipient message replica chunk batch micro_batch sender",
/// the seconds with all of their bits, the sender "-" where it is no machine. order_text.hpp reads them.
class OrderLog final : public OrderSink {
 public:
  static constexpr std::int64_t kTextBytesMax = std::int64_t{1} << 26;
  static constexpr std::string_view kNoMachine = "-";  // the name of kOutside
  static constexpr std::string_view kCut =
      "# the text ends here; deliveries after it are in the digest alone";

  /// `text` may be null: the digest only. `names`: of the members of the cast, by ActorId. Beyond
  /// `text_bytes_max` the text ends with a line that says so; the digest goes on.
  OrderLog(std::unique_ptr<OutputFile> text,
           std::vector<std::string> names,
           std::int64_t text_bytes_max = kTextBytesMax)
      : text_(std::move(text)), names_(std::move(names)), text_bytes_left_(text_bytes_max) {}

  void note(const Delivered& made) override;

  /// SHA-256 over time, recipient, message index and stamp of every delivery: a chain, in which each 128
  /// of them are hashed together with the digest of all before, so that it can be kept half-way. Once,
  /// as the last call but close().
  std::string finish();

  /// The digest so far, for checkpoints.
  void archive(auto& a) {
    a(digest_, count_, text_bytes_left_);
    if (count_ >= kEntries) {
      throw ArchiveError(concat("the order has ",
                                count_,
                                " deliveries that are not hashed; there are fewer than ",
                                kEntries));
    }
    for (std::size_t i = 0; i < count_; ++i) {
      a(entries_.at(i));
    }
  }

  /// The text, for a checkpoint; null where there is none.
  OutputFile* text() const { return text_.get(); }

  /// Error (lost) where the text could not be written.
  Result<void> close();

  bool failed() const { return text_ && text_->failed(); }

 private:
  struct Entry {  // 32 bytes without holes: it is hashed as it stands
    double now;
    std::int64_t batch;
    ActorId to;
    std::int32_t micro_batch;
    std::int32_t replica;
    std::uint16_t chunk;  // fewer than 1024 stages of 64 chunks
    std::uint16_t message;
  };

  static_assert(sizeof(Entry) == 32);
  static constexpr std::size_t kEntries = 128;  // 4 KiB: libcrypto is called once for all of them

  std::string_view name_of(ActorId id) const;
  void write_line(const Entry& entry, ActorId from);
  void chain();

  std::array<Entry, kEntries> entries_;
  std::size_t count_ = 0;
  std::string digest_;  // of all entries before these
  std::unique_ptr<OutputFile> text_;
  std::vector<std::string> names_;
  std::string line_;
  std::int64_t text_bytes_left_;
};

/// One digest of several, in their order; that of a single one is itself.
std::string combined_sha256(const std::vector<std::string>& digests);

}  // namespace troupe
