#include "runtime/record/lines.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

namespace troupe {
namespace {

/// Calls visit.operator()<R>() for each record that is told by itself.
template <class Visit, std::size_t... I>
void each_told(std::index_sequence<I...>, Visit visit) {
  const auto one = [&]<class R> {
    if constexpr (ToldByItself<R>) {
      visit.template operator()<R>();
    }
  };
  (one.template operator()<std::variant_alternative_t<I, RecordEntry::variant>>(), ...);
}

constexpr std::make_index_sequence<std::variant_size_v<RecordEntry::variant>> kAll;

/// Takes the names and meanings of a line's members.
struct Meanings {
  LineHelp& help;

  template <class T>
  Meanings& operator()(std::string_view name, const T& /*value*/, const char* meaning = "") {
    help.members.emplace_back(name, meaning);
    return *this;
  }
};

template <class L>
LineHelp help_of() {
  LineHelp help{.kind = L::kLine};
  Meanings meanings{help};
  L{}.tell(meanings);
  return help;
}

}  // namespace

std::vector<std::string> lists_of_words() {
  std::vector<std::string> all;
  each_told(kAll, [&]<class R> {
    if (std::find(all.begin(), all.end(), R::kLine.list) == all.end()) {
      all.emplace_back(R::kLine.list);
    }
  });
  return all;
}

std::vector<LineHelp> metrics_help() {
  std::vector<LineHelp> all{help_of<HeaderLine>(),
                            help_of<TrainLine>(),
                            help_of<EvaluationLine>(),
                            help_of<ReplicaLine>(),
                            help_of<GapLine>(),
                            help_of<AngleLine>(),
                            help_of<VersionsLine>()};
  each_told(kAll, [&]<class R> { all.push_back(help_of<RecordLine<R>>()); });
  all.push_back(help_of<Summary::Restart>());
  return all;
}

}  // namespace troupe
