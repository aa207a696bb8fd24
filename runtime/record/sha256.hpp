// SHA-256 (FIPS 180-4) of what is fed in, piece by piece.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace troupe {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, std::size_t size_bytes);

  /// 64 hexadecimal digits. Once, as the last call.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// That of a file. Error (data) where it cannot be read.
Result<std::string> file_sha256(const std::filesystem::path& path);

}  // namespace troupe
