// Images and labels of others: the four files of IDX, or one of CIFAR-10's.
#include "experiment/data.pb.h"
#include "runtime/data/cifar.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/idx.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace troupe::fuzz {
namespace {

constexpr const char* kIdx[] = {"train-images-idx3-ubyte",
                                "train-labels-idx1-ubyte",
                                "t10k-images-idx3-ubyte",
                                "t10k-labels-idx1-ubyte"};

std::string with_zeros(std::string head, std::size_t more) {
  return head.append(more, '\0');
}

std::string images(char count) {
  return with_zeros(
      std::string("\0\0\x8\x3\0\0\0", 7) + count + std::string("\0\0\0\x1c\0\0\0\x1c", 8),
      28 * 28 * static_cast<std::size_t>(count));
}

std::string labels(char count) {
  return with_zeros(std::string("\0\0\x8\x1\0\0\0", 7) + count, static_cast<std::size_t>(count));
}

}  // namespace

std::vector<std::string> seeds() {
  return {joined({images(3), labels(3), images(2), labels(2)}), joined({with_zeros("\x3", 3072)})};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::vector<std::string> parts = fuzz::parted(fuzz::text_of(data, size));
  const std::string folder = fuzz::files().folder().string();
  if (parts.size() == std::size(fuzz::kIdx)) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      fuzz::files().write(fuzz::kIdx[i], parts[i]);
    }
    proto::Idx options;
    options.set_path(folder);
    fuzz::tried(open_idx(kMnist, options));
  } else if (parts.size() == 1) {
    for (const std::string_view name : kCifar10Files) {
      fuzz::files().write(std::string(name), parts[0]);
    }
    proto::Cifar options;
    options.set_path(folder);
    fuzz::tried(open_cifar(kCifar10, options, 1));
  }
  return 0;
}
