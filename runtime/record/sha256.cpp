#include "runtime/record/sha256.hpp"

#include "kernels/check.hpp"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <string_view>
#include <vector>

namespace troupe {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TROUPE_CHECK(context_->evp && EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1,
               "[Sha256] libcrypto has no SHA-256");
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t size_bytes) {
  TROUPE_CHECK(EVP_DigestUpdate(context_->evp, data, size_bytes) == 1, "[Sha256] update failed");
}

std::string Sha256::finish() {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  TROUPE_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), &size) == 1,
               "[Sha256] finish failed");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex.append(1, kHex[digest[i] >> 4]).append(1, kHex[digest[i] & 15]);
  }
  return hex;
}

Result<std::string> file_sha256(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(std::size_t{1} << 16);
  Sha256 sha;
  while (file.read(piece.data(), std::ssize(piece)) || file.gcount() > 0) {
    sha.update(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) {
    return Error{ErrorKind::data, concat(path.string(), " could not be read")};
  }
  return sha.finish();
}

}  // namespace troupe
