#include "runtime/data/foreign.hpp"

#include "experiment/data.pb.h"
#include "kernels/result.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace troupe {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kLookedAt = 4096;

struct ForeignForm {
  std::string_view begin;
  std::string_view within;  // what the first bytes have somewhere; empty: nothing
  std::string_view called;
  std::string_view frame;   // Python that makes a table `d` of the file P; empty: there is none
  std::string_view arrays;  // Python that makes an array `a` of it; empty: d.to_numpy()
};

constexpr std::array kForeignForms{
    ForeignForm{
        "PK\3\4"sv, "xl/"sv, "an Excel workbook", "import pandas; d=pandas.read_excel(P)", ""},
    ForeignForm{"PK\3\4"sv,
                "[Content_Types].xml"sv,
                "an Excel workbook",
                "import pandas; d=pandas.read_excel(P)",
                ""},
    ForeignForm{"PK\3\4"sv,
                "data.pkl"sv,
                "what PyTorch saves",
                "",
                "import torch; a=torch.load(P).numpy()"},
    ForeignForm{"\xd0\xcf\x11\xe0"sv,
                "",
                "an old Excel workbook",
                "import pandas; d=pandas.read_excel(P)",
                ""},
    ForeignForm{
        "PAR1"sv, "\x15"sv, "a Parquet file", "import pandas; d=pandas.read_parquet(P)", ""},
    ForeignForm{
        "ARROW1\0\0"sv, "", "a Feather file", "import pandas; d=pandas.read_feather(P)", ""},
    ForeignForm{"\x89HDF"sv, "", "an HDF5 file", "import pandas; d=pandas.read_hdf(P)", ""},
    ForeignForm{"MATLAB 5"sv,
                "",
                "a file of MATLAB's",
                "",
                "import scipy.io; a=scipy.io.loadmat(P)[\"x\"]"},
    ForeignForm{"\x80\x02"sv, "", "a pickle", "import pandas; d=pandas.read_pickle(P)", ""},
    ForeignForm{"\x80\x03"sv, "", "a pickle", "import pandas; d=pandas.read_pickle(P)", ""},
    ForeignForm{"\x80\x04"sv, "", "a pickle", "import pandas; d=pandas.read_pickle(P)", ""},
    ForeignForm{"\x80\x05"sv, "", "a pickle", "import pandas; d=pandas.read_pickle(P)", ""},
    ForeignForm{"\x93NUMPY"sv,
                "",
                "an array of NumPy's",
                "import numpy, pandas; d=pandas.DataFrame(numpy.load(P))",
                "import numpy; a=numpy.load(P)"},
    ForeignForm{"SQLite format 3"sv, "", "a database of SQLite's", "", ""},
    ForeignForm{"%PDF"sv, "", "a PDF document", "", ""},
    ForeignForm{"<!DOCTYPE"sv, "", "a web page", "", ""},
    ForeignForm{"<!doctype"sv, "", "a web page", "", ""},
    ForeignForm{"<html"sv, "", "a web page", "", ""},
    ForeignForm{"{\""sv,
                "}\n{"sv,
                "JSON, an object a line",
                "import pandas; d=pandas.read_json(P, lines=True)",
                ""},
    ForeignForm{"{\""sv, "", "JSON", "import pandas; d=pandas.read_json(P)", ""},
    ForeignForm{"[{"sv, "", "JSON", "import pandas; d=pandas.read_json(P)", ""},
    ForeignForm{"\x89PNG"sv, "", "a PNG image", "", ""},
    ForeignForm{"\xff\xd8\xff"sv, "", "a JPEG image", "", ""},
    ForeignForm{"GIF8"sv, "", "a GIF image", "", ""},
    ForeignForm{"BM"sv, "\0\0\0\0"sv, "a BMP image", "", ""},
    ForeignForm{"II*\0"sv, "", "a TIFF image", "", ""},
    ForeignForm{"MM\0*"sv, "", "a TIFF image", "", ""},
    ForeignForm{"RIFF"sv, "WEBP"sv, "a WebP image", "", ""},
    ForeignForm{"\0\0\0"sv, "ftyp"sv, "a HEIF or AVIF image", "", ""},
};

/// The Python that makes what is wanted of the file.
std::string conversion(const ForeignForm& form, const std::string& path, Wanted wanted) {
  const std::filesystem::path file(path);
  // A file that is called as what is to be made of it, x.csv that is no table, is not written over.
  const bool taken =
      file.extension() == ".csv" || file.extension() == ".npz" || file.extension() == ".bin";
  const std::string stem = file.stem().string() + (taken ? "-made" : "");
  std::string code(wanted == Wanted::table || form.arrays.empty() ? form.frame : form.arrays);
  if (path.find_first_of("'\"\\") != path.npos) {
    return "";  // neither a shell nor Python would read the path as it is
  }
  if (code.empty() || wanted == Wanted::image) {
    return "";
  }
  if (const std::size_t at = code.find("(P"); at != code.npos) {
    code.replace(at + 1, 1, "\"" + path + "\"");
  }
  if (wanted == Wanted::table) {
    return fill_in("; python3 -c '{}; d.to_csv(\"{}.csv\", index=False)' makes {}.csv of it",
                   code,
                   stem,
                   stem);
  }
  code += form.arrays.empty() ? "; a=d.to_numpy()" : "";
  if (wanted == Wanted::tokens) {
    return fill_in("; python3 -c '{}; a.astype(\"uint16\").tofile(\"{}.bin\")' makes {}.bin of it",
                   code,
                   stem,
                   stem);
  }
  return fill_in(
      "; python3 -c '{}; import numpy; numpy.savez(\"{}.npz\", x=a[:,:-1], y=a[:,-1])' makes "
      "{}.npz of it, whose last column is y",
      code,
      stem,
      stem);
}

}  // namespace

std::string foreign_form(std::span<const std::uint8_t> begin,
                         const std::string& path,
                         Wanted wanted) {
  const std::string_view head(reinterpret_cast<const char*>(begin.data()),
                              std::min(begin.size(), kLookedAt));
  // A file of tokens has no head of its own: two or three bytes are a token or so that may well be the first one.
  const std::size_t least = wanted == Wanted::tokens ? 4 : 1;
  const auto form = std::find_if(kForeignForms.begin(), kForeignForms.end(), [&](const auto& f) {
    return f.begin.size() >= least && head.starts_with(f.begin) && head.find(f.within) != head.npos;
  });
  return form == kForeignForms.end()
             ? std::string()
             : concat("it is ", form->called, conversion(*form, path, wanted));
}

std::string foreign_form(const std::string& path, Wanted wanted) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return "";
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> head(kLookedAt);
  file.read(reinterpret_cast<char*>(head.data()), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return foreign_form(head, path, wanted);
}

std::string data_key(const std::filesystem::path& path) {
  struct Kind {
    std::string_view end;  // of the name of a file
    std::string_view key;
    bool whole_folder;  // the folder is named, not the file in it
  };

  constexpr Kind kKinds[] = {{"idx3-ubyte", "mnist", true},
                             {"idx1-ubyte", "mnist", true},
                             {"idx3-ubyte.gz", "mnist", true},
                             {"idx1-ubyte.gz", "mnist", true},
                             {"data_batch_1.bin", "cifar10", true},
                             {".npy", "arrays", true},
                             {".npz", "arrays", false},
                             {".safetensors", "arrays", false},
                             {".csv", "csv", false},
                             {".tsv", "csv", false},
                             {".txt", "text", false},
                             {".bin", "tokens", false}};
  const auto kind_of = [&](const std::filesystem::path& file) {
    const std::string name = file.filename();
    return std::ranges::find_if(kKinds, [&](const Kind& k) { return name.ends_with(k.end); });
  };
  const auto key = [](std::string_view kind, const std::filesystem::path& of) {
    return concat("--set data.", kind, ".path=", of.string());
  };
  std::error_code code;
  if (!std::filesystem::is_directory(path, code)) {
    const Kind* const kind = kind_of(path);
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    return kind == std::end(kKinds) ? "" : key(kind->key, kind->whole_folder ? folder : path);
  }
  // The one that is named as a whole goes before files of which it is one of several, and these before class folders.
  std::string one;
  std::string folders;
  for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
    const Kind* const kind = kind_of(entry.path());
    if (entry.is_directory(code)) {
      folders = key("folder", path);
    } else if (kind != std::end(kKinds) && kind->whole_folder) {
      return key(kind->key, path);
    } else if (kind != std::end(kKinds) && (one.empty() || entry.path().string() < one)) {
      one = entry.path();
    }
  }
  return !folders.empty() || one.empty() ? folders : data_key(one);
}

std::string own_path(const proto::Data& data) {
  constexpr std::array kOwn{"csv", "arrays", "folder", "text", "tokens"};
  const auto* const reflection = data.GetReflection();
  const auto* const chosen =
      reflection->GetOneofFieldDescriptor(data, data.GetDescriptor()->oneof_decl(0));
  if (!chosen || std::ranges::find(kOwn, chosen->name()) == kOwn.end()) {
    return "";
  }
  const auto& options = reflection->GetMessage(data, chosen);
  const auto* const field = options.GetDescriptor()->FindFieldByName("path");
  return options.GetReflection()->GetString(options, field);
}

std::string key_of_what_is_there(const proto::Data& data) {
  const std::string path = own_path(data);
  std::error_code code;
  if (path.empty() || !std::filesystem::exists(path, code)) {
    return "";
  }
  const std::string key = data_key(path);
  const std::string chosen = choice_name(data);
  const bool is_file = !std::filesystem::is_directory(path, code);
  // A file's name alone does not say that it is no table: what is wrong with it may be in a line. A folder it is not. Of one
  // array the loader of arrays itself says more.
  const bool by_name = chosen != "folder" && is_file && key.ends_with("=" + path);
  const bool array = chosen == "arrays" && path.ends_with(".npy");
  return by_name || array || key == concat("--set data.", chosen, ".path=", path) ? "" : key;
}

}  // namespace troupe
