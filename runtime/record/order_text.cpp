#include "runtime/record/order_text.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/order_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kWords = 8;                                   // of a line
constexpr std::int64_t kBytesMax = OrderLog::kTextBytesMax + 4096;  // the last line goes beyond
constexpr std::size_t kExcerptMax = 100;                            // of a line that is wrong

using Words = std::array<std::string_view, kWords>;

/// How many words `line` has; the first of them are in `words`.
std::size_t split(std::string_view line, Words& words) {
  std::size_t count = 0;
  for (;; ++count) {
    const std::size_t space = line.find(' ');
    if (count < words.size()) {
      words[count] = line.substr(0, space);
    }
    if (space == std::string_view::npos) {
      return count + 1;
    }
    line.remove_prefix(space + 1);
  }
}

template <class T>
bool read_number(std::string_view word, T& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

/// The names of all messages, each once.
std::vector<std::string_view> message_names() {
  return tabulated<std::string_view>(Kinds::size, [&](std::size_t i) { return message_name(i); });
}

class Reader {
 public:
  Reader(const Cast& cast, int thread) : cast_(cast), thread_(thread), messages_(message_names()) {
    for (std::size_t id = 0; id < cast.members.size(); ++id) {
      ids_.emplace(cast.members[id].name, static_cast<ActorId>(id));
    }
    ids_.emplace(OrderLog::kNoMachine, kOutside);
  }

  /// What is wrong with the line, or "".
  std::string read(std::string_view line, Delivery& made) {
    if (line == OrderLog::kCut) {
      return fill_in("the text ends here, as it had come to {} MiB, and the run went on",
                     OrderLog::kTextBytesMax >> 20);
    }
    Words words;
    const std::size_t count = split(line, words);
    if (count != kWords) {
      return concat("a line has ", kWords, " words, this one ", count);
    }
    const auto& [now, to, message, replica, chunk, batch, micro_batch, from] = words;
    if (!read_number(now, made.now) || !std::isfinite(made.now) || made.now < last_) {
      return concat("\"", now, "\" is no time, or one before that of the line above");
    }
    last_ = made.now;
    Stamp& stamp = made.stamp;
    if (!read_number(replica, stamp.replica) || !read_number(chunk, stamp.chunk) ||
        !read_number(batch, stamp.batch) || !read_number(micro_batch, stamp.micro_batch)) {
      return "replica, chunk, batch and micro-batch are whole numbers";
    }
    const auto named = std::find(messages_.begin(), messages_.end(), message);
    if (named == messages_.end()) {
      return concat("there is no message \"", message, "\"");
    }
    made.message = *named;
    return who(to, from, made);
  }

 private:
  std::string who(std::string_view to, std::string_view from, Delivery& made) const {
    for (const std::string_view name : {to, from}) {
      if (!ids_.contains(name)) {
        return concat("this experiment has no actor \"", name, "\"");
      }
    }
    made.to = ids_.at(to);
    made.from = ids_.at(from);
    if (made.to == kOutside || cast_.members[made.to].thread != thread_) {
      return concat(to, " is not on thread ", thread_);
    }
    return "";
  }

  const Cast& cast_;
  int thread_;
  std::vector<std::string_view> messages_;
  std::unordered_map<std::string_view, ActorId> ids_;
  double last_ = 0;
};

}  // namespace

Result<std::vector<Delivery>> read_order(const std::filesystem::path& path,
                                         const Cast& cast,
                                         int thread) {
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  std::ifstream file(path, std::ios::binary);
  if (code || !file) {
    return Error{ErrorKind::data,
                 concat(path.string(),
                        " cannot be read: ",
                        code ? code.message() : std::system_category().message(errno))};
  }
  if (bytes > static_cast<std::uintmax_t>(kBytesMax)) {
    return Error{ErrorKind::data, concat(path.string(), " is longer than what troupe writes")};
  }
  Reader reader(cast, thread);
  std::vector<Delivery> all;
  std::string line;
  while (std::getline(file, line)) {
    const auto wrong = [&](const std::string& what) {
      std::string excerpt = line.substr(0, kExcerptMax);
      std::replace_if(
          excerpt.begin(), excerpt.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
      return Error{ErrorKind::data,
                   concat(path.string(), ":", all.size() + 1, ": ", what, ": \"", excerpt, "\"")};
    };
    if (file.eof()) {
      return wrong("the file ends within a line");
    }
    Delivery made;
    if (const std::string what = reader.read(line, made); !what.empty()) {
      return wrong(what);
    }
    all.push_back(made);
  }
  return all;
}

}  // namespace troupe
