#include "runtime/data/fetch.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/archive.hpp"
#include "runtime/data/cifar.hpp"
#include "runtime/data/download.hpp"
#include "runtime/record/sha256.hpp"

#include <algorithm>
#include <array>
#include <system_error>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::array<FetchFile, 4> kMnistFiles{{
    {"train-images-idx3-ubyte.gz",
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
     {}},
    {"train-labels-idx1-ubyte.gz",
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
     {}},
    {"t10k-images-idx3-ubyte.gz",
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
     {}},
    {"t10k-labels-idx1-ubyte.gz",
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
     {}},
}};
constexpr std::array<FetchFile, 4> kFashionMnistFiles{{
    {"train-images-idx3-ubyte.gz",
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
     {}},
    {"train-labels-idx1-ubyte.gz",
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
     {}},
    {"t10k-images-idx3-ubyte.gz",
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
     {}},
    {"t10k-labels-idx1-ubyte.gz",
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
     {}},
}};
constexpr std::array<FetchFile, 1> kCifar10Archive{{
    {"cifar-10-binary.tar.gz",
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
     kCifar10Files},
}};
constexpr std::array<FetchFile, 1> kCifar100Archive{{
    {"cifar-100-binary.tar.gz",
     "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
     kCifar100Files},
}};
constexpr std::array<FetchFile, 1> kShakespeareFiles{{
    {"input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", {}},
}};

constexpr std::array<FetchSet, 5> kSets{{
    {"mnist", "MNIST", "https://storage.googleapis.com/cvdf-datasets/mnist", kMnistFiles},
    {"fashion_mnist",
     "Fashion-MNIST",
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
     kFashionMnistFiles},
    {"cifar10", "CIFAR-10", "https://www.cs.toronto.edu/~kriz", kCifar10Archive},
    {"cifar100", "CIFAR-100", "https://www.cs.toronto.edu/~kriz", kCifar100Archive},
    {"shakespeare",
     "Shakespeare",
     "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
     kShakespeareFiles},
}};

/// Whether `file` need not be fetched. Error (data) where something else is in its place.
Result<bool> is_there(const FetchFile& file, const std::string& sha256, const fs::path& folder) {
  std::error_code ignored;
  if (!file.unpacked.empty()) {
    return std::all_of(file.unpacked.begin(), file.unpacked.end(), [&](std::string_view name) {
      return fs::is_regular_file(folder / name, ignored);
    });
  }
  const fs::path path = folder / file.name;
  if (!fs::exists(path, ignored)) {
    return false;
  }
  const Result<std::string> there = file_sha256(path);
  TROUPE_TRY(there);
  if (*there != sha256) {
    return data_error(
        "{} is there already, but its SHA-256 is {}, not {}; remove it to fetch it again",
        path.string(),
        *there,
        sha256);
  }
  return true;
}

Result<void> fetch_file(const FetchFile& file,
                        const std::string& url,
                        const FetchOptions& options) {
  const std::string name(file.name);
  const auto note = [&](const std::string& sentence) {
    if (options.note) {
      options.note(file.name, sentence);
    }
  };
  const auto own = options.sha256.find(name);
  const std::string sha256(own == options.sha256.end() ? file.sha256 : own->second);
  const Result<bool> there = is_there(file, sha256, options.folder);
  TROUPE_TRY(there);
  if (*there) {
    note("is there already");
    return {};
  }
  const fs::path path = options.folder / name;
  Download wanted{.url = url + "/" + name, .path = path, .sha256 = sha256};
  wanted.stall_seconds = options.stall_seconds;
  wanted.attempts = options.attempts;
  wanted.pause_seconds = options.pause_seconds;
  wanted.note = note;
  if (options.progress) {
    wanted.progress = [&](std::int64_t bytes, std::int64_t total) {
      options.progress(file.name, bytes, total);
    };
  }
  TROUPE_TRY(download(wanted));
  if (!file.unpacked.empty()) {
    TROUPE_TRY(unpack(path, file.unpacked, options.folder));
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  note("is there");
  return {};
}

}  // namespace

std::span<const FetchSet> fetch_sets() {
  return kSets;
}

Result<void> fetch(const FetchSet& set, const FetchOptions& options) {
  std::error_code code;
  fs::create_directories(options.folder, code);
  if (code) {
    return lost_error("{} could not be made: {}", options.folder.string(), code.message());
  }
  std::string url(options.url.empty() ? set.url : options.url);
  while (url.ends_with('/')) {
    url.pop_back();
  }
  for (const FetchFile& file : set.files) {
    TROUPE_TRY(fetch_file(file, url, options));
  }
  return {};
}

}  // namespace troupe
