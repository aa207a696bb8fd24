#include "runtime/data/vocabulary.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/byte_pairs.hpp"

#include <array>
#include <cstddef>

namespace troupe {
namespace {

constexpr std::int32_t kNoToken = -1;

/// A token is one of `bytes`.
class SingleBytes final : public Vocabulary {
 public:
  explicit SingleBytes(std::string bytes) : bytes_(std::move(bytes)) {
    tokens_.fill(kNoToken);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      tokens_[static_cast<std::uint8_t>(bytes_[i])] = static_cast<std::int32_t>(i);
    }
  }

  int size() const override { return static_cast<int>(bytes_.size()); }

  Result<std::vector<std::int32_t>> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      tokens[i] = tokens_[byte];
      if (tokens[i] == kNoToken) {
        return data_error("byte {} (at {} of the text) is none of the vocabulary's {} characters",
                          int{byte},
                          i,
                          bytes_.size());
      }
    }
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      TROUPE_CHECK(token >= 0 && token < size(), "[decode] token ", token, " of ", size());
      text += bytes_[static_cast<std::size_t>(token)];
    }
    return text;
  }

 private:
  std::string bytes_;  // by token
  std::array<std::int32_t, 256> tokens_{};
};

std::string distinct_bytes(std::string_view text) {
  std::array<bool, 256> met{};
  for (const char c : text) {
    met[static_cast<std::uint8_t>(c)] = true;
  }
  std::string bytes;
  for (std::size_t byte = 0; byte < met.size(); ++byte) {
    if (met[byte]) {
      bytes += static_cast<char>(byte);
    }
  }
  return bytes;
}

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace

Result<std::shared_ptr<const Vocabulary>> make_vocabulary(const proto::Vocabulary& options,
                                                          std::string_view text) {
  switch (options.kind_case()) {
    case proto::Vocabulary::kCharacters:
      return std::shared_ptr<const Vocabulary>(std::make_shared<SingleBytes>(distinct_bytes(text)));
    case proto::Vocabulary::kBytes:
      return std::shared_ptr<const Vocabulary>(std::make_shared<SingleBytes>(all_bytes()));
    case proto::Vocabulary::kBpe:
      return open_byte_pairs(options.bpe());
    case proto::Vocabulary::KIND_NOT_SET:
      break;
  }
  contract_failed("options.kind_case()",
                  "[make_vocabulary] the experiment is not resolved: no vocabulary is chosen");
}

}  // namespace troupe
