#include "runtime/data/class_folders.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/data/preparation.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <system_error>

namespace troupe {
namespace {

namespace fs = std::filesystem;

bool passed_over(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".") || name == "Thumbs.db" || name == "desktop.ini";
}

Error unusable_folder(const fs::path& path, const std::string& what) {
  return {ErrorKind::data, concat(path.string(), " is not usable: ", what)};
}

/// What is in a folder, by name.
Result<std::vector<fs::path>> entries_of(const fs::path& path) {
  std::error_code code;
  std::vector<fs::path> entries;
  fs::directory_iterator at(path, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code)) {
    if (!passed_over(at->path())) {
      entries.push_back(at->path());
    }
  }
  if (code) {
    return unusable_folder(path, cannot_be_opened(path, code.value()));
  }
  std::ranges::sort(entries,
                    [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return entries;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool holds_folders(const fs::path& path) {
  const auto entries = entries_of(path);
  return entries && std::any_of(entries->begin(), entries->end(), is_folder);
}

Result<void> add_files(const fs::path& folder, std::int32_t label, std::vector<ClassFile>& files) {
  const auto entries = entries_of(folder);
  TROUPE_TRY(entries);
  if (entries->empty()) {
    return unusable_folder(folder, "it is the folder of a class and holds no image");
  }
  for (const fs::path& path : *entries) {
    if (is_folder(path)) {
      const bool wrapped = std::all_of(entries->begin(), entries->end(), is_folder);
      return unusable_folder(
          path,
          concat("it is a folder within that of a class, which holds images alone",
                 wrapped ? "; if the classes' folders are these: --set data.folder.path=" : "",
                 wrapped ? folder.string() : ""));
    }
    files.push_back({path, label});
  }
  return {};
}

}  // namespace

Result<std::vector<ClassFile>> list_images_alone(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) {
    return std::vector<ClassFile>{{path, 0}};
  }
  std::vector<ClassFile> files;
  const bool none = !is_folder(path) || holds_folders(path);
  auto added = none ? Result<void>() : add_files(path, 0, files);
  return added ? Result(std::move(files)) : added.error();
}

Result<ClassFolders> list_class_folders(const fs::path& path,
                                        const std::vector<std::string>& classes) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) {
    return unusable_folder(
        path, "it is a file; expected a folder in which each class has a folder of its images");
  }
  auto folders = entries_of(path);
  TROUPE_TRY(folders);
  std::erase_if(*folders, [](const fs::path& entry) { return !is_folder(entry); });
  if (folders->empty() || folders->size() > kClassesMax) {
    return unusable_folder(
        path,
        folders->empty()
            ? std::string("it has no class folders; put the images of each class into a folder")
            : fill_in("it holds {} folders; expected one for each class, at most {}",
                      folders->size(),
                      kClassesMax));
  }
  ClassFolders all{.classes = classes, .files = {}};
  for (const fs::path& folder : *folders) {
    if (classes.empty()) {
      all.classes.push_back(utf8_name(folder.filename().string()));
    }
  }
  std::map<std::string, std::int32_t> labels;
  for (const std::string& name : all.classes) {
    labels.emplace(name, static_cast<std::int32_t>(labels.size()));
  }
  if (labels.size() != all.classes.size()) {
    return unusable_folder(path, "two of its folders have the same name in UTF-8");
  }
  for (const fs::path& folder : *folders) {
    const auto label = labels.find(utf8_name(folder.filename().string()));
    if (label == labels.end()) {
      return unusable_folder(folder, "there is no class of that name among those trained on");
    }
    TROUPE_TRY(add_files(folder, label->second, all.files));
  }
  std::ranges::stable_sort(
      all.files, [](const ClassFile& a, const ClassFile& b) { return a.label < b.label; });
  return all;
}

ClassFolderRoots class_folder_roots(const std::string& path, const std::string& test_path) {
  const fs::path folder = path;
  // A class may be called "train": its folder holds images, and no folders.
  const bool parted = is_folder(folder / "train") && holds_folders(folder / "train");
  ClassFolderRoots roots{parted ? folder / "train" : folder,
                         parted && test_path == path ? "" : test_path};
  const auto entries = parted ? entries_of(folder) : std::vector<fs::path>();
  for (const std::string_view name :
       {"test", "testing", "valid", "validation", "val", "dev", "eval"}) {
    for (const fs::path& entry : entries ? *entries : std::vector<fs::path>()) {
      std::string lower = entry.filename().string();
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
        return static_cast<char>(std::tolower(c));
      });
      if (roots.test.empty() && lower == name && is_folder(entry)) {
        roots.test = entry;
      }
    }
  }
  if (roots.test.empty() && test_path == path) {
    roots.test = roots.train;
  }
  for (const fs::path& entry : entries ? *entries : std::vector<fs::path>()) {
    if (is_folder(entry) && entry != roots.train && entry != roots.test) {
      roots.unused.push_back(entry.filename().string());
    }
  }
  return roots;
}

}  // namespace troupe
