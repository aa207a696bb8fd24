// What tokens stand for. Text is bytes here; nothing is known of characters beyond ASCII.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Immutable once made; every method is safe from several threads at once.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  /// Tokens are 0 .. size() - 1.
  virtual int size() const = 0;

  /// decode(encode(text)) == text. Error (data) where the text has a byte that no token has.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text) const = 0;

  /// The bytes of the tokens, one after another; tokens need not form valid UTF-8. Throws
  /// ContractError at a token that there is not.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

/// Of a resolved experiment: the distinct bytes of `text` in rising order, all 256 bytes, or
/// GPT-2's byte pairs from vocab.json and merges.txt. Error (data) where these are missing or
/// malformed.
Result<std::shared_ptr<const Vocabulary>> make_vocabulary(const proto::Vocabulary& options,
                                                          std::string_view text);

}  // namespace troupe
