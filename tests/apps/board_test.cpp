// The leaderboard: its schemes, how a rate is chosen, what is refused, how it goes on and what it says.
#include "apps/board/campaign.hpp"
#include "apps/cli/registered.hpp"
#include "apps/presets/presets.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <set>

namespace board_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr const char* kSmall = R"(
network tiny $u=1 $b=40 $target=1.4 $rates=few stop.epochs=0 stop.seconds={1b} record.evaluate_every=5
  data.teacher.inputs=8 data.teacher.train=200 data.teacher.test=40 data.batch_size=10 model.mlp.hidden=[8]
rates few 1e-6,0.1,1e30
workers pair pipeline.stages=1 pipeline.schedule=one_f_one_b pipeline.weights=latest replicas.count=2
  clock.forward.seconds={1u}
condition undisturbed *
condition churn * clock.faults.crashes.at=[{0.5b}] clock.faults.crashes.back={0.1b}
condition churn * clock.faults.crashes.at=[{0.25b}]
# A comment
scheme asgd pair replicas.rule=asgd
scheme easgd pair replicas.exchange.easgd.period=2
scheme kickback pair pipeline.stages=2 replicas.count=1 decoupled=kickback
ordering undisturbed updates asgd easgd : Somebody 2020: two is more than one
ordering undisturbed updates easgd asgd : Nobody: one is more than two
ordering undisturbed loss kickback asgd : of what was refused nothing is said
)";

struct Made {
  std::vector<BoardCell> cells;
  std::size_t trained = 0;
  std::size_t repeated = 0;
  std::vector<std::string> differ;
};

Made made_in(const Folder& folder,
             const Board& board,
             const std::string& maker,
             double repeat,
             bool train = true) {
  auto kept = KeptTrials::open_any(folder.path(), "virtual", maker);
  REQUIRE(kept);
  Made made;
  const CampaignOptions options{.seeds = 2,
                                .jobs = 1,
                                .train = train,
                                .interrupted = [] { return false; },
                                .note =
                                    [&](const std::string&) {
                                      ++made.trained;
                                    }};
  Campaign campaign(board, *kept, options);
  made.cells = campaign.run(
      *board.of_kind("network").front(), board.of_kind("scheme"), {"undisturbed", "churn"});
  made.differ = campaign.repeat(repeat, made.repeated);
  return made;
}

}  // namespace

TEST_CASE("every scheme of the registries is on the board", "[apps]") {
  std::string all;
  for (const BoardLine* line : board().of_kind("scheme")) {
    for (const std::string& setting : line->settings) {
      all += ' ' + setting + '.';
    }
  }
  for (const BoardLine* line : board().of_kind("workers")) {
    for (const std::string& setting : line->settings) {
      all += ' ' + setting + '.';
    }
  }
  const std::set<std::string> kinds{"pipeline.schedule",
                                    "pipeline.weights",
                                    "decoupled",
                                    "replicas.exchange",
                                    "replicas.rule",
                                    "replicas.codec"};
  const std::set<std::string> none{"file", "none"};  // somebody's own schedule, and no compression
  for_each_registry([&](const char* choice, const std::string& key, const auto& schemes) {
    for (const auto& scheme : schemes) {
      const std::string& name = scheme.info.name;
      if (!kinds.contains(choice) || !schemes.built_in(scheme) || none.contains(name)) {
        continue;
      }
      INFO(key << ": " << name);
      const bool there = all.find(concat(" ", key, "=", name, ".")) != std::string::npos ||
                         all.find(concat(" ", key, ".", name, ".")) != std::string::npos;
      // A plain parameter server is what the other rules are without a word.
      CHECK((there || name == "parameter_server"));
    }
  });
  CHECK(board().of_kind("scheme").size() >= 100);
}

TEST_CASE("what the board sets are keys and values, and its names are used once", "[apps]") {
  std::set<std::string> names;
  for (const BoardLine* scheme : board().of_kind("scheme")) {
    INFO(scheme->name());
    CHECK(names.insert(scheme->name()).second);
    for (const BoardLine* network : board().of_kind("network")) {
      CHECK(board().rates(*network, *scheme).size() == 6);
      for (const std::string& condition : board().names_of("condition")) {
        const auto lines = board().settings(*network, condition, *scheme);
        REQUIRE_FALSE(lines.empty());
        if (network != board().of_kind("network").front() && condition != "links") {
          continue;  // alike
        }
        const auto loaded = load_experiment(std::string(kDefaultPreset), lines.front());
        INFO((loaded ? "" : loaded.error().message));
        CHECK(loaded);
      }
    }
  }
  for (const BoardLine* ordering : board().of_kind("ordering")) {
    INFO(ordering->text);
    CHECK(names.contains(ordering->names[2]));
    CHECK(names.contains(ordering->names[3]));
    CHECK_FALSE(ordering->text.empty());
  }
  CHECK_FALSE(parse_board("scheme alone"));
  CHECK_FALSE(parse_board("speed asgd replicas"));
}

TEST_CASE("a factor in braces is of a word of the network", "[apps]") {
  const auto parsed = parse_board(kSmall);
  REQUIRE(parsed);
  const BoardLine& network = *parsed->of_kind("network").front();
  const BoardLine& scheme = *parsed->of_kind("scheme").front();
  const auto churn = parsed->settings(network, "churn", scheme);
  REQUIRE(churn.size() == 2);
  const auto has = [&](const std::vector<std::string>& settings, const std::string& setting) {
    return std::find(settings.begin(), settings.end(), setting) != settings.end();
  };
  CHECK(has(churn[0], "stop.seconds=40"));
  CHECK(has(churn[0], "clock.faults.crashes.at=[20]"));
  CHECK(has(churn[0], "clock.faults.crashes.back=4"));
  CHECK(has(churn[1], "clock.faults.crashes.at=[10]"));
  CHECK(paper_of(scheme) == "Downpour: Dean et al., NIPS 2012");
}

TEST_CASE("the board chooses rates, refuses, goes on where it was, and repeats to the bit",
          "[apps]") {
  const auto parsed = parse_board(kSmall);
  REQUIRE(parsed);
  const Folder folder;
  CHECK(made_in(folder, *parsed, "nobody", 0, false).cells.empty());
  const Made first = made_in(folder, *parsed, "one", 0.5);
  // 2 schemes at 3 rates; one more seed undisturbed, two under churn
  CHECK(first.trained == 2 * 3 + 2 * (1 + 2));
  CHECK(first.repeated == 7);  // half of 6 and 2 * (2 + 2)
  CHECK(first.differ.empty());
  REQUIRE(first.cells.size() == 6);
  for (const BoardCell& cell : first.cells) {
    INFO(cell.scheme->name() << ' ' << cell.condition);
    const bool refused = cell.scheme->name() == "kickback";
    CHECK(cell.refused.empty() != refused);
    CHECK(cell.rate == (refused ? "" : "0.1"));
    CHECK_FALSE(cell.at_edge);
    CHECK(cell.trials.size() == (refused ? 0 : 2));
    // Replicas of easgd cannot come back.
    CHECK(cell.line == (cell.scheme->name() == "easgd" && cell.condition == "churn" ? 1 : 0));
  }
  // Another program takes what is there, and trains the refused ones' nothing again.
  const Made second = made_in(folder, *parsed, "two", 0);
  CHECK(second.trained == 0);
  CHECK(made_in(folder, *parsed, "two", 0, false).cells.size() ==
        4);  // a refused one is not known as such
  CHECK(board_csv(second.cells) == board_csv(first.cells));
  const std::string csv = board_csv(first.cells);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 7);
  const std::string page = board_page(*parsed, first.cells, {"one"});
  CHECK_THAT(page, says("| `asgd` | pair | 0.1 | "));
  CHECK_THAT(page, says("- `kickback` undisturbed, `kickback` churn: decoupled: "));
  CHECK_THAT(
      page, says("| Somebody 2020: two is more than one | tiny | undisturbed | updates | `asgd` "));
  CHECK_THAT(page, says(" | held |\n"));
  CHECK_THAT(page, says(" | refuted |\n"));
  CHECK_THAT(page, !says("of what was refused"));
  CHECK_THAT(page, says("Made by one."));
}

}  // namespace board_test
