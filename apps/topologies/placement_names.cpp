#include "apps/topologies/placement_names.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace troupe {
namespace {

bool fits(const std::string& names, const std::string& name) {
  return ::fnmatch(names.c_str(), name.c_str(), 0) == 0;
}

Error wrong(const std::string& entry, const std::string& why) {
  return {ErrorKind::usage, concat("placement.on: \"", entry, "\" ", why)};
}

}  // namespace

Result<PlacementNames> PlacementNames::parse(const proto::Experiment& experiment) {
  PlacementNames all;
  for (const std::string& text : experiment.placement().on()) {
    const std::size_t equals = text.rfind('=');
    Entry entry{.text = text, .names = text.substr(0, equals)};
    const char* const end = text.data() + text.size();
    const char* const digits = equals == std::string::npos ? end : text.data() + equals + 1;
    const auto [stop, code] = std::from_chars(digits, end, entry.process);
    if (entry.names.empty() || code != std::errc{} || stop != end || entry.process < 0) {
      return wrong(text, "is not NAMES=PROCESS, as in \"stage-[0-1]=0\" or \"server-*=1\"");
    }
    all.entries_.push_back(std::move(entry));
  }
  return all;
}

std::optional<int> PlacementNames::of(const std::string& name) {
  std::optional<int> process;
  for (Entry& entry : entries_) {
    if (fits(entry.names, name)) {
      entry.used = true;
      process = process ? process : entry.process;
    }
  }
  return process;
}

Result<void> PlacementNames::check(int processes, const std::vector<Other>& others) const {
  for (const Entry& entry : entries_) {
    if (entry.process >= processes) {
      return wrong(
          entry.text,
          concat(
              "names process ", entry.process, " of ", processes, ", which are numbered from 0"));
    }
    if (entry.used) {
      continue;
    }
    const auto other =
        std::ranges::find_if(others, [&](const Other& one) { return fits(entry.names, one.name); });
    if (other == others.end()) {
      return wrong(entry.text, "fits no stage or server of this run");
    }
    if (other->process != entry.process) {
      return wrong(entry.text,
                   concat("fits ",
                          other->name,
                          ", which plays in process ",
                          other->process,
                          " with what it belongs to; name stages (stage-*) or servers (server-*)"));
    }
  }
  return {};
}

Result<void> leave_out(proto::Experiment& experiment, int process) {
  for (std::string& text : *experiment.mutable_placement()->mutable_on()) {
    const std::size_t digits = text.rfind('=') + 1;
    const int named = std::stoi(text.substr(digits));
    if (named == process) {
      return wrong(text, "names the process that was lost; leave it to the others who plays there");
    }
    text = text.substr(0, digits) + std::to_string(named - (named > process ? 1 : 0));
  }
  return {};
}

Result<void> check_placement_names(const proto::Experiment& experiment) {
  const auto parsed = PlacementNames::parse(experiment);
  return parsed ? Result<void>() : parsed.error();
}

}  // namespace troupe
