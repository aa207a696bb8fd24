#include "runtime/data/tokenize.hpp"

#include "runtime/data/input_file.hpp"
#include "runtime/data/vocabulary.hpp"
#include "runtime/record/output_file.hpp"

#include <cctype>
#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>

namespace troupe {
namespace {

constexpr std::size_t kLineMax = std::size_t{1} << 28;
constexpr int kTokensOfTwoBytes = 65'536;

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

/// Behind the last end of a line that stands alone between two letters: blanks belong to one another. npos: none.
std::size_t last_cut(std::string_view text) {
  for (std::size_t i = text.size() < 2 ? 0 : text.size() - 2; i > 0; --i) {
    if (text[i] == '\n' && !is_space(text[i - 1]) && !is_space(text[i + 1])) {
      return i + 1;
    }
  }
  return text.npos;
}

void write_tokens(OutputFile& file, const std::vector<std::int32_t>& tokens, int width) {
  std::string bytes;
  bytes.reserve(tokens.size() * static_cast<std::size_t>(width));
  for (const std::int32_t token : tokens) {
    for (int i = 0; i < width; ++i) {
      bytes += static_cast<char>(static_cast<std::uint32_t>(token) >> (8 * i));
    }
  }
  file.write(bytes);
}

}  // namespace

Result<TokenizedFile> tokenize_file(const std::filesystem::path& text,
                                    const std::filesystem::path& out,
                                    const Vocabulary& vocabulary,
                                    std::size_t block) {
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(text.string(), " is not usable: ", what)};
  };
  std::error_code code;
  if (!std::filesystem::is_regular_file(text, code)) {
    return unusable(std::filesystem::exists(text, code) ? "it is not a file"
                                                        : cannot_be_opened(text, ENOENT));
  }
  std::ifstream file(text, std::ios::binary);
  if (!file) {
    return unusable(cannot_be_opened(text, errno));
  }
  TokenizedFile made{.tokens = 0, .width = vocabulary.size() <= kTokensOfTwoBytes ? 2 : 4};
  Result<void> sound;
  const auto written = replace_file(out, [&](OutputFile& to) {
    std::string rest;
    bool more = true;
    while (sound && (more || !rest.empty())) {
      const std::size_t before = rest.size();
      rest.resize(before + (more ? block : 0));
      file.read(rest.data() + before, static_cast<std::streamsize>(rest.size() - before));
      rest.resize(before + static_cast<std::size_t>(file.gcount()));
      more = static_cast<bool>(file);
      const std::size_t cut = more ? last_cut(rest) : rest.size();
      if (cut == rest.npos) {
        if (rest.size() > kLineMax) {
          sound = unusable(concat("it has ", rest.size(), " bytes without the end of a line"));
        }
        continue;
      }
      const auto tokens = vocabulary.encode(std::string_view(rest).substr(0, cut));
      if (!tokens) {
        sound = tokens.error();
        continue;
      }
      rest.erase(0, cut);
      made.tokens += std::ssize(*tokens);
      write_tokens(to, *tokens, made.width);
    }
    if (sound && file.bad()) {
      sound = unusable("it cannot be read to its end");
    }
  });
  if (!sound || !written) {
    std::filesystem::remove(out, code);  // what is half of it is of no use
    return !sound ? sound.error() : written.error();
  }
  return made;
}

}  // namespace troupe
