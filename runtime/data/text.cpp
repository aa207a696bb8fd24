#include "runtime/data/text.hpp"

#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "runtime/data/folders.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/input_file.hpp"
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
  /// `tokens` are at least context + 1 in either part.
  Text(std::shared_ptr<const Vocabulary> vocabulary,
       std::vector<std::int32_t> tokens,
       std::int64_t test_begin,
       std::int64_t context,
       std::int64_t stride,
       std::uint64_t seed)
      : vocabulary_(std::move(vocabulary)),
        tokens_(std::move(tokens)),
        test_begin_(test_begin),
        context_(context),
        stride_(stride),
        seed_(seed) {
    // As many as there are at every offset, or one where not even that fits.
    const std::int64_t starts = test_begin - context;  // of a window in the training part
    train_size_ = std::max<std::int64_t>(1, starts / stride);
    offsets_ = std::min(stride, starts - (train_size_ - 1) * stride);
    test_size_ = (static_cast<std::int64_t>(tokens_.size()) - test_begin - 1) / context;
  }

  std::int64_t size(Split split) const override {
    return split == Split::train ? train_size_ : test_size_;
  }

  Shape sample_shape() const override { return {context_}; }

  DType input_type() const override { return DType::int32; }

  int classes() const override { return vocabulary_->size(); }

  std::int64_t labels_per_sample() const override { return context_; }

  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const bool train = split == Split::train;
    const std::int64_t first = train ? offset(epoch) : test_begin_;
    const std::int64_t stride = train ? stride_ : context_;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto from = tokens_.begin() + first + indices[i] * stride;
      const auto at = static_cast<std::ptrdiff_t>(i) * context_;
      std::copy_n(from, context_, to.tokens.begin() + at);
      std::copy_n(from + 1, context_, to.labels.begin() + at);
    }
  }

 private:
  std::int64_t offset(std::int64_t epoch) const {
    const RandomStream random(seed_, Purpose::augment, static_cast<std::uint64_t>(epoch));
    return static_cast<std::int64_t>(random.below(0, static_cast<std::uint64_t>(offsets_)));
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<std::int32_t> tokens_;  // training, then test
  std::int64_t test_begin_;
  std::int64_t context_;
  std::int64_t stride_;
  std::uint64_t seed_;
  std::int64_t train_size_;
  std::int64_t offsets_;  // an epoch's windows begin at one of 0 .. offsets_ - 1
  std::int64_t test_size_;
};

Result<fs::path> find_text(const proto::Text& options) {
  std::error_code ignored;
  if (!options.path().empty()) {
    if (fs::is_regular_file(options.path(), ignored)) {
      return fs::path(options.path());
    }
    return Error{ErrorKind::data,
                 concat("data.text.path is ", options.path(), ", and there is no such file")};
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
  if (!path) {
    return path.error();
  }
  const Result<Bytes> bytes = read_input_file(*path, kFileBytesMax);
  if (!bytes) {
    return bytes.error();
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const auto vocabulary = make_vocabulary(options.vocabulary(), text);
  if (!vocabulary) {
    return vocabulary.error();
  }
  Result<std::vector<std::int32_t>> tokens = (*vocabulary)->encode(text);
  if (!tokens) {
    return tokens.error();
  }
  const auto count = static_cast<std::int64_t>(tokens->size());
  const std::int64_t test_begin = count - count / 10;
  if (std::min(test_begin, count - test_begin) <= options.context()) {
    return Error{ErrorKind::data,
                 concat(path->string(),
                        " is too short: of its ",
                        count,
                        " tokens the last tenth, ",
                        count - test_begin,
                        ", are for tests, and a sample of data.text.context ",
                        options.context(),
                        " needs one more than that")};
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<Text>(*vocabulary,
                             *std::move(tokens),
                             test_begin,
                             options.context(),
                             options.stride() > 0 ? options.stride() : options.context(),
                             seed));
}

}  // namespace troupe
