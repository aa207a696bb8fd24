#include "runtime/data/folders.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"

#include <cstdlib>
#include <string>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// An environment variable; "" where it is not set.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// `name` in `folder`, plain or with .gz; "" where it is not there. Some unpackers write MNIST's with a dot:
/// train-images.idx3-ubyte.
fs::path find_file(const fs::path& folder, std::string_view name) {
  std::string dotted(name);
  if (const std::size_t at = dotted.find("-idx"); at != dotted.npos) {
    dotted[at] = '.';
  }
  for (const std::string_view spelt : {name, std::string_view(dotted)}) {
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = folder / (std::string(spelt) + suffix);
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) {
        return path;
      }
    }
  }
  return {};
}

Error missing_files(const FileSet& set, std::span<const fs::path> folders) {
  std::string searched;
  for (const fs::path& folder : folders) {
    searched += (searched.empty() ? "" : ", ") + folder.string();
    std::vector<std::string_view> missing = only(
        set.files, [&](const std::string_view name) { return find_file(folder, name).empty(); });
    if (missing.size() < set.files.size()) {
      searched += concat(" (which lacks ", listed(missing, " and "), ")");
    }
  }
  return data_error(
      "{} was looked for in {} and not found: {}, each plain or with .gz, belong into one folder, "
      "to be named by --set data.{}.path=FOLDER; `troupe data fetch {}` downloads them",
      set.title,
      searched,
      listed(set.files, " and "),
      set.name,
      set.name);
}

}  // namespace

fs::path cache_folder() {
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "troupe";
  }
  const std::string_view home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "troupe";
}

std::vector<fs::path> folders_of(std::string_view name, std::string_view path) {
  if (!path.empty()) {
    return {path};
  }
  std::vector<fs::path> folders;
  if (const std::string_view root = variable("TROUPE_DATA"); !root.empty()) {
    folders.push_back(fs::path(root) / name);
  }
  folders.push_back(fs::path("data") / name);
  if (const fs::path cache = cache_folder(); !cache.empty()) {
    folders.push_back(cache / name);
  }
  return folders;
}

Result<std::vector<fs::path>> find_files(const FileSet& set, std::string_view path) {
  const std::vector<fs::path> folders = folders_of(set.name, path);
  for (const fs::path& folder : folders) {
    std::vector<fs::path> found;
    for (const std::string_view name : set.files) {
      if (fs::path file = find_file(folder, name); !file.empty()) {
        found.push_back(std::move(file));
      }
    }
    if (found.size() == set.files.size()) {
      return found;
    }
  }
  return missing_files(set, folders);
}

}  // namespace troupe
