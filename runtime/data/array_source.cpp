#include "runtime/data/array_source.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/archive.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/data/mapped_file.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kArrayFileMax = std::size_t{1} << 34;

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
  return data_error("{} is neither a folder of .npy files nor a .npz or .safetensors file{}",
                    path,
                    kind == ".npy" ? "; name the folder that it is in" : "");
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
  return archive_ ? from_archive(name) : tensors_ ? from_safetensors(name) : from_folder(name);
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
    return unusable_array(path_, name, "there is no array of that name");
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
