#include "runtime/data/array_source.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/archive.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/data/mapped_file.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/shell_word.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kArrayFileMax = std::size_t{1} << 34;
constexpr std::size_t kNamesTold = 12;

Result<NumberArray> npy_of(Bytes bytes) {
  const auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return parse_npy(std::as_bytes(std::span(*owner)), owner);
}

Result<NumberArray> mapped_npy(const fs::path& path) {
  const auto file = MappedFile::open(path);
  TROUPE_TRY(file);
  auto array = parse_npy((*file)->bytes(), *file);
  if (array) {
    array->file = *file;
  }
  return array;
}

Error unusable_array(const std::string& path, const std::string& name, const std::string& what) {
  return {ErrorKind::data, concat(path, " is not usable: array ", json_string(name), ": ", what)};
}

std::string lowered(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return name;
}

/// What an array is called beside "train" or "test": of "X_train" it is "x".
std::string called_beside_part(const std::string& given) {
  std::string name = lowered(given);
  for (const std::string_view part : {"train", "test", "_", "-", "."}) {
    for (std::size_t at; (at = name.find(part)) != name.npos;) {
      name.erase(at, part.size());
    }
  }
  return name;
}

/// " --set data.arrays.x=X_train --set data.arrays.y=y_train ...", of arrays whose names say which are samples and which are
/// their targets; nullopt where they do not.
std::optional<std::string> names_to_set(const std::vector<std::string>& names) {
  constexpr std::array<std::string_view, 5> kSamples{"x", "images", "features", "data", "inputs"};
  constexpr std::array<std::string_view, 5> kTargets{"y", "labels", "label", "targets", "target"};
  const auto one_of = [&](const auto& words, bool test) {  // the words before come first
    for (const std::string_view word : words) {
      for (const std::string& name : names) {
        if ((lowered(name).find("test") != name.npos) == test && called_beside_part(name) == word) {
          return name;
        }
      }
    }
    return std::string();
  };
  const std::string x = one_of(kSamples, false);
  const std::string y = one_of(kTargets, false);
  const std::string test_x = one_of(kSamples, true);
  const std::string test_y = one_of(kTargets, true);
  if (x.empty() || y.empty()) {
    return std::nullopt;
  }
  const auto set = [](const std::string& key, const std::string& name) {
    const bool known = name == key && (key == "x" || key == "y");  // what these keys are by default
    return known ? "" : concat(" --set data.arrays.", key, "=", shell_word(name));
  };
  const bool tests = !test_x.empty() && !test_y.empty();
  return concat(set("x", x),
                set("y", y),
                tests ? set("test_x", test_x) : "",
                tests ? set("test_y", test_y) : "");
}

std::string names_told(const std::vector<std::string>& names) {
  const auto keys = names_to_set(names);
  return (names.empty() ? "none" : joined(names, ", ", json_string)) +
         (!keys           ? "; data.arrays.x and data.arrays.y say which are samples and targets"
          : keys->empty() ? ""
                          : ":" + *keys);
}

}  // namespace

Result<ArraySource> ArraySource::open(const std::string& path, std::uintmax_t mapped_from) {
  ArraySource source;
  source.path_ = path;
  source.mapped_from_ = mapped_from;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return source;
  }
  const std::string kind = fs::path(path).extension().string();
  if (kind == ".npz") {
    auto bytes = read_input_file(path, kArrayFileMax);
    TROUPE_TRY(bytes);
    source.archive_ = std::make_shared<const Bytes>(*std::move(bytes));
    return source;
  }
  if (kind == ".safetensors") {
    auto file = SafetensorsFile::open(path);
    TROUPE_TRY(file);
    source.tensors_ = *std::move(file);
    return source;
  }
  if (!fs::exists(path, ignored)) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", cannot_be_opened(path, ENOENT))};
  }
  if (const std::string form = foreign_form(path, Wanted::arrays);
      !form.empty() && kind != ".npy") {
    return Error{ErrorKind::data, concat(path, " is not usable: ", form)};
  }
  if (kind == ".npy") {
    const fs::path folder = fs::path(path).parent_path();
    source.path_ = folder.empty() ? "." : folder.string();
    const auto keys = names_to_set(source.names());
    return data_error("{} is one array, and samples and targets are two: {}",
                      path,
                      keys ? concat("--set data.arrays.path=", shell_word(source.path_), *keys)
                           : "put them into a folder, as x.npy and y.npy, and name that");
  }
  return data_error("{} is neither a folder of .npy files nor a .npz or .safetensors file", path);
}

/// Some of those that there are, sorted.
std::vector<std::string> ArraySource::names() const {
  std::vector<std::string> all;
  if (archive_) {
    if (const auto none = unzip_if_there(*archive_, "", &all); !none) {
      return {};
    }
    std::erase_if(all, [](const std::string& member) { return !member.ends_with(".npy"); });
    for (std::string& member : all) {
      member.erase(member.size() - std::string_view(".npy").size());
    }
  } else if (tensors_) {
    for (const SafetensorsEntry& entry : tensors_->entries()) {
      all.push_back(entry.name);
    }
  } else {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
      if (entry.path().extension() == ".npy") {
        all.push_back(entry.path().stem().string());
      }
    }
  }
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), kNamesTold));
  return all;
}

Result<bool> ArraySource::has(const std::string& name) const {
  if (archive_) {
    const auto member = unzip_if_there(*archive_, name + ".npy");
    return member ? Result<bool>(member->has_value())
                  : unusable_array(path_, name, member.error().message);
  }
  std::error_code ignored;
  return tensors_ ? tensors_->find(name) != nullptr
                  : fs::exists(fs::path(path_) / (name + ".npy"), ignored);
}

Result<NumberArray> ArraySource::array(const std::string& name) const {
  auto array = archive_   ? from_archive(name)
               : tensors_ ? from_safetensors(name)
                          : from_folder(name);
  const auto there = array ? Result<bool>(true) : has(name);
  return !there || *there ? array
                          : data_error("{} is not usable: it has no array {}; it has {}",
                                       path_,
                                       json_string(name),
                                       names_told(names()));
}

Result<NumberArray> ArraySource::from_folder(const std::string& name) const {
  const fs::path path = fs::path(path_) / (name + ".npy");
  std::error_code code;
  const std::uintmax_t size = fs::file_size(path, code);
  if (!code && size >= mapped_from_) {
    auto array = mapped_npy(path);
    return array ? array : data_error("{} is not usable: {}", path.string(), array.error().message);
  }
  auto bytes = read_input_file(path, kArrayFileMax);
  TROUPE_TRY(bytes);
  auto array = npy_of(*std::move(bytes));
  return array ? array : data_error("{} is not usable: {}", path.string(), array.error().message);
}

Result<NumberArray> ArraySource::from_archive(const std::string& name) const {
  auto bytes = unzip(*archive_, name + ".npy");
  auto array = bytes ? npy_of(*std::move(bytes)) : bytes.error();
  return array ? array : unusable_array(path_, name, array.error().message);
}

Result<NumberArray> ArraySource::from_safetensors(const std::string& name) const {
  const SafetensorsEntry* entry = tensors_->find(name);
  if (!entry) {
    return unusable_array(path_, name, "it is not there");
  }
  const NumberType* const type = number_type_of_safetensors(entry->dtype);
  if (type == nullptr) {
    return unusable_array(
        path_, name, concat("its numbers are ", entry->dtype, "; save them as F32 or I64"));
  }
  if (!counted_bytes(entry->shape, type->width)) {
    return unusable_array(
        path_, name, "its shape is " + extents_text(entry->shape) + ", which holds no number");
  }
  return NumberArray{.type = type,
                     .shape = entry->shape,
                     .bytes = entry->bytes,
                     .owner = std::make_shared<SafetensorsFile>(*tensors_)};
}

}  // namespace troupe
