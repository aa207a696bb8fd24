#include "runtime/data/cifar.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/folders.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/input_file.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSide = 32;
constexpr std::size_t kColours = 3;
constexpr std::size_t kRow = kSide * kColours;
constexpr std::size_t kPixels = kSide * kRow;
constexpr std::size_t kBorder = 4;
constexpr int kCoarseClasses = 20;
constexpr std::size_t kRecordsMax = 1'000'000;  // of a file: 3 GB of pixels

struct Part {
  Bytes pixels;  // (size, kSide, kSide, kColours)
  Bytes labels;  // (size)
};

// -- reading --------------------------------------------------------------------------------------

Error unusable(const fs::path& path, const std::string& what) {
  return {ErrorKind::data, concat(path.string(), " is not usable: ", what)};
}

/// Appends the records of a file to `part`.
Result<void> read_file(const CifarFamily& family, const fs::path& path, Part& part) {
  const std::size_t classes = family.coarse ? 2 : 1;  // bytes at the head of a record
  const std::size_t record = classes + kPixels;
  const Result<Bytes> bytes = read_input_file(path, kRecordsMax * record);
  TROUPE_TRY(bytes);
  const std::size_t count = bytes->size() / record;
  if (count == 0 || bytes->size() % record != 0) {
    return unusable(path,
                    fill_in("it is {} bytes long, which is no whole number of records of {}",
                            bytes->size(),
                            record));
  }
  std::size_t at = part.pixels.size();
  part.pixels.resize(at + count * kPixels);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* head = bytes->data() + i * record;
    const int label = head[classes - 1];
    if (label >= family.classes || (family.coarse && head[0] >= kCoarseClasses)) {
      const bool fine = label >= family.classes;
      return unusable(path,
                      fill_in("the {} of record {} is {}, not 0 to {}",
                              fine ? "label" : "coarse label",
                              i,
                              fine ? label : int{head[0]},
                              (fine ? family.classes : kCoarseClasses) - 1));
    }
    part.labels.push_back(head[classes - 1]);
    const std::uint8_t* planes = head + classes;  // (kColours, kSide, kSide)
    for (std::size_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      for (std::size_t colour = 0; colour < kColours; ++colour) {
        part.pixels[at++] = planes[colour * kSide * kSide + pixel];
      }
    }
  }
  return {};
}

// -- the data set ---------------------------------------------------------------------------------

/// How a training image is changed; as it stands, nothing is.
struct Change {
  std::size_t down = kBorder;   // row of the bordered image that comes first, 0 .. 2 kBorder
  std::size_t right = kBorder;  // the same of its columns
  bool mirrored = false;
};

class Cifar final : public Dataset {
 public:
  Cifar(const CifarFamily& family, bool augment, std::uint64_t seed, Part train, Part test)
      : classes_(family.classes),
        augment_(augment),
        seed_(seed),
        train_(std::move(train)),
        test_(std::move(test)) {
    for (std::size_t i = 0; i < kRow; ++i) {
      scale_[i] = 1.0f / (255.0f * family.deviation[i % kColours]);
      shift_[i] = -family.mean[i % kColours] / family.deviation[i % kColours];
    }
  }

  std::int64_t size(Split split) const override {
    return static_cast<std::int64_t>(part(split).labels.size());
  }

  Shape sample_shape() const override { return {kSide, kSide, kColours}; }

  int classes() const override { return classes_; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    float* out = to.x.data();
    for (std::size_t i = 0; i < indices.size(); ++i, out += kPixels) {
      const auto index = static_cast<std::size_t>(indices[i]);
      const bool change = augment_ && split == Split::train;
      write(part(split).pixels.data() + index * kPixels,
            change ? draw_change(epoch, index) : Change{},
            out);
      to.labels[i] = part(split).labels[index];
    }
  }

 private:
  const Part& part(Split split) const { return split == Split::train ? train_ : test_; }

  Change draw_change(std::int64_t epoch, std::uint64_t index) const {
    const RandomStream random(seed_, Purpose::augment, static_cast<std::uint64_t>(epoch));
    return {.down = random.below(3 * index, 2 * kBorder + 1),
            .right = random.below(3 * index + 1, 2 * kBorder + 1),
            .mirrored = random.below(3 * index + 2, 2) == 1};
  }

  void write(const std::uint8_t* image, const Change& change, float* out) const {
    // The columns of a row that do not come from the border, and where they come from.
    const std::size_t begin = change.right < kBorder ? kBorder - change.right : 0;
    const std::size_t end = std::min(kSide, kSide + kBorder - change.right);
    const std::size_t from = begin + change.right - kBorder;
    for (std::size_t y = 0; y < kSide; ++y, out += kRow) {
      std::array<std::uint8_t, kRow> row{};  // black
      const std::size_t bordered = y + change.down;
      if (bordered >= kBorder && bordered < kBorder + kSide) {
        const std::uint8_t* source = image + (bordered - kBorder) * kRow + from * kColours;
        std::copy_n(source, (end - begin) * kColours, row.begin() + begin * kColours);
      }
      if (change.mirrored) {
        std::reverse(row.begin(), row.end());  // and the colours of each pixel, so back again
        for (std::size_t x = 0; x < kRow; x += kColours) {
          std::swap(row[x], row[x + 2]);
        }
      }
      std::array<float, kRow> values;  // of its own, so that -O2 makes vectors of the loop
      for (std::size_t i = 0; i < kRow; ++i) {
        values[i] = static_cast<float>(row[i]) * scale_[i] + shift_[i];
      }
      std::copy(values.begin(), values.end(), out);
    }
  }

  int classes_;
  bool augment_;
  std::uint64_t seed_;
  std::array<float, kRow> scale_;  // of each byte of a row
  std::array<float, kRow> shift_;
  Part train_;
  Part test_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> open_cifar(const CifarFamily& family,
                                                  const proto::Cifar& options,
                                                  std::uint64_t seed) {
  const auto files = find_files({family.title, family.name, family.files}, options.path());
  TROUPE_TRY(files);
  Part train;
  Part test;
  for (const fs::path& path : *files) {
    TROUPE_TRY(read_file(family, path, path == files->back() ? test : train));
  }
  const auto size = static_cast<std::int64_t>(train.labels.size());
  if (options.limit() > size) {
    return data_error("data.{}.limit is {}, but {} holds only {} training samples",
                      family.name,
                      options.limit(),
                      files->front().parent_path().string(),
                      size);
  }
  if (options.limit() > 0) {
    train.labels.resize(static_cast<std::size_t>(options.limit()));
    train.pixels.resize(static_cast<std::size_t>(options.limit()) * kPixels);
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<Cifar>(family, options.augment(), seed, std::move(train), std::move(test)));
}

}  // namespace troupe
