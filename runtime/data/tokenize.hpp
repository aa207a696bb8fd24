// A text file turned into the file of its tokens, once, so that runs can read it piece by piece (data.tokens).
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace troupe {

class Vocabulary;

struct TokenizedFile {
  std::int64_t tokens = 0;
  int width = 2;  // bytes of each
};

inline constexpr std::size_t kTokenizedBlock = std::size_t{1} << 24;

/// Writes the numbers of the tokens of `text` into `out`, one after another, the lower byte first: two bytes each where
/// the vocabulary has at most 65,536 tokens, else four. The text is read in blocks of about `block` bytes, which end
/// where a line does and no token of GPT-2's pieces reaches across, so that memory does not grow with it and the
/// tokens are those of the text as a whole. Error (data) where the text cannot be read, has a byte without a token, or
/// no such end within 256 MiB; (lost) where `out` cannot be written.
Result<TokenizedFile> tokenize_file(const std::filesystem::path& text,
                                    const std::filesystem::path& out,
                                    const Vocabulary& vocabulary,
                                    std::size_t block = kTokenizedBlock);

}  // namespace troupe
