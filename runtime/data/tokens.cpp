#include "runtime/data/tokens.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/token_file.hpp"
#include "runtime/data/token_windows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

using TokenFilePointer = std::shared_ptr<const TokenFile>;

constexpr std::int64_t kCheckedFirst = 1'000'000;  // tokens that are looked at before a run

class TokenData final : public Dataset {
 public:
  /// Test tokens are those of `test` from `test_begin` on. `test_limit`: test samples, 0 for all.
  TokenData(TokenFilePointer train,
            TokenFilePointer test,
            std::int64_t test_begin,
            const proto::Tokens& options,
            TokenWindows windows)
      : train_(std::move(train)),
        test_(std::move(test)),
        test_begin_(test_begin),
        windows_(windows),
        vocabulary_(static_cast<int>(options.vocabulary())),
        test_size_(options.test_limit() > 0
                       ? std::min(options.test_limit(), windows.size(Split::test))
                       : windows.size(Split::test)) {}

  std::int64_t size(Split split) const override {
    return split == Split::train ? windows_.size(split) : test_size_;
  }

  Shape sample_shape() const override { return {windows_.context()}; }

  DType input_type() const override { return DType::int32; }

  int classes() const override { return vocabulary_; }

  std::int64_t labels_per_sample() const override { return windows_.context(); }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const TokenFile& file = split == Split::train ? *train_ : *test_;
    const std::int64_t part = split == Split::train ? 0 : test_begin_;
    const std::int64_t context = windows_.context();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(context) + 1);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (auto read = file.read(part + windows_.begin(split, indices[i], epoch), tokens); !read) {
        throw std::runtime_error(read.error().message);
      }
      const auto at = static_cast<std::ptrdiff_t>(i) * context;
      std::copy_n(tokens.begin(), context, to.tokens.begin() + at);
      std::copy_n(tokens.begin() + 1, context, to.labels.begin() + at);
    }
  }

 private:
  TokenFilePointer train_;
  TokenFilePointer test_;
  std::int64_t test_begin_;
  TokenWindows windows_;
  int vocabulary_;
  std::int64_t test_size_;
};

constexpr std::int64_t kLookedAtFirst = 4096;  // tokens by which a file of another kind is known

/// What the first tokens of a file without a header have to be something else by; "" where they are tokens.
std::string looks_wrong(const TokenFile& file, const proto::Tokens& options) {
  if (file.has_header()) {
    return "";
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(file.size(), kLookedAtFirst)) *
                               (options.type() == proto::Tokens::uint16 ? 2 : 4));
  if (!file.read_bytes(0, bytes)) {
    return "";  // told by whoever reads it next
  }
  const auto count = [&](const auto& holds) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      found += holds(i, std::to_integer<unsigned>(bytes[i])) ? 1 : 0;
    }
    return found;
  };
  if (bytes.size() >= 64 && count([](std::size_t, unsigned byte) {
                              return (byte >= 0x20 && byte != 0x7f) || byte == '\n' ||
                                     byte == '\r' || byte == '\t';
                            }) == bytes.size()) {
    return concat("it is text, not tokens: `troupe data tokenize ",
                  file.path(),
                  " OUT.bin` makes tokens of it, or --set data.text.path=",
                  file.path(),
                  " reads it as it is");
  }
  if (options.type() == proto::Tokens::uint16 && bytes.size() >= 64 &&
      count([](std::size_t i, unsigned byte) { return i % 4 >= 2 && byte == 0; }) ==
          bytes.size() / 2 &&
      count([](std::size_t i, unsigned byte) { return i % 4 < 2 && byte != 0; }) > 0) {
    return "every second token of two bytes is 0, as in a file of tokens of four bytes: --set "
           "data.tokens.type=uint32 (one of eight bytes has to be written anew, by numpy's "
           "astype(\"uint32\"))";
  }
  return "";
}

Result<TokenFilePointer> open_checked(const std::string& path, const proto::Tokens& options) {
  if (const std::string form = foreign_form(path, Wanted::tokens); !form.empty()) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", form)};
  }
  const std::size_t width = options.type() == proto::Tokens::uint16 ? 2 : 4;
  auto file = TokenFile::open(path, width, options.vocabulary());
  if (!file) {
    return file;
  }
  if (const std::string what = looks_wrong(**file, options); !what.empty()) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  }
  std::vector<std::int32_t> first(
      static_cast<std::size_t>(std::min((*file)->size(), kCheckedFirst)));
  auto read = (*file)->read(0, first);
  return read ? file : read.error();
}

Error too_short(const TokenFile& file,
                const std::string& what,
                std::int64_t count,
                const proto::Tokens& options) {
  return {ErrorKind::data,
          fill_in("{} is too short: {} are {}, and a sample of data.tokens.context {} needs one "
                  "more than that",
                  file.path(),
                  what,
                  count,
                  options.context())};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_tokens(const proto::Tokens& options,
                                                   std::uint64_t seed) {
  if (options.path().empty()) {
    return Error{
        ErrorKind::usage,
        "data.tokens.path is not set: name a file of tokens by --set data.tokens.path=FILE"};
  }
  const auto train = open_checked(options.path(), options);
  TROUPE_TRY(train);
  const bool apart = !options.test_path().empty();
  const auto test = apart ? open_checked(options.test_path(), options) : train;
  TROUPE_TRY(test);
  const std::int64_t count = (*train)->size();
  const auto share = std::llround(static_cast<double>(count) * options.test_share());
  const std::int64_t test_begin = apart ? 0 : count - share;
  const std::int64_t train_count = apart ? count : test_begin;
  const std::int64_t test_count = apart ? (*test)->size() : share;
  if (train_count <= options.context()) {
    return too_short(**train, "its training tokens", train_count, options);
  }
  if (test_count <= options.context()) {
    return too_short(**test, "its test tokens", test_count, options);
  }
  const TokenWindows windows(train_count, test_count, options.context(), options.stride(), seed);
  return std::shared_ptr<const Dataset>(
      std::make_shared<TokenData>(*train, *test, test_begin, options, windows));
}

}  // namespace troupe
