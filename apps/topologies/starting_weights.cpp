#include "apps/topologies/starting_weights.hpp"

#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace troupe {
namespace {

/// What leaves out the parameters that do not fit, where all others do. "" where that would not help.
std::string skip_setting(const std::string& from,
                         std::vector<std::string> names,
                         const std::vector<WeightSpec>& specs) {
  const auto file = SafetensorsFile::open(weights_path(from));
  std::size_t fit = 0;
  for (const WeightSpec& spec : specs) {
    const SafetensorsEntry* const entry = file ? file->find(spec.name) : nullptr;
    const Shape shape = spec.file_shape();
    bool same = entry && std::ssize(entry->shape) == shape.dimensions();
    for (int i = 0; same && i < shape.dimensions(); ++i) {
      same = entry->shape[static_cast<std::size_t>(i)] == shape[i];
    }
    fit += same ? 1 : 0;
    if (!same) {
      names.push_back(spec.name);
    }
  }
  return fit > 0 && read_weights(*file, specs, names)
             ? concat("; --set start_from_skip=[", joined(names, ","), "] begins these by seed")
             : "";
}

/// The network's own file, where there is one, goes with its folder when it has been read or is not wanted.
class OwnStart {
 public:
  explicit OwnStart(std::filesystem::path file) : file_(std::move(file)) {}

  OwnStart(const OwnStart&) = delete;
  OwnStart& operator=(const OwnStart&) = delete;

  ~OwnStart() {
    if (!file_.empty()) {
      std::error_code ignored;
      std::filesystem::remove(file_, ignored);
      std::filesystem::remove(file_.parent_path(), ignored);
    }
  }

  std::filesystem::path instead_of(const std::filesystem::path& named) const {
    return !file_.empty() && file_.filename() == named.filename() ? file_ : named;
  }

 private:
  std::filesystem::path file_;
};

}  // namespace

Result<std::vector<ParameterValues>> read_starting_weights(const std::string& from,
                                                           const std::vector<std::string>& skip,
                                                           const Network& network) {
  const OwnStart own(network.start);
  if (from.empty()) {
    if (skip.empty()) {
      return std::vector<ParameterValues>();
    }
    return Error{ErrorKind::usage,
                 "start_from_skip leaves parameters out of the weights that start_from names; name "
                 "these, too"};
  }
  const std::vector<WeightSpec> specs = weight_specs(network);
  auto start = read_weights(own.instead_of(from), specs, skip);
  if (!start) {
    const Error& error = start.error();
    const bool misfit = error.message.find("does not fit the network") != std::string::npos;
    return Error{error.kind,
                 concat(error.kind == ErrorKind::usage ? "start_from_skip: " : "start_from: ",
                        error.message,
                        misfit ? skip_setting(from, skip, specs) : "")};
  }
  for (std::size_t i = 0; i < start->size(); ++i) {
    if (!std::ranges::all_of((*start)[i], [](float w) { return std::isfinite(w); })) {
      return Error{ErrorKind::data,
                   fill_in("start_from: {} is not usable: {} has numbers that are not finite, as "
                           "after a run that diverged",
                           from,
                           specs[i].name)};
    }
  }
  return start;
}

}  // namespace troupe
