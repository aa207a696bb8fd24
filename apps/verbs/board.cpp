// troupe board: every scheme on three networks, undisturbed and disturbed: the leaderboard.
#include "apps/board/campaign.hpp"
#include "apps/cli/interrupts.hpp"
#include "apps/cli/status_line.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/run_folder.hpp"
#include "apps/topologies/blueprint.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/output_file.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

constexpr int kBoardSeedsMax = 100;
constexpr int kBoardJobsMax = 1024;

struct BoardArguments {
  std::vector<std::string> networks;
  std::vector<std::string> conditions;
  std::vector<std::string> schemes;
  std::string out;
  std::optional<double> repeat;
  int seeds = 3;
  int jobs = 1;
  bool kept = false;
  bool quiet = false;
};

/// Those of `all` that one of `wanted` means, "*" and "?" standing for letters; all where nothing is wanted. Error
/// (usage) where one means none.
Result<std::vector<std::string>> chosen(const std::string& option,
                                        const std::vector<std::string>& wanted,
                                        const std::vector<std::string>& all) {
  std::vector<bool> taken(all.size(), wanted.empty());
  for (const std::string& pattern : wanted) {
    bool any = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (::fnmatch(pattern.c_str(), all[i].c_str(), 0) == 0) {
        taken[i] = any = true;
      }
    }
    if (!any) {
      const std::string near = nearest(pattern, all);
      return usage_error("{}: the board has no \"{}\"{}",
                         option,
                         pattern,
                         near.empty() ? "" : ", did you mean \"" + near + "\"?");
    }
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (taken[i]) {
      names.push_back(all[i]);
    }
  }
  return names;
}

/// What of the board is asked for.
struct BoardPart {
  std::vector<const BoardLine*> networks;
  std::vector<const BoardLine*> schemes;
  std::vector<std::string> conditions;  // the first one, by which rates are chosen, is always there
};

Result<BoardPart> part_of(const BoardArguments& arguments) {
  BoardPart part;
  const auto lines =
      [&](const std::string& kind,
          const std::vector<std::string>& wanted) -> Result<std::vector<const BoardLine*>> {
    const auto names = chosen("--" + kind, wanted, board().names_of(kind));
    TROUPE_TRY(names);
    std::vector<const BoardLine*> found = board().of_kind(kind);
    std::erase_if(found, [&](const BoardLine* line) {
      return std::find(names->begin(), names->end(), line->name()) == names->end();
    });
    return found;
  };
  auto networks = lines("network", arguments.networks);
  TROUPE_TRY(networks);
  auto schemes = lines("scheme", arguments.schemes);
  TROUPE_TRY(schemes);
  const std::vector<std::string> all = board().names_of("condition");
  auto conditions = chosen("--condition", arguments.conditions, all);
  TROUPE_TRY(conditions);
  if (conditions->front() != all.front()) {
    conditions->insert(conditions->begin(), all.front());
  }
  return BoardPart{*std::move(networks), *std::move(schemes), *std::move(conditions)};
}

/// That the data of a network is there. Error (data) with how to get it.
Result<void> check_data(const BoardLine& network, const BoardLine& scheme, std::string condition) {
  const auto experiment = load_experiment(std::string(kDefaultPreset),
                                          board().settings(network, condition, scheme).front());
  TROUPE_TRY(experiment);
  const auto blueprint = make_blueprint(*experiment);
  return !blueprint && blueprint.error().kind == ErrorKind::data ? blueprint.error()
                                                                 : Result<void>();
}

Result<int> run_board(Console& console, const BoardArguments& arguments) {
  const auto part = part_of(arguments);
  TROUPE_TRY(part);
  for (const BoardLine* network : part->networks) {
    const auto there = check_data(*network, *part->schemes.front(), part->conditions.front());
    TROUPE_TRY(there);
  }
  if (!KeptTrials::are_in(arguments.out)) {
    TROUPE_TRY(make_run_directory(arguments.out));
  }
  auto kept = KeptTrials::open_any(arguments.out, "virtual", maker_of_trials());
  TROUPE_TRY(kept);
  const Interrupts interrupts;
  StatusLine line(console.err, console.terminal);
  const CampaignOptions options{.seeds = arguments.seeds,
                                .jobs = arguments.jobs,
                                .train = !arguments.kept,
                                .interrupted = [] { return Interrupts::count() > 0; },
                                .note =
                                    [&](const std::string& text) {
                                      if (!arguments.quiet) {
                                        line.note(text);
                                      }
                                    }};
  Campaign campaign(board(), *kept, options);
  std::vector<BoardCell> cells;
  for (const BoardLine* network : part->networks) {
    const auto more = campaign.run(*network, part->schemes, part->conditions);
    cells.insert(cells.end(), more.begin(), more.end());
  }
  std::set<std::string> makers = kept->makers();
  if (makers.empty()) {
    makers.insert(maker_of_trials());
  }
  for (const auto& [name, text] : {std::pair{"board.csv", board_csv(cells)},
                                   {"curves.csv", board_curves(cells)},
                                   {"board.md", board_page(board(), cells, makers)}}) {
    TROUPE_TRY(write_file(std::filesystem::path(arguments.out) / name, text));
  }
  console.out << "files    " << arguments.out << ": board.md, board.csv, curves.csv" << '\n'
              << std::flush;
  if (Interrupts::count() > 0) {
    console.err << "troupe: interrupted; the same command goes on from here" << '\n' << std::flush;
    return 130;
  }
  if (arguments.repeat) {
    std::size_t repeated = 0;
    const auto differ = campaign.repeat(*arguments.repeat, repeated);
    for (const std::string& sentence : differ) {
      console.out << sentence << '\n';
    }
    console.out << repeated << " trials were repeated, and " << repeated - differ.size()
                << " are equal to the bit" << '\n'
                << std::flush;
    return differ.empty() ? 0 : 1;
  }
  return 0;
}

}  // namespace

Command declare_board() {
  auto arguments = std::make_shared<BoardArguments>();
  return {.options =
              {{.names = "--network",
                .value = &arguments->networks,
                .doc = "mlp, cnn or gpt; repeatable (default: all)",
                .type = "NAME"},
               {.names = "--condition",
                .value = &arguments->conditions,
                .doc = "undisturbed, straggler, churn or links; repeatable (default: all); "
                       "undisturbed is always among them",
                .type = "NAME"},
               {.names = "--scheme",
                .value = &arguments->schemes,
                .doc = "schemes of the board by name, * standing for any letters; repeatable "
                       "(default: all)",
                .type = "GLOB"},
               {.names = "--seeds",
                .value = &arguments->seeds,
                .doc = "runs of each scheme under each condition (default: 3)",
                .range = OptionRange{1, kBoardSeedsMax}},
               {.names = "--jobs",
                .value = &arguments->jobs,
                .doc = "runs at once (default: 1)",
                .range = OptionRange{1, kBoardJobsMax}},
               {.names = "--out",
                .value = &arguments->out,
                .doc = "folder for page, table and trials: new, or that of a board, which goes "
                       "on where it was ended",
                .type = "DIR",
                .refuse_empty = kEmptyFolder,
                .required = true},
               {.names = "--repeat",
                .value = &arguments->repeat,
                .doc = "then this share of the trials is trained again, and what is not equal "
                       "to the bit is named",
                .range = OptionRange{0, 1}},
               {.names = "--kept",
                .value = &arguments->kept,
                .doc = "trains nothing that is missing: page and tables of what the folder has"},
               {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"}},
          .action = [arguments](Console& console) {
            return run_board(console, *arguments);
          }};
}

}  // namespace troupe
