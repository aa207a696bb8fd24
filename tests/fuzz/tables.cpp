// Data of one's own: a CSV file, an archive or a folder of arrays, a file of token numbers. The first byte says which.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/arrays.hpp"
#include "runtime/data/csv.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/token_file.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/runtime/data/array_files.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace troupe::fuzz {
namespace {

constexpr std::int64_t kVocabulary = 300;

proto::Data options(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    if (!set_value(e, assignment)) {
      std::abort();
    }
  }
  if (!resolve(e)) {
    std::abort();
  }
  return e.data();
}

/// All its tokens are looked at.
bool read_tokens(const std::string& path) {
  const auto file = TokenFile::open(path, 2, kVocabulary);
  std::array<std::int32_t, 64> tokens{};
  return file && (*file)->size() > 0 &&
         (*file)->read(0,
                       std::span(tokens).first(static_cast<std::size_t>(
                           std::min<std::int64_t>((*file)->size(), std::ssize(tokens)))));
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string x = test::npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8});
  const std::string y = test::npy<std::int64_t>("(4,)", {0, 1, 2, 0}, 2);
  const auto archive = [&](bool packed) {
    return test::zip_archive({{"x.npy", x, packed}, {"y.npy", y, packed}});
  };
  std::string tokens;
  for (const std::uint32_t number : {20240520, 1, 3}) {
    tokens += test::little_endian(number, 4);
  }
  tokens.resize(1024);
  return {
      "clength,width,kind\n5.1,\"3.5\",setosa\n7.0,3.2,versicolor\n6,1e-3,setosa\n2,2,versicolor\n",
      "z" + archive(false),
      "z" + archive(true),
      "n" + joined({x, y}),
      "t" + tokens + test::little_endian(0x000300020001, 6),
      "t" + test::little_endian(0x0100000200010003, 8)};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using fuzz::files;
  if (size == 0) {
    return 0;
  }
  const std::string text = fuzz::text_of(data + 1, size - 1);
  const std::string folder = files().folder().string();
  static const proto::Csv table =
      fuzz::options({"data.csv.path=" + folder + "/table.csv", "data.csv.target=kind"}).csv();
  static const proto::Arrays archive =
      fuzz::options({"data.arrays.path=" + folder + "/arrays.npz"}).arrays();
  static const proto::Arrays arrays = fuzz::options({"data.arrays.path=" + folder}).arrays();
  if (data[0] == 'c') {
    files().write("table.csv", text);
    fuzz::tried(open_csv(table, 1));
  } else if (data[0] == 'z') {
    files().write("arrays.npz", text);
    fuzz::tried(open_arrays(archive, 1));
  } else if (data[0] == 'n') {
    auto parts = fuzz::parted(text);
    parts.resize(2);
    files().write("x.npy", parts[0]);
    files().write("y.npy", parts[1]);
    fuzz::tried(open_arrays(arrays, 1));
  } else {
    fuzz::sound = fuzz::read_tokens(files().write("tokens.bin", text).string());
  }
  return 0;
}
