#include "runtime/data/byte_pairs.hpp"

#include "experiment/data.pb.h"
#include "runtime/data/input_file.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = std::size_t{1} << 26;  // GPT-2's vocab.json has 1 MiB

using Token = std::int32_t;

// -- pieces ---------------------------------------------------------------------------------------

enum class Category : std::uint8_t { space, letter, digit, other };

Category category(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) {
    return Category::space;
  }
  if (byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) {
    return Category::letter;
  }
  return byte >= '0' && byte <= '9' ? Category::digit : Category::other;
}

/// Where the run of the category of text[begin] ends.
std::size_t run_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < text.size() && category(text[end]) == category(text[begin])) {
    ++end;
  }
  return end;
}

/// The length of the first piece of a text that is not empty.
std::size_t piece_length(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) {
      return ending.size();
    }
  }
  const std::size_t word = text.front() == ' ' ? 1 : 0;
  if (word < text.size() && category(text[word]) != Category::space) {
    return run_end(text, word);
  }
  // The last of several spaces goes to the word that follows.
  const std::size_t end = run_end(text, 0);
  return end < text.size() && end > 1 ? end - 1 : end;
}

// -- the files ------------------------------------------------------------------------------------

/// The character that stands for each byte.
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool seen =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters[byte] = seen ? byte : next++;
  }
  return characters;
}

/// The bytes that `written` stands for; nullopt where a character stands for none. All of these
/// have one or two bytes in UTF-8.
std::optional<std::string> read_bytes(std::string_view written) {
  static const std::array<char32_t, 256> characters = byte_characters();
  std::string bytes;
  for (std::size_t i = 0; i < written.size(); ++i) {
    auto character = static_cast<char32_t>(static_cast<unsigned char>(written[i]));
    if (character >= 0x80) {
      if (character >> 5 != 6 || i + 1 == written.size()) {
        return std::nullopt;
      }
      const auto second = static_cast<char32_t>(static_cast<unsigned char>(written[++i]));
      character = (character & 0x1f) << 6 | (second & 0x3f);
    }
    const auto at = std::find(characters.begin(), characters.end(), character);
    if (at == characters.end()) {
      return std::nullopt;
    }
    bytes += static_cast<char>(at - characters.begin());
  }
  return bytes;
}

Error unusable(const fs::path& path, const std::string& what) {
  return {ErrorKind::data, concat(path.string(), " is not usable: ", what)};
}

/// A file of the folder, as text.
Result<std::string> read_text(const fs::path& path) {
  const Result<Bytes> bytes = read_input_file(path, kFileBytesMax);
  TROUPE_TRY(bytes);
  return std::string(bytes->begin(), bytes->end());
}

/// The bytes of each token.
Result<std::vector<std::string>> read_tokens(const fs::path& path) {
  const Result<std::string> text = read_text(path);
  TROUPE_TRY(text);
  google::protobuf::Struct object;
  if (!google::protobuf::util::JsonStringToMessage(*text, &object).ok()) {
    return unusable(path, "it is no JSON object of tokens and their numbers");
  }
  const auto count = static_cast<std::size_t>(object.fields().size());
  std::vector<std::optional<std::string>> tokens(count);
  for (const auto& [written, value] : object.fields()) {
    const double number = value.has_number_value() ? value.number_value() : -1;
    if (!(number >= 0 && number < static_cast<double>(count)) ||
        number != static_cast<double>(static_cast<std::size_t>(number))) {
      return unusable(path,
                      concat("the number of token \"", written, "\" is none of 0 to ", count - 1));
    }
    std::optional<std::string>& token = tokens[static_cast<std::size_t>(number)];
    if (token) {
      return unusable(path, concat("two tokens have the number ", number));
    }
    token = read_bytes(written);
    if (!token || token->empty()) {
      return unusable(path, concat("token \"", written, "\" stands for no bytes"));
    }
  }
  std::vector<std::string> all;
  for (std::optional<std::string>& token : tokens) {
    all.push_back(*std::move(token));  // none is missing: as many numbers as tokens, no two equal
  }
  return all;
}

// -- joining --------------------------------------------------------------------------------------

struct Merge {
  std::size_t rank;  // the first in the file is 0
  Token token;       // what the two become
};

/// The key of two neighbours.
std::uint64_t pair_key(Token left, Token right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

using Merges = std::unordered_map<std::uint64_t, Merge>;

/// A piece while it is joined: a list of tokens, and a heap of the neighbours that can be. So it
/// takes n log n steps: a piece may be a whole file without a space.
class Joining {
 public:
  Joining(const Merges& merges, std::vector<Token> tokens)
      : merges_(merges), tokens_(std::move(tokens)) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      previous_.push_back(i - 1);  // of the first: never looked at
      next_.push_back(i + 1);
    }
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      offer(i);
    }
  }

  std::vector<Token> finish() {
    std::vector<Candidate> pass;
    while (!heap_.empty()) {
      // All of one rank before what comes of them, as GPT-2 does it.
      pass.clear();
      const std::size_t rank = heap_.top().rank;
      for (; !heap_.empty() && heap_.top().rank == rank; heap_.pop()) {
        pass.push_back(heap_.top());
      }
      for (const Candidate& candidate : pass) {
        if (pair_at(candidate.at) == candidate.pair) {
          join(candidate.at, merges_.at(candidate.pair).token);
        }
      }
    }
    std::vector<Token> joined;
    for (std::size_t i = 0; i < tokens_.size(); i = next_[i]) {
      joined.push_back(tokens_[i]);
    }
    return joined;
  }

 private:
  struct Candidate {
    std::size_t rank;
    std::size_t at;      // of the left one
    std::uint64_t pair;  // as it was when this was offered

    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };

  static constexpr Token kGone = -1;
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  std::uint64_t pair_at(std::size_t i) const {
    const bool both = tokens_[i] != kGone && next_[i] < tokens_.size();
    return both ? pair_key(tokens_[i], tokens_[next_[i]]) : kNoPair;
  }

  void offer(std::size_t i) {
    const std::uint64_t pair = pair_at(i);
    if (const auto merge = merges_.find(pair); merge != merges_.end()) {
      heap_.push({merge->second.rank, i, pair});
    }
  }

  void join(std::size_t left, Token token) {
    const std::size_t right = next_[left];
    tokens_[left] = token;
    tokens_[right] = kGone;
    next_[left] = next_[right];
    if (next_[left] < tokens_.size()) {
      previous_[next_[left]] = left;
    }
    offer(left);
    if (left > 0) {
      offer(previous_[left]);
    }
  }

  const Merges& merges_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> previous_;
  std::vector<std::size_t> next_;  // tokens_.size() at the end
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap_;
};

class BytePairs final : public Vocabulary {
 public:
  BytePairs(std::vector<std::string> tokens, std::array<Token, 256> of_byte, Merges merges)
      : tokens_(std::move(tokens)), of_byte_(of_byte), merges_(std::move(merges)) {}

  int size() const override { return static_cast<int>(tokens_.size()); }

  Result<std::vector<Token>> encode(std::string_view text) const override {
    std::unordered_map<std::string_view, std::vector<Token>> known;  // most words come again
    std::vector<Token> tokens;
    for (const std::string_view piece : split_pieces(text)) {
      const auto [entry, fresh] = known.try_emplace(piece);
      if (fresh) {
        std::vector<Token> bytes;
        for (const char c : piece) {
          bytes.push_back(of_byte_[static_cast<unsigned char>(c)]);
        }
        entry->second = Joining(merges_, std::move(bytes)).finish();
      }
      tokens.insert(tokens.end(), entry->second.begin(), entry->second.end());
    }
    return tokens;
  }

  std::string decode(std::span<const Token> tokens) const override {
    std::string text;
    for (const Token token : tokens) {
      TROUPE_CHECK(token >= 0 && token < size(), "[decode] token ", token, " of ", size());
      text += tokens_[static_cast<std::size_t>(token)];
    }
    return text;
  }

 private:
  std::vector<std::string> tokens_;  // the bytes of each
  std::array<Token, 256> of_byte_;
  Merges merges_;
};

/// The lines of merges.txt, whose tokens `numbers` has by their bytes.
Result<Merges> read_merges(const fs::path& path,
                           const std::unordered_map<std::string, Token>& numbers) {
  const Result<std::string> text = read_text(path);
  TROUPE_TRY(text);
  const auto token_of = [&numbers](const std::optional<std::string>& bytes) {
    const auto found = bytes ? numbers.find(*bytes) : numbers.end();
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  };
  Merges merges;
  std::string_view rest = *text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || (number == 1 && line.starts_with("#version"))) {
      continue;
    }
    const std::size_t blank = std::min(line.find(' '), line.size());
    const auto left = read_bytes(line.substr(0, blank));
    const auto right = read_bytes(line.substr(std::min(blank + 1, line.size())));
    const auto left_token = token_of(left);
    const auto right_token = token_of(right);
    const auto joined = left_token && right_token ? token_of(*left + *right) : std::nullopt;
    if (!joined) {
      return unusable(
          path,
          concat("line ", number, " is not two tokens whose joint is one, with a blank between"));
    }
    if (!merges.try_emplace(pair_key(*left_token, *right_token), Merge{merges.size(), *joined})
             .second) {
      return unusable(path, concat("line ", number, " is there twice"));
    }
  }
  return merges;
}

}  // namespace

std::vector<std::string_view> split_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t length = piece_length(text);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

Result<std::shared_ptr<const Vocabulary>> open_byte_pairs(const proto::Bpe& options) {
  if (options.path().empty()) {
    return Error{ErrorKind::data,
                 "data.text.vocabulary.bpe.path is not set: it names the folder that holds "
                 "vocab.json and merges.txt"};
  }
  const fs::path folder = options.path();
  Result<std::vector<std::string>> tokens = read_tokens(folder / "vocab.json");
  TROUPE_TRY(tokens);
  std::unordered_map<std::string, Token> numbers;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    numbers.emplace((*tokens)[i], static_cast<Token>(i));
  }
  std::array<Token, 256> of_byte{};
  for (std::size_t byte = 0; byte < of_byte.size(); ++byte) {
    const auto found = numbers.find(std::string(1, static_cast<char>(byte)));
    if (found == numbers.end()) {
      return unusable(folder / "vocab.json", concat("it has no token for byte ", byte));
    }
    of_byte[byte] = found->second;
  }
  Result<Merges> merges = read_merges(folder / "merges.txt", numbers);
  TROUPE_TRY(merges);
  return std::shared_ptr<const Vocabulary>(
      std::make_shared<BytePairs>(*std::move(tokens), of_byte, *std::move(merges)));
}

}  // namespace troupe
