// The encoder against GPT-2's own loop, written naively on strings (Encoder below), with byte pairs
// learnt here from a little text.
#include "runtime/data/byte_pairs.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "runtime/data/tokenize.hpp"
#include "runtime/data/vocabulary.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace byte_pairs_test {

using namespace troupe;
using namespace troupe::test;

namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;
using Pair = std::pair<std::string, std::string>;

/// A byte as the files write it.
std::string written(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    unsigned character = byte;
    // 0 to 32, 127 to 160 and 173 cannot be seen, and are counted on from 256.
    if (byte <= 32) {
      character = 256u + byte;
    } else if (byte >= 127 && byte <= 160) {
      character = 256u + 33 + (byte - 127u);
    } else if (byte == 173) {
      character = 256u + 67;
    }
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xc0 | character >> 6);
      text += static_cast<char>(0x80 | (character & 0x3f));
    }
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    json += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return json + '"';
}

/// Every neighbour `pair` joined, from left to right.
Words joined(const Words& words, const Pair& pair) {
  Words out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i + 1 < words.size() && words[i] == pair.first && words[i + 1] == pair.second) {
      out.push_back(words[i] + words[i + 1]);
      ++i;
    } else {
      out.push_back(words[i]);
    }
  }
  return out;
}

Words single_bytes(std::string_view piece) {
  Words words;
  for (const char c : piece) {
    words.emplace_back(1, c);
  }
  return words;
}

/// Byte pairs with their files.
struct Encoder {
  std::vector<Pair> merges;
  Words tokens;
  TemporaryFolder folder;

  Encoder() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
    std::rotate(tokens.begin(), tokens.begin() + 33, tokens.end());  // GPT-2 begins with '!'
  }

  void add(const Pair& pair) {
    merges.push_back(pair);
    const std::string both = pair.first + pair.second;
    if (std::find(tokens.begin(), tokens.end(), both) == tokens.end()) {
      tokens.push_back(both);
    }
  }

  /// As Sennrich et al. do: the commonest pair, again and again.
  void learn(const std::string& text, int count) {
    std::vector<Words> pieces;
    for (const std::string_view piece : split_pieces(text)) {
      pieces.push_back(single_bytes(piece));
    }
    for (int i = 0; i < count; ++i) {
      std::map<Pair, int> counts;
      for (const Words& words : pieces) {
        for (std::size_t j = 0; j + 1 < words.size(); ++j) {
          ++counts[{words[j], words[j + 1]}];
        }
      }
      const auto most = std::max_element(
          counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
      if (most == counts.end()) {
        return;
      }
      const Pair pair = most->first;
      add(pair);
      for (Words& words : pieces) {
        words = joined(words, pair);
      }
    }
  }

  std::string vocabulary_text() const {
    std::string json = "{";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      json += concat(i == 0 ? "" : ", ", quoted(written(tokens[i])), ": ", i);
    }
    return json + "}";
  }

  std::string merges_text() const {
    std::string text = "#version: 0.2\n";
    for (const Pair& pair : merges) {
      text += written(pair.first) + ' ' + written(pair.second) + '\n';
    }
    return text;
  }

  Result<std::shared_ptr<const Vocabulary>> open() const {
    folder.write("vocab.json", vocabulary_text());
    folder.write("merges.txt", merges_text());
    return reopen();
  }

  Result<std::shared_ptr<const Vocabulary>> reopen() const {
    proto::Bpe options;
    options.set_path(folder.path());
    return open_byte_pairs(options);
  }

  /// GPT-2's encoder.py: of the pairs at hand the one that comes first in the file, everywhere.
  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> all;
    for (const std::string_view piece : split_pieces(text)) {
      Words words = single_bytes(piece);
      for (;;) {
        auto best = merges.end();
        for (std::size_t i = 0; i + 1 < words.size(); ++i) {
          best =
              std::min(best, std::find(merges.begin(), merges.end(), Pair(words[i], words[i + 1])));
        }
        if (best == merges.end()) {
          break;
        }
        words = joined(words, *best);
      }
      for (const std::string& word : words) {
        all.push_back(static_cast<std::int32_t>(std::find(tokens.begin(), tokens.end(), word) -
                                                tokens.begin()));
      }
    }
    return all;
  }
};

const std::string kText =
    "The rain in Spain stays mainly in the plain. In Hertford, Hereford and Hampshire, hurricanes "
    "hardly ever happen; it's what they've said, isn't it?  1234 12 34 12\n\n  \xc3\xa9t\xc3\xa9 "
    "\xc3\xa9t\xc3\xa9\n";

Words pieces_of(std::string_view text) {
  const auto pieces = split_pieces(text);
  return {pieces.begin(), pieces.end()};
}

void check_refused(const Result<std::shared_ptr<const Vocabulary>>& opened,
                   const std::string& message) {
  REQUIRE_FALSE(opened);
  CHECK(opened.error().kind == ErrorKind::data);
  CHECK(opened.error().message == message);
}

}  // namespace

TEST_CASE("text is cut as GPT-2's pattern cuts it", "[runtime][data]") {
  CHECK(pieces_of("") == Words{});
  CHECK(pieces_of("Hello world") == Words{"Hello", " world"});
  CHECK(pieces_of("I'm sure they'll've") == Words{"I", "'m", " sure", " they", "'ll", "'ve"});
  CHECK(pieces_of("'S it's 'tis") == Words{"'", "S", " it", "'s", " '", "tis"});
  CHECK(pieces_of("'rest") == Words{"'re", "st"});
  CHECK(pieces_of("a1b22 33!?x") == Words{"a", "1", "b", "22", " 33", "!?", "x"});
  CHECK(pieces_of("!'s") == Words{"!'", "s"});
  CHECK(pieces_of("a  b") == Words{"a", " ", " b"});
  CHECK(pieces_of("a   ") == Words{"a", "   "});
  CHECK(pieces_of("a\nb") == Words{"a", "\n", "b"});
  CHECK(pieces_of("a\n\n b") == Words{"a", "\n\n", " b"});
  CHECK(pieces_of("a \nb") == Words{"a", " ", "\n", "b"});
  CHECK(pieces_of(" \t") == Words{" \t"});
  CHECK(pieces_of(" caf\xc3\xa9!") == Words{" caf\xc3\xa9", "!"});
}

TEST_CASE("byte pairs are joined as by GPT-2's own loop", "[runtime][data]") {
  Encoder encoder;
  encoder.learn(kText + kText, 150);
  const auto opened = encoder.open();
  REQUIRE(opened);
  const Vocabulary& vocabulary = **opened;
  CHECK(vocabulary.size() == static_cast<int>(encoder.tokens.size()));
  const auto tokens = *vocabulary.encode(kText);
  CHECK(tokens == encoder.encode(kText));
  CHECK(tokens.size() < kText.size() / 2);
  CHECK(vocabulary.decode(tokens) == kText);

  for (std::uint64_t round = 0; round < 300; ++round) {
    CAPTURE(round);
    const RandomStream random(1, Purpose::test, round);
    std::string text;
    for (std::uint64_t i = 0; i < 5 + round % 60; ++i) {
      text += random.below(2 * i, 4) == 0 ? static_cast<char>(random.below(2 * i + 1, 256))
                                          : kText[random.below(2 * i + 1, kText.size())];
    }
    REQUIRE(*vocabulary.encode(text) == encoder.encode(text));
    REQUIRE(vocabulary.decode(*vocabulary.encode(text)) == text);
  }
}

TEST_CASE("merges in any order are joined as by GPT-2's own loop", "[runtime][data]") {
  // Random merges over two letters: equal neighbours, overlaps, and merges that come before those
  // that make their parts.
  for (std::uint64_t round = 0; round < 200; ++round) {
    CAPTURE(round);
    const RandomStream random(2, Purpose::test, round);
    Encoder encoder;
    Words words{"a", "b"};
    std::vector<Pair> pairs;
    for (std::uint64_t i = 0; i < 12; ++i) {
      const Pair pair(words[random.below(2 * i, words.size())],
                      words[random.below(2 * i + 1, words.size())]);
      if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) {
        pairs.push_back(pair);
        words.push_back(pair.first + pair.second);
      }
    }
    for (std::size_t i = pairs.size() - 1; i > 0 && round % 2 == 1; --i) {
      std::swap(pairs[i], pairs[random.below(100 + i, i + 1)]);
    }
    for (const Pair& pair : pairs) {
      encoder.add(pair);
    }
    const auto vocabulary = *encoder.open();
    for (std::uint64_t length = 1; length < 40; length += 3) {
      std::string text;
      for (std::uint64_t i = 0; i < length; ++i) {
        text += random.below(1000 * length + i, 2) == 0 ? 'a' : 'b';
      }
      REQUIRE(*vocabulary->encode(text) == encoder.encode(text));
    }
  }
}

TEST_CASE("a piece as long as a file is soon joined", "[runtime][data]") {
  // The naive loop would take 10^12 steps here, and the test its whole time.
  Encoder encoder;
  std::string left = "a";
  for (int i = 0; i < 16; ++i) {
    encoder.add({left, left});
    left += left;
  }
  const std::string text((std::size_t{1} << 20) + 3, 'a');
  const auto vocabulary = *encoder.open();
  const auto tokens = *vocabulary->encode(text);
  CHECK(tokens.size() == 16 + 2);  // 2^20 in pieces of 2^16; then "aa" and "a"
  CHECK(vocabulary->decode(tokens) == text);
}

TEST_CASE("malformed files of byte pairs are refused with one sentence", "[runtime][data]") {
  Encoder encoder;
  encoder.add({"a", "b"});
  REQUIRE(encoder.open());
  std::string name = "vocab.json";
  std::string what;
  const auto vocabulary_with = [&](const std::string& more) {
    std::string text = encoder.vocabulary_text();
    text.insert(text.size() - 1, more);
    encoder.folder.write(name, text);
  };
  SECTION("missing") {
    std::filesystem::remove(encoder.folder / name);
    what = "it cannot be opened: No such file or directory";
  }
  SECTION("no JSON") {
    encoder.folder.write(name, "{\"a\": ");
    what = "it is no JSON object of tokens and their numbers";
  }
  SECTION("a gap") {
    vocabulary_with(", \"aa\": 258");
    what = "the number of token \"aa\" is none of 0 to 257";
  }
  SECTION("no number") {
    vocabulary_with(", \"aa\": \"257\"");
    what = "the number of token \"aa\" is none of 0 to 257";
  }
  SECTION("a fraction") {
    vocabulary_with(", \"aa\": 256.5");
    what = "the number of token \"aa\" is none of 0 to 257";
  }
  SECTION("twice") {
    vocabulary_with(", \"aa\": 256");
    what = "two tokens have the number 256";
  }
  SECTION("a character that no byte has") {
    vocabulary_with(", \"\\u4e00\": 257");
    what = "token \"\xe4\xb8\x80\" stands for no bytes";
  }
  SECTION("a byte without a token") {
    encoder.folder.write(name, "{\"a\": 0}");
    what = "it has no token for byte 0";
  }
  SECTION("a merge of unknown tokens") {
    name = "merges.txt";
    encoder.folder.write(name, "#version: 0.2\na b\n\na c\n");
    what = "line 4 is not two tokens whose joint is one, with a blank between";
  }
  SECTION("half a merge") {
    name = "merges.txt";
    encoder.folder.write(name, "ab\n");
    what = "line 1 is not two tokens whose joint is one, with a blank between";
  }
  SECTION("a merge twice") {
    name = "merges.txt";
    encoder.folder.write(name, "a b\r\na b\r\n");
    what = "line 2 is there twice";
  }
  check_refused(encoder.reopen(), concat(encoder.folder / name, " is not usable: ", what));
}

TEST_CASE("byte pairs need a folder", "[runtime][data]") {
  check_refused(open_byte_pairs(proto::Bpe()),
                "data.text.vocabulary.bpe.path is not set: it names the folder that holds "
                "vocab.json and merges.txt");
}

TEST_CASE("a file is tokenized block by block to the tokens of the whole", "[runtime][data]") {
  Encoder encoder;
  encoder.learn(kText, 60);
  const auto vocabulary = encoder.open();
  REQUIRE(vocabulary);
  std::string text;
  for (const char* between : {"", "\n", " \n", "\n\n", "\n ", "'s\n'll\n", "\n\t\n"}) {
    text += kText + between + kText + between;
  }
  encoder.folder.write("text", text);
  const auto whole = (*vocabulary)->encode(text);
  REQUIRE(whole);
  const fs::path out = encoder.folder / "out";
  for (const std::size_t block :
       {std::size_t{1}, std::size_t{7}, std::size_t{200}, kTokenizedBlock}) {
    INFO(block);
    const auto made = tokenize_file(encoder.folder / "text", out, **vocabulary, block);
    REQUIRE(made);
    CHECK(made->width == 2);
    CHECK(made->tokens == std::ssize(*whole));
    std::ifstream file(out, std::ios::binary);
    std::vector<std::int32_t> read;
    for (int low = file.get(); low >= 0; low = file.get()) {
      read.push_back(low + 256 * file.get());
    }
    CHECK(read == *whole);
  }
  const auto none = tokenize_file(encoder.folder.path(), out, **vocabulary);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, Catch::Contains("it is not a file"));
}

}  // namespace byte_pairs_test
