// Images of one's own: a folder of PNG and JPEG files for each class (class_folders.hpp).
//
//   photos/rose/1.jpg   --decode, scale-->   (height, width, 3)   label 0, "rose"
//   photos/tulip/1.png                                            label 1, "tulip"
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe::proto {
class Folder;
}  // namespace troupe::proto

namespace troupe {

/// Decodes every image once, by several threads: damaged ones are met before anything is trained. Scaled images
/// are kept where there is room for all, else decoded again by gather(), which throws std::runtime_error where one
/// has become unusable since. Samples are in the order of classes and names; without test images of their own, these
/// are drawn by `seed`. `prepared`: as open_dataset's. Error (data) with the path and what is wrong with it; (usage)
/// where no folder is named.
Result<std::shared_ptr<const Dataset>> open_image_folder(const proto::Folder& options,
                                                         std::uint64_t seed,
                                                         const Preparation* prepared = nullptr);

}  // namespace troupe
