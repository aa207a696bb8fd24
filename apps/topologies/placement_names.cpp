#include "apps/topologies/placement_names.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {
namespace {

bool fits(const std::string& names, const std::string& name) {
  return ::fnmatch(names.c_str(), name.c_str(), 0) == 0;
}

constexpr int kCopiesMax = 8;

Error wrong(const std::string& entry, const std::string& why) {
  return {ErrorKind::usage, concat("placement.on: \"", entry, "\" ", why)};
}

}  // namespace

template <class Texts>
Result<PlacementNames> PlacementNames::parse(const Texts& texts,
                                             int least,
                                             int most,
                                             Error (*wrong)(const std::string&)) {
  PlacementNames all;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    Entry entry{.text = text, .names = text.substr(0, equals)};
    const auto number = equals == text.npos ? std::nullopt : numeral<int>(text.substr(equals + 1));
    if (entry.names.empty() || !number || *number < least || *number > most) {
      return wrong(text);
    }
    entry.number = *number;
    all.entries_.push_back(std::move(entry));
  }
  return all;
}

Result<PlacementNames> PlacementNames::on(const proto::Experiment& experiment) {
  return parse(
      experiment.placement().on(), 0, std::numeric_limits<int>::max(), [](const std::string& text) {
        return wrong(text, "is not NAMES=PROCESS, as in \"stage-[0-1]=0\" or \"server-*=1\"");
      });
}

Result<PlacementNames> PlacementNames::copies(const proto::Experiment& experiment) {
  return parse(experiment.placement().copies(), 1, kCopiesMax, [](const std::string& text) {
    return usage_error(
        "placement.copies: \"{}\" is not NAMES=COUNT, as in \"stage-*=2\" or \"server-0.*=3\", "
        "with "
        "a count from 1 to {}",
        text,
        kCopiesMax);
  });
}

std::optional<int> PlacementNames::of(const std::string& name) {
  std::optional<int> number;
  for (Entry& entry : entries_) {
    if (fits(entry.names, name)) {
      entry.used = true;
      number = number ? number : entry.number;
    }
  }
  return number;
}

std::optional<std::string> PlacementNames::unused() const {
  const auto found = std::ranges::find_if(entries_, [](const Entry& entry) { return !entry.used; });
  return found == entries_.end() ? std::nullopt : std::optional(found->text);
}

Result<void> PlacementNames::check(int processes, const std::vector<Other>& others) const {
  for (const Entry& entry : entries_) {
    if (entry.number >= processes) {
      return wrong(
          entry.text,
          concat("names process ", entry.number, " of ", processes, ", which are numbered from 0"));
    }
    if (entry.used) {
      continue;
    }
    const auto other =
        std::ranges::find_if(others, [&](const Other& one) { return fits(entry.names, one.name); });
    if (other == others.end()) {
      return wrong(entry.text, "fits no stage or server of this run");
    }
    if (other->process != entry.number) {
      return wrong(entry.text,
                   fill_in("fits {}, which plays in process {} with what it belongs to; name "
                           "stages (stage-*) or servers (server-*)",
                           other->name,
                           other->process));
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
  const auto parsed = PlacementNames::on(experiment);
  return parsed ? Result<void>() : parsed.error();
}

}  // namespace troupe
