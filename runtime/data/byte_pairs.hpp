// Byte-level byte pair encoding with GPT-2's files (Sennrich et al. 2016; Radford et al. 2019).
//
//   vocab.json   one JSON object: each token and its number; numbers are 0, 1, ... without a gap
//   merges.txt   "#version ..." may come first; then a line "left right" for each merge, by rank
//
// In both a byte is written as one character: itself where it can be seen in Latin-1, else the
// next one from U+0100 on ("\u0120" is a blank).
//
// Text is cut into pieces. In each, the neighbours whose merge comes first in the file are joined
// wherever they stand, from left to right, then the next ones, until no merge applies.
#pragma once

#include "messages/proto.hpp"
#include "runtime/data/vocabulary.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// Error (data) where the files are missing, too long or malformed: a number that is missing or
/// given twice, a byte without a token, a merge whose parts or result are no tokens.
Result<std::shared_ptr<const Vocabulary>> open_byte_pairs(const proto::Bpe& options);

/// The pieces within which bytes are joined; together they are the text. GPT-2's own pattern:
///   's|'t|'re|'ve|'m|'ll|'d| ?letters| ?digits| ?others|spaces before a space or the end|spaces
/// Letters are those of ASCII, and every byte from 0x80 on: digits, punctuation and spaces beyond
/// ASCII count as letters, so that text full of these becomes other tokens than GPT-2's (which
/// decode to the same text).
std::vector<std::string_view> split_pieces(std::string_view text);

}  // namespace troupe
