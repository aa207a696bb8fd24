// Files that a run writes. A disk that is full, a quota or a file size limit is noticed where it
// happens; nothing is lost without a word.
#pragma once

#include "kernels/result.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// Where a file or folder stood when it was looked at, and which one that was.
class FilePlace {
 public:
  /// Nowhere: in_place() is true.
  FilePlace() = default;
  /// Of what `path` names now, wherever the working directory is later.
  explicit FilePlace(const std::filesystem::path& path);

  /// Whether the path names the same one still: it has not been removed, moved or replaced by another.
  bool in_place() const;

 private:
  std::filesystem::path path_;  // absolute
  std::uint64_t device_ = 0;
  std::uint64_t number_ = 0;
};

/// Written from front to back through a buffer. After the first failure nothing more is written,
/// and every later call tells of that first one. Used by one thread at a time, except failed().
class OutputFile {
 public:
  /// Makes the file, or empties it. Error (lost) with path and reason.
  static Result<std::unique_ptr<OutputFile>> create(const std::filesystem::path& path);

  /// Opens the file where there is one and cuts it after its first `bytes`, to write on. Error (lost) with
  /// path and reason; (data) where it is shorter, (usage) where another
  /// process writes it.
  static Result<std::unique_ptr<OutputFile>> resume(const std::filesystem::path& path,
                                                    std::int64_t bytes);

  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);

  /// Hands everything to the operating system. Error (lost) with path and reason, also where the file does not have its
  /// name any more (in_place()): nobody would find what was written.
  Result<void> flush();
  /// The same, then onto the disk, then closes.
  Result<void> close();

  /// Written so far, the buffer's included.
  std::int64_t bytes() const { return bytes_; }

  const std::filesystem::path& path() const { return path_; }

  /// From any thread.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  /// Whether it still stands where it was opened: it has not been removed, moved or replaced. From any thread.
  bool in_place() const { return place_.in_place(); }

 private:
  OutputFile(std::filesystem::path path, int descriptor);

  void drain();
  void expect_in_place();
  void fail(const std::string& how);
  Result<void> outcome() const;

  std::filesystem::path path_;
  int descriptor_;
  FilePlace place_;
  std::string buffer_;
  std::int64_t bytes_ = 0;
  std::string failure_;  // the sentence; "" while all is well
  std::atomic<bool> failed_{false};
};

/// What has been handed to the operating system for the file, or the names in the folder, is on the disk when
/// it returns, where the file system can do so.
void sync_path(const std::filesystem::path& path);

/// A whole file at once.
Result<void> write_file(const std::filesystem::path& path, std::string_view text);

/// A whole file or nothing: `write` fills PATH.partial, which then takes the name `path`. What stood
/// there before stays until that moment, and for good after a failure. Error (lost) with path and
/// reason.
Result<void> replace_file(const std::filesystem::path& path,
                          const std::function<void(OutputFile&)>& write);

/// Whether there is a folder, and nothing in it.
bool is_empty_folder(const std::filesystem::path& path);

/// Makes the folder of a run's files, and the folders above it; one that is there and empty is taken. Error (usage)
/// where something is there already, (lost) where it cannot be made.
Result<void> make_run_directory(const std::filesystem::path& path);

}  // namespace troupe
