#include "runtime/data/text.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/folders.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/data/token_windows.hpp"
#include "runtime/data/vocabulary.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;  // as tokens: 4 GiB

class Text final : public Dataset {
 public:
  /// `tokens`: the training part, then the test part, which `test_begin` is the first one of.
  Text(std::shared_ptr<const Vocabulary> vocabulary,
       std::vector<std::int32_t> tokens,
       std::int64_t test_begin,
       TokenWindows windows,
       bool contiguous)
      : vocabulary_(std::move(vocabulary)),
        tokens_(std::move(tokens)),
        test_begin_(test_begin),
        windows_(windows),
        contiguous_(contiguous) {}

  std::int64_t size(Split split) const override { return windows_.size(split); }

  Shape sample_shape() const override { return {windows_.context()}; }

  DType input_type() const override { return DType::int32; }

  int classes() const override { return vocabulary_->size(); }

  std::int64_t labels_per_sample() const override { return windows_.context(); }

  bool contiguous() const override { return contiguous_; }

  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const std::int64_t context = windows_.context();
    const std::int64_t first = split == Split::train ? 0 : test_begin_;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto from = tokens_.begin() + first + windows_.begin(split, indices[i], epoch);
      const auto at = static_cast<std::ptrdiff_t>(i) * context;
      std::copy_n(from, context, to.tokens.begin() + at);
      std::copy_n(from + 1, context, to.labels.begin() + at);
    }
  }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<std::int32_t> tokens_;
  std::int64_t test_begin_;
  TokenWindows windows_;
  bool contiguous_;
};

Result<fs::path> find_text(const proto::Text& options) {
  std::error_code ignored;
  if (!options.path().empty()) {
    if (fs::is_regular_file(options.path(), ignored)) {
      return fs::path(options.path());
    }
    return data_error("data.text.path is {}, and there is no such file", options.path());
  }
  std::string searched;
  for (const fs::path& folder : folders_of("shakespeare", "")) {
    const fs::path path = folder / "input.txt";
    if (fs::is_regular_file(path, ignored)) {
      return path;
    }
    searched += concat(searched.empty() ? "" : ", ", path.string());
  }
  return Error{ErrorKind::data,
               concat("data.text.path is not set, and Shakespeare's text was looked for as ",
                      searched,
                      " and not found: name a text file by --set data.text.path=FILE; `troupe data "
                      "fetch shakespeare` downloads that one")};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_text(const proto::Text& options, std::uint64_t seed) {
  const Result<fs::path> path = find_text(options);
  TROUPE_TRY(path);
  const Result<Bytes> bytes = read_input_file(*path, kFileBytesMax);
  TROUPE_TRY(bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const auto vocabulary = make_vocabulary(options.vocabulary(), text);
  TROUPE_TRY(vocabulary);
  Result<std::vector<std::int32_t>> tokens = (*vocabulary)->encode(text);
  TROUPE_TRY(tokens);
  const auto count = static_cast<std::int64_t>(tokens->size());
  const std::int64_t test_begin = count - count / 10;
  if (std::min(test_begin, count - test_begin) <= options.context()) {
    return Error{ErrorKind::data,
                 fill_in("{} is too short: of its {} tokens the last tenth, {}, are for tests, and "
                         "a sample of data.text.context {} needs one more than that",
                         path->string(),
                         count,
                         count - test_begin,
                         options.context())};
  }
  if (options.contiguous() && options.stride() != 0 && options.stride() != options.context()) {
    return Error{ErrorKind::usage,
                 fill_in("data.text.stride: samples that go on where others end are "
                         "data.text.context, {}, apart; expected 0",
                         options.context())};
  }
  const TokenWindows windows(test_begin,
                             count - test_begin,
                             options.context(),
                             options.stride(),
                             seed,
                             !options.contiguous());
  return std::shared_ptr<const Dataset>(std::make_shared<Text>(
      *vocabulary, *std::move(tokens), test_begin, windows, options.contiguous()));
}

}  // namespace troupe
