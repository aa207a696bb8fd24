// A file of token numbers, read piece by piece.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace troupe {

class TokenFile {
 public:
  /// `width`: bytes a token, 2 or 4, of a file without a header. Error (data) with path and reason.
  static Result<std::shared_ptr<const TokenFile>> open(const std::string& path,
                                                       std::size_t width,
                                                       std::int64_t vocabulary);

  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }

  std::int64_t size() const { return size_; }

  /// Whether it is llm.c's, whose header says how wide tokens are.
  bool has_header() const { return begin_ > 0; }

  /// Bytes of the file from `at` on. Error (data) where there are not so many.
  Result<void> read_bytes(std::size_t at, std::span<std::byte> to) const;

  /// Tokens `first`, first + 1, ... below size(). Safe from several threads at once. Error (data) where
  /// one is none of the vocabulary, or the file cannot be read, or not so far any more.
  Result<void> read(std::int64_t first, std::span<std::int32_t> to) const;

 private:
  TokenFile(std::string path, int file, std::size_t width, std::int64_t vocabulary)
      : path_(std::move(path)), file_(file), width_(width), vocabulary_(vocabulary) {}

  Result<void> learn_size();
  Error unusable(const std::string& what) const;

  std::string path_;
  int file_;
  std::size_t width_;        // bytes a token
  std::int64_t vocabulary_;  // tokens are below it
  std::size_t begin_ = 0;    // of the first token
  std::int64_t size_ = 0;
};

}  // namespace troupe
