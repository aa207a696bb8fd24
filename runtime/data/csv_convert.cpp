#include "runtime/data/csv_convert.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv.hpp"
#include "runtime/data/csv_table.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {
namespace {

/// The first bytes of a .npy file; the elements follow at a multiple of 64.
std::string npy_head(const std::string& type, const std::string& shape) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kBefore = 10;  // magic, version and the length of the dictionary
  std::string dictionary =
      concat("{'descr': '", type, "', 'fortran_order': False, 'shape': ", shape, ", }");
  dictionary.resize((kBefore + dictionary.size()) / kAlignment * kAlignment + kAlignment - kBefore,
                    ' ');
  dictionary.back() = '\n';
  std::string head = "\x93NUMPY";
  head += '\x01';
  head += '\0';
  head += static_cast<char>(dictionary.size() & 0xffU);
  head += static_cast<char>(dictionary.size() >> 8U);
  return head + dictionary;
}

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The two files as they are written.
struct ArrayFiles {
  std::unique_ptr<OutputFile> x;
  std::unique_ptr<OutputFile> y;
  std::int64_t rows = 0;

  void write(const CsvTable& table, const std::vector<std::size_t>& widths, bool values) {
    std::string xs;
    std::string ys;
    for (std::size_t i = 0; i < table.cells.size(); ++i) {
      const std::size_t words = widths[i % widths.size()];
      const auto word = static_cast<std::size_t>(words > 0 ? table.cells[i] : 0);
      for (std::size_t w = 0; w < words; ++w) {
        append(xs, w == word ? 1.0f : 0.0f);
      }
      if (words == 0) {
        append(xs, static_cast<float>(table.cells[i]));
      }
    }
    for (const double target : table.targets) {
      values ? append(ys, static_cast<float>(target))
             : append(ys, static_cast<std::int32_t>(target));
    }
    x->write(xs);
    y->write(ys);
    rows += table.rows();
  }

  Result<void> close() const {
    auto closed = x->close();
    auto other = y->close();
    return closed ? other : closed;
  }
};

/// The names by label, and what makes no data set is refused.
Result<ConvertedTable> learn(CsvLoader& loader,
                             const proto::Csv& options,
                             std::size_t block,
                             std::vector<ColumnScale>& scales) {
  ConvertedTable made;
  std::optional<ColumnMoments> moments;
  const auto walked = loader.walk(options.path(), block, [&](const CsvTable& rows) {
    made.rows += rows.rows();
    const std::size_t used = rows.rows() > 0 ? rows.cells.size() / rows.targets.size() : 0;
    moments = moments || used == 0 ? std::move(moments) : ColumnMoments(used);
    for (std::size_t i = 0; i < rows.cells.size(); ++i) {
      if (!std::isnan(rows.cells[i])) {
        moments->add(i % used, rows.cells[i]);
      }
    }
    return Result<void>();
  });
  TROUPE_TRY(walked);
  scales = moments ? moments->scales() : std::vector<ColumnScale>();
  loader.finish_words();
  for (const std::size_t words : loader.widths()) {
    made.columns += static_cast<std::int64_t>(std::max<std::size_t>(1, words));
  }
  const char* const what = made.rows == 0 || made.columns == 0
                               ? "it holds no sample, or no column beside the target"
                           : loader.classes() == 1 ? "all of its samples are of one class"
                                                   : nullptr;
  if (what) {
    return Error{ErrorKind::data, concat(options.path(), " is not usable: ", what)};
  }
  made.classes = loader.class_names();
  return made;
}

Result<void> write_arrays(CsvLoader& loader,
                          const proto::Csv& options,
                          const ConvertedTable& made,
                          const std::vector<ColumnScale>& means,
                          const std::filesystem::path& folder,
                          std::size_t block) {
  auto x = OutputFile::create(folder / "x.npy");
  auto y = OutputFile::create(folder / "y.npy");
  if (!x || !y) {
    return !x ? x.error() : y.error();
  }
  ArrayFiles files{*std::move(x), *std::move(y)};
  files.x->write(npy_head("<f4", concat("(", made.rows, ", ", made.columns, ")")));
  files.y->write(npy_head(options.values() ? "<f4" : "<i4", concat("(", made.rows, ",)")));
  const auto walked = loader.walk(options.path(), block, [&](CsvTable& rows) {
    rows.fill(means);
    files.write(rows, loader.widths(), options.values());
    return files.x->failed()   ? files.x->flush()
           : files.y->failed() ? files.y->flush()
                               : Result<void>();
  });
  if (!walked) {
    return walked;
  }
  if (files.rows != made.rows) {
    return data_error("{} is not usable: it was changed while it was read", options.path());
  }
  TROUPE_TRY(files.close());
  std::string names;
  for (const std::string& name : made.classes) {
    names += name + '\n';
  }
  return names.empty() ? Result<void>() : write_file(folder / "classes.txt", names);
}

}  // namespace

Result<ConvertedTable> convert_csv(const proto::Csv& options,
                                   const std::filesystem::path& folder,
                                   std::size_t block) {
  TROUPE_TRY(check_csv_options(options));
  CsvLoader loader(options, nullptr);
  std::vector<ColumnScale> means;
  auto made = learn(loader, options, block, means);
  if (!made) {
    return made;
  }
  TROUPE_TRY(make_run_directory(folder));
  if (auto written = write_arrays(loader, options, *made, means, folder, block); !written) {
    std::error_code code;
    for (const char* name : {"x.npy", "y.npy", "classes.txt"}) {
      std::filesystem::remove(folder / name, code);  // half of it is of no use
    }
    return written.error();
  }
  return made;
}

}  // namespace troupe
