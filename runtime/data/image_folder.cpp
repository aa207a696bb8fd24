#include "runtime/data/image_folder.hpp"

#include "experiment/data.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/class_folders.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/image.hpp"
#include "runtime/data/image_scale.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/data/loaders.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/data/sample_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::size_t kImageFileMax = std::size_t{1} << 28;  // bytes
constexpr std::size_t kLevels = 256;                         // of a channel

using Files = std::vector<ClassFile>;

// -- one image ------------------------------------------------------------------------------------

/// How files become samples.
struct ImageForm {
  ImageScaling scaling;
  bool grey = false;

  std::size_t channels() const { return grey ? 1 : 3; }

  /// Numbers of a sample.
  std::size_t size() const { return scaling.height * scaling.width * channels(); }
};

ImageForm form_of(const proto::Folder& options) {
  ImageScaling scaling{.height = static_cast<std::size_t>(options.height()),
                       .width = static_cast<std::size_t>(options.width())};
  if (options.fit() == proto::Folder::stretch) {
    scaling.fit = ImageScaling::Fit::stretch;
  }
  if (options.filter() == proto::Folder::bilinear) {
    scaling.filter = ImageScaling::Filter::bilinear;
  }
  return {scaling, options.grey()};
}

/// The file's pixels as they are kept: (height, width, channels).
Result<Bytes> read_sample(const std::filesystem::path& path, const ImageForm& form) {
  const auto file = read_input_file(path, kImageFileMax);
  TROUPE_TRY(file);
  auto image = decode_image(*file);
  if (!image) {
    return Error{ErrorKind::data, concat(path.string(), " is not usable: ", image.error().message)};
  }
  return scaled_image(form.grey ? grey_image(*image) : *image, form.scaling).pixels;
}

// -- all of them ----------------------------------------------------------------------------------

/// Sums over pixels: whole numbers, which are the same in whatever order threads come.
struct ChannelSums {
  std::array<std::uint64_t, 3> sum{};
  std::array<std::uint64_t, 3> squares{};

  void add(const Bytes& pixels, std::size_t channels) {
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      sum[i % channels] += pixels[i];
      squares[i % channels] += std::uint64_t{pixels[i]} * pixels[i];
    }
  }

  void add(const ChannelSums& other) {
    for (std::size_t c = 0; c < sum.size(); ++c) {
      sum[c] += other.sum[c];
      squares[c] += other.squares[c];
    }
  }
};

/// A split: its files, and what they come to where it is kept.
struct ImagePart {
  Files files{};
  Bytes pixels{};  // (files, size of a sample), or none
};

/// Decodes all files of a part, which shows whether they can be.
Result<void> read_part(
    ImagePart& part, const ImageForm& form, std::size_t threads, bool keep, ChannelSums& sums) {
  part.pixels.resize(keep ? part.files.size() * form.size() : 0);
  std::mutex mutex;  // of the sums
  return load_all(part.files.size(), threads, [&](std::size_t i) -> Result<void> {
    const auto pixels = read_sample(part.files[i].path, form);
    TROUPE_TRY(pixels);
    if (keep) {
      std::copy(pixels->begin(),
                pixels->end(),
                part.pixels.begin() + static_cast<std::ptrdiff_t>(i * form.size()));
    }
    ChannelSums own;
    own.add(*pixels, form.channels());
    const std::lock_guard lock(mutex);
    sums.add(own);
    return {};
  });
}

/// Of pixels in [0, 1].
std::vector<ColumnScale> scales_of_pixels(const ChannelSums& sums,
                                          std::size_t channels,
                                          std::size_t pixels) {
  std::vector<ColumnScale> scales;
  for (std::size_t c = 0; c < channels; ++c) {
    const auto count = static_cast<double>(pixels);
    const double mean = static_cast<double>(sums.sum[c]) / count;
    const double variance = static_cast<double>(sums.squares[c]) / count - mean * mean;
    scales.push_back({mean / 255, variance > 0 ? 255 / std::sqrt(variance) : 1});
  }
  return scales;
}

// -- the data set ---------------------------------------------------------------------------------

class ImageFolder final : public Dataset, public SampleNames {
 public:
  ImageFolder(
      ImageForm form, std::size_t threads, ImagePart train, ImagePart test, Preparation preparation)
      : form_(form),
        threads_(threads),
        train_(std::move(train)),
        test_(std::move(test)),
        preparation_(std::move(preparation)) {
    for (const ColumnScale& scale : preparation_.x) {
      for (std::size_t level = 0; level < kLevels; ++level) {
        values_.push_back(scale(static_cast<double>(level) / 255));
      }
    }
  }

  std::int64_t size(Split split) const override {
    return static_cast<std::int64_t>(part(split).files.size());
  }

  Shape sample_shape() const override {
    return {static_cast<std::int64_t>(form_.scaling.height),
            static_cast<std::int64_t>(form_.scaling.width),
            static_cast<std::int64_t>(form_.channels())};
  }

  int classes() const override { return static_cast<int>(preparation_.classes.size()); }

  const Preparation* preparation() const override { return &preparation_; }

  std::string kind() const override { return "file"; }

  std::string sample_name(Split split, std::int64_t index) const override {
    return part(split).files.at(static_cast<std::size_t>(index)).path.string();
  }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const ImagePart& from = part(split);
    const auto write = [&](std::size_t i) -> Result<void> {
      const auto index = static_cast<std::size_t>(indices[i]);
      to.labels[i] = from.files[index].label;
      float* const out = to.x.data() + i * form_.size();
      if (!from.pixels.empty()) {
        write_values(from.pixels.data() + index * form_.size(), out);
        return {};
      }
      const auto pixels = read_sample(from.files[index].path, form_);
      TROUPE_TRY(pixels);
      write_values(pixels->data(), out);
      return {};
    };
    const bool kept = !from.pixels.empty();
    if (auto done = load_all(indices.size(), kept ? 1 : threads_, write); !done) {
      throw std::runtime_error(done.error().message);
    }
  }

 private:
  const ImagePart& part(Split split) const { return split == Split::train ? train_ : test_; }

  void write_values(const std::uint8_t* pixels, float* out) const {
    const std::size_t channels = form_.channels();
    for (std::size_t i = 0; i < form_.size(); i += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        out[i + c] = values_[c * kLevels + pixels[i + c]];
      }
    }
  }

  ImageForm form_;
  std::size_t threads_;
  ImagePart train_;
  ImagePart test_;
  Preparation preparation_;
  std::vector<float> values_;  // (channels, kLevels): what a byte becomes
};

// -- opening --------------------------------------------------------------------------------------

/// The files by split, and the classes.
struct ListedImages {
  Files train;
  Files test;
  std::vector<std::string> classes;
  ClassFolderRoots roots;
  bool without_target = false;  // images to be predicted, of no known class
};

Error too_few(const std::filesystem::path& path, std::size_t classes, std::size_t images) {
  return data_error("{} is not usable: it holds {}{}{}{}; expected at least two of each",
                    path.string(),
                    images,
                    images == 1 ? " image of " : " images of ",
                    classes,
                    classes == 1 ? " class" : " classes");
}

Result<ListedImages> list_images(const proto::Folder& options,
                                 std::uint64_t seed,
                                 const Preparation* prepared) {
  const ClassFolderRoots roots = class_folder_roots(options.path(), options.test_path());
  const auto alone = prepared ? list_images_alone(options.path()) : Result(Files());
  if (!alone || !alone->empty()) {
    return alone ? ListedImages{*alone, *alone, prepared->classes, roots, true}
                 : Result<ListedImages>(alone.error());
  }
  auto train =
      list_class_folders(roots.train, prepared ? prepared->classes : std::vector<std::string>());
  TROUPE_TRY(train);
  if (train->files.size() < 2 || train->classes.size() < 2) {
    return too_few(roots.train, train->classes.size(), train->files.size());
  }
  if (!roots.test.empty()) {
    auto test = list_class_folders(roots.test, train->classes);
    TROUPE_TRY(test);
    return ListedImages{
        std::move(train->files), std::move(test->files), std::move(train->classes), roots};
  }
  const auto images = static_cast<std::int64_t>(train->files.size());
  const HeldOut rows = hold_out(images, options.test_share(), seed);
  ListedImages listed{{}, {}, std::move(train->classes), roots};
  for (const std::int64_t row : rows.train) {
    listed.train.push_back(train->files[static_cast<std::size_t>(row)]);
  }
  for (const std::int64_t row : rows.test) {
    listed.test.push_back(train->files[static_cast<std::size_t>(row)]);
  }
  return listed;
}

/// What the samples go through, where nothing is given.
std::vector<ColumnScale> own_scales(const proto::Folder& options,
                                    const ImageForm& form,
                                    const ChannelSums& sums,
                                    std::size_t images) {
  return options.normalize()
             ? scales_of_pixels(
                   sums, form.channels(), images * form.scaling.height * form.scaling.width)
             : std::vector<ColumnScale>(form.channels());
}

/// That images of this form can be shown to weights that were trained on `prepared`.
Result<void> check_prepared(const ImageForm& form, const Preparation& prepared) {
  if (prepared.x.size() != form.channels()) {
    return usage_error(
        "data.folder: the weights were trained on images of {} channels, and these have {}",
        prepared.x.size(),
        form.channels());
  }
  if (prepared.classes.empty()) {
    return Error{ErrorKind::usage, "data.folder: the weights' file names no classes"};
  }
  for (const ColumnScale& scale : prepared.x) {
    if (!std::isfinite(scale(0)) || !std::isfinite(scale(1))) {
      return Error{ErrorKind::data,
                   "data.folder: the scales in the weights' file do not make numbers of pixels"};
    }
  }
  return {};
}

std::vector<std::int32_t> labels_of(const Files& files) {
  return mapped<std::int32_t>(files, [&](const ClassFile& file) { return file.label; });
}

/// What was understood of the folder, and what looks wrong in it.
void tell_images(const proto::Folder& options,
                 const ClassFolderRoots& roots,
                 const Files& train,
                 const Files& test,
                 Preparation& to) {
  to.understood.push_back(fill_in(
      "{} images of {} classes, taken as {} x {} pixels: {} for training and {} for tests, {}",
      train.size() + test.size(),
      to.classes.size(),
      options.width(),
      options.height(),
      train.size(),
      test.size(),
      roots.test.empty() ? "drawn by seed" : "of " + roots.test.string()));
  for (const std::string& name : roots.unused) {
    to.doubts.push_back(concat("the folder ", name, " is not used"));
  }
  to.constant = constant_accuracy(labels_of(train), labels_of(test));
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_image_folder(const proto::Folder& options,
                                                         std::uint64_t seed,
                                                         const Preparation* prepared) {
  if (options.path().empty()) {
    return Error{ErrorKind::usage,
                 "data.folder.path is not set: name a folder by --set data.folder.path=FOLDER"};
  }
  const ImageForm form = form_of(options);
  TROUPE_TRY(prepared ? check_prepared(form, *prepared) : Result<void>());
  auto listed = list_images(options, seed, prepared);
  TROUPE_TRY(listed);
  ImagePart train{.files = std::move(listed->train)};
  ImagePart test{.files = std::move(listed->test)};
  const std::size_t images = train.files.size() + test.files.size();
  const std::size_t room = static_cast<std::size_t>(options.memory()) << 20;
  const bool keep = images <= room / form.size();
  const auto threads = static_cast<std::size_t>(options.threads());
  ChannelSums sums;
  TROUPE_TRY(read_part(train, form, threads, keep, sums));
  ChannelSums unused;
  TROUPE_TRY(read_part(test, form, threads, keep, unused));
  Preparation preparation{
      .classes = std::move(listed->classes),
      .x = prepared ? prepared->x : own_scales(options, form, sums, train.files.size()),
      .without_target = listed->without_target};
  tell_images(options, listed->roots, train.files, test.files, preparation);
  return std::shared_ptr<const Dataset>(std::make_shared<ImageFolder>(
      form, threads, std::move(train), std::move(test), std::move(preparation)));
}

}  // namespace troupe
