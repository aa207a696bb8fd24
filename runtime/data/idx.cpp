#include "runtime/data/idx.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/folders.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/input_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr int kClasses = 10;
constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr std::int64_t kSamplesMax = 1'000'000;  // of a file: 784 MB of pixels

constexpr std::array<std::string_view, 4> kNames{"train-images-idx3-ubyte",
                                                 "train-labels-idx1-ubyte",
                                                 "t10k-images-idx3-ubyte",
                                                 "t10k-labels-idx1-ubyte"};

// -- reading one ----------------------------------------------------------------------------------

std::uint32_t big_endian(const Bytes& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) << 24 |
         static_cast<std::uint32_t>(bytes[at + 1]) << 16 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 8 | bytes[at + 3];
}

/// What is wrong with a header, or nullopt.
std::optional<std::string> wrong_header(const Bytes& header, std::uint32_t magic) {
  const bool images = magic == kImagesMagic;
  if (header.size() >= 4 && big_endian(header, 0) != magic) {
    const std::uint32_t met = big_endian(header, 0);
    const char* hint = met == kLabelsMagic ? " (labels)" : met == kImagesMagic ? " (images)" : "";
    return fill_in("it starts with the number {}{}, not {}{}",
                   met,
                   hint,
                   magic,
                   images ? " (images)" : " (labels)");
  }
  if (header.size() < (images ? 16 : 8)) {
    return concat("it is only ", header.size(), " bytes long");
  }
  const std::int64_t count = big_endian(header, 4);
  if (count < 1 || count > kSamplesMax) {
    return concat("it promises ", count, " samples, where 1 to ", kSamplesMax, " are legal");
  }
  if (images && (big_endian(header, 8) != kSide || big_endian(header, 12) != kSide)) {
    return fill_in("its images are {}x{}, not {}x{}",
                   big_endian(header, 8),
                   big_endian(header, 12),
                   kSide,
                   kSide);
  }
  return std::nullopt;
}

/// What follows the header of a file: `bytes_each` bytes for each sample that it promises.
Result<Bytes> read_file(const fs::path& path, std::uint32_t magic, std::int64_t bytes_each) {
  const auto wrong = [&path](const std::string& what) {
    return data_error("{} is not usable: {}", path.string(), what);
  };
  InputFile input(path);
  Bytes header;
  if (!input.read(magic == kImagesMagic ? 16 : 8, header)) {
    return wrong(input.error());
  }
  if (const auto what = wrong_header(header, magic)) {
    return wrong(*what);
  }
  const std::int64_t count = big_endian(header, 4);
  const auto size = static_cast<std::size_t>(count * bytes_each);
  Bytes bytes;
  if (!input.read(size, bytes)) {
    return wrong(input.error());
  }
  if (bytes.size() < size) {
    return wrong(fill_in("it promises {} samples and ends after {}",
                         count,
                         bytes.size() / static_cast<std::size_t>(bytes_each)));
  }
  Bytes rest;
  if (!input.read(1, rest)) {
    return wrong(input.error());
  }
  if (!rest.empty()) {
    return wrong(concat("it goes on after the ", count, " samples that it promises"));
  }
  return bytes;
}

// -- the data set ---------------------------------------------------------------------------------

struct Part {
  Bytes pixels;  // (size, kSide, kSide)
  Bytes labels;  // (size)
};

Result<Part> read_part(const fs::path& images, const fs::path& labels) {
  Result<Bytes> pixels = read_file(images, kImagesMagic, kPixels);
  TROUPE_TRY(pixels);
  Result<Bytes> classes = read_file(labels, kLabelsMagic, 1);
  TROUPE_TRY(classes);
  const auto count = pixels->size() / static_cast<std::size_t>(kPixels);
  if (classes->size() != count) {
    return data_error("{} is not usable: it holds {} labels for the {} images of {}",
                      labels.string(),
                      classes->size(),
                      count,
                      images.filename().string());
  }
  const auto bad = std::find_if(
      classes->begin(), classes->end(), [](std::uint8_t label) { return label >= kClasses; });
  if (bad != classes->end()) {
    return data_error("{} is not usable: the label of sample {} is {}, not 0 to {}",
                      labels.string(),
                      bad - classes->begin(),
                      int{*bad},
                      kClasses - 1);
  }
  return Part{*std::move(pixels), *std::move(classes)};
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(const IdxFamily& family, std::int64_t pool, Part train, Part test)
      : pool_(pool), side_(kSide / pool), train_(std::move(train)), test_(std::move(test)) {
    // A sum of bytes s becomes (s / (255 pool^2) - mean) / deviation.
    scale_ = 1.0f / (255.0f * static_cast<float>(pool * pool) * family.deviation);
    shift_ = -family.mean / family.deviation;
  }

  std::int64_t size(Split split) const override {
    return static_cast<std::int64_t>(part(split).labels.size());
  }

  Shape sample_shape() const override { return {side_, side_, 1}; }

  int classes() const override { return kClasses; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    float* out = to.x.data();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint8_t* image = part(split).pixels.data() + indices[i] * kPixels;
      to.labels[i] = part(split).labels[static_cast<std::size_t>(indices[i])];
      for (std::int64_t y = 0; y < side_; ++y) {
        for (std::int64_t column = 0; column < side_; ++column) {
          *out++ = static_cast<float>(sum_of_square(image, y, column)) * scale_ + shift_;
        }
      }
    }
  }

 private:
  const Part& part(Split split) const { return split == Split::train ? train_ : test_; }

  int sum_of_square(const std::uint8_t* image, std::int64_t row, std::int64_t column) const {
    const std::uint8_t* corner = image + (row * kSide + column) * pool_;
    int sum = 0;
    for (std::int64_t dy = 0; dy < pool_; ++dy) {
      for (std::int64_t dx = 0; dx < pool_; ++dx) {
        sum += corner[dy * kSide + dx];
      }
    }
    return sum;
  }

  std::int64_t pool_;
  std::int64_t side_;
  float scale_;
  float shift_;
  Part train_;
  Part test_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> open_idx(const IdxFamily& family,
                                                const proto::Idx& options) {
  if (kSide % options.pool() != 0) {
    return Error{ErrorKind::usage,
                 fill_in("data.{}.pool is {}, which does not divide the images' side of {}; 1, 2, "
                         "4, 7 and 14 do",
                         family.name,
                         options.pool(),
                         kSide)};
  }
  const auto files = find_files({family.title, family.name, kNames}, options.path());
  TROUPE_TRY(files);
  Result<Part> train = read_part((*files)[0], (*files)[1]);
  TROUPE_TRY(train);
  Result<Part> test = read_part((*files)[2], (*files)[3]);
  TROUPE_TRY(test);
  const auto size = static_cast<std::int64_t>(train->labels.size());
  if (options.limit() > size) {
    return data_error("data.{}.limit is {}, but {} holds only {} samples",
                      family.name,
                      options.limit(),
                      (*files)[0].string(),
                      size);
  }
  if (options.limit() > 0) {
    train->pixels.resize(static_cast<std::size_t>(options.limit() * kPixels));
    train->labels.resize(static_cast<std::size_t>(options.limit()));
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<IdxDataset>(family, options.pool(), *std::move(train), *std::move(test)));
}

}  // namespace troupe
