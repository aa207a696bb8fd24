#include "apps/presets.hpp"

#include "messages/experiment.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

namespace troupe {
namespace {

constexpr std::uintmax_t kFileBytesMax = std::uintmax_t{1} << 20;

Result<std::string> read_experiment_file(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    if (std::filesystem::exists(path / "experiment.textproto", code)) {
      return read_experiment_file(path / "experiment.textproto");
    }
    return Error{ErrorKind::usage,
                 concat(path.string(), " is a folder without an experiment.textproto")};
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) {
    text << file.rdbuf();
  }
  if (!file.is_open() || file.bad() || text.bad()) {
    return Error{ErrorKind::usage,
                 concat("the experiment ",
                        path.string(),
                        " cannot be read: ",
                        std::system_category().message(errno))};
  }
  if (static_cast<std::uintmax_t>(text.tellp()) > kFileBytesMax) {
    return Error{ErrorKind::usage,
                 concat("the experiment ", path.string(), " is larger than 1 MiB")};
  }
  return text.str();
}

Error unknown_experiment(const std::string& name) {
  std::vector<std::string> names;
  std::string legal;
  for (const Preset& preset : presets()) {
    names.emplace_back(preset.name);
    legal += (legal.empty() ? "" : ", ") + names.back();
  }
  const std::string near = nearest(name, names);
  return {ErrorKind::usage,
          concat("there is no preset and no file \"",
                 name,
                 "\"",
                 near.empty() ? "" : ", did you mean \"" + near + "\"?",
                 " (presets: ",
                 legal,
                 ")")};
}

}  // namespace

std::string_view Preset::summary() const {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.substr(std::min(line.size(), line.find_first_not_of("# ")));
}

Result<proto::Experiment> load_experiment(const std::string& experiment,
                                          const std::vector<std::string>& assignments) {
  const auto& all = presets();
  const auto preset =
      std::find_if(all.begin(), all.end(), [&](const Preset& p) { return p.name == experiment; });
  std::string text;
  if (preset != all.end()) {
    text = preset->text;
  } else {
    const std::filesystem::path path(experiment);
    std::error_code code;
    const bool is_path =
        path.has_parent_path() || path.extension() == ".textproto" || path.extension() == ".json";
    if (!is_path && !std::filesystem::exists(path, code)) {
      return unknown_experiment(experiment);
    }
    auto read = read_experiment_file(path);
    if (!read) {
      return read.error();
    }
    text = std::move(*read);
  }
  auto parsed = parse_experiment(text, experiment);
  if (!parsed) {
    return parsed.error();
  }
  for (const std::string& assignment : assignments) {
    if (auto set = set_value(*parsed, assignment); !set) {
      return set.error();
    }
  }
  if (auto resolved = resolve(*parsed); !resolved) {
    return resolved.error();
  }
  return parsed;
}

}  // namespace troupe
