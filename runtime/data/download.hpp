// One file over HTTP, whole and as it should be or not at all.
//
//   FILE.part  <-- bytes, over as many connections as it takes; a later call goes on where this ended
//   FILE       <-- the same file under its name, once its SHA-256 is right
//
// Nothing that the server says is believed: lengths, ranges and contents are checked, and only the
// SHA-256 decides.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace troupe {

struct Download {
  std::string url;             // http or https; redirections are followed
  std::filesystem::path path;  // in a folder that exists
  std::string sha256;          // 64 hexadecimal digits in lower case
  std::int64_t bytes_max = std::int64_t{1} << 31;
  int stall_seconds = 30;    // of less than 1 kB/s, after which the connection is given up
  int attempts = 5;          // connections in a row that bring nothing new
  double pause_seconds = 1;  // after the first such one; doubled after each further one

  /// Of all that is there so far, and of the whole (0: not known). Some times a second.
  std::function<void(std::int64_t bytes, std::int64_t total)> progress{};
  /// Why there is another attempt: one sentence.
  std::function<void(const std::string&)> note{};
};

/// Returns when the file is there. Blocks. Error (data) with one sentence: the server's answer, the
/// stall, the wrong SHA-256; (lost) where the file cannot be written, as on a full disk. What has
/// come is kept in FILE.part unless its SHA-256 is wrong.
Result<void> download(const Download& download);

}  // namespace troupe
