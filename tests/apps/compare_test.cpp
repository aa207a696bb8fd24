// Schemes side by side: what is compared, on which terms, and what is said about it.
#include "apps/compare/report.hpp"
#include "apps/compare/schemes.hpp"
#include "apps/compare/statistics.hpp"
#include "apps/compare/trials.hpp"
#include "apps/run/run.hpp"
#include "experiment.pb.h"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <thread>

namespace compare_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// {epochs, seconds, accuracy}; the test loss is one less the accuracy.
struct Seen {
  double epochs;
  double seconds;
  double accuracy;
};

Trial trial(std::size_t scheme,
            std::uint64_t seed,
            const std::vector<Seen>& curve,
            Outcome outcome = Outcome::finished) {
  Trial t{.scheme = scheme,
          .seed = seed,
          .outcome = outcome,
          .exit_code = 0,
          .cause = outcome == Outcome::finished ? "" : "the cause of it",
          .summary = {},
          .curve = {}};
  for (const Seen& seen : curve) {
    t.curve.push_back({.updates = static_cast<std::int64_t>(100 * seen.epochs),
                       .epochs = seen.epochs,
                       .seconds = seen.seconds,
                       .train_loss = 2,
                       .test_loss = 1 - seen.accuracy,
                       .accuracy = seen.accuracy});
    t.summary.seconds = seen.seconds;
    t.summary.epochs = seen.epochs;
  }
  t.summary.samples_per_second = 1000.0 * static_cast<double>(seed);
  t.summary.train_loss = 0.5;
  return t;
}

void check_spread(const Spread& spread, std::size_t count, double mean, double sd) {
  CHECK(spread.count == count);
  CHECK(spread.mean == Approx(mean));
  CHECK(spread.sd == Approx(sd));
}

/// Two seeds of two schemes; one trial has diverged.
Comparison small_comparison() {
  Comparison c;
  c.clock = "virtual";
  c.seeds = 2;
  c.target = 0.7;
  c.varied = {{"model.mlp.hidden", {"[64,64]", "[8]"}}};
  c.schemes.columns = {"hidden"};
  for (const std::string& value : c.varied.front().values) {
    Contender scheme;
    scheme.label = "hidden=" + value;
    scheme.experiment = "the \"quoted\" one";
    scheme.values = {value};
    scheme.assignments = {"model.mlp.hidden=" + value};
    scheme.classes = true;
    c.schemes.schemes.push_back(scheme);
  }
  c.schemes.refused = {{"hidden=[0]", "too small"}};
  c.trials = {trial(0, 1, {{1, 10, 0.5}, {2, 20, 0.8}}),
              trial(0, 2, {{1, 10, 0.6}, {2, 20, 0.6}}),
              trial(1, 1, {{1, 5, 0.25}, {2, 15, 0.75}}),
              trial(1, 2, {{1, 5, 0.1}}, Outcome::diverged)};
  judge(c);
  return c;
}

google::protobuf::Struct parsed_json(const std::string& text) {
  google::protobuf::Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &object);
  INFO(text);
  REQUIRE(status.ok());
  return object;
}

/// RFC 4180, without line breaks in cells.
std::vector<std::vector<std::string>> parsed_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows{{""}};
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      inside = !inside;
    } else if (!inside && c == ',') {
      rows.back().emplace_back();
    } else if (!inside && c == '\n') {
      rows.push_back({""});
    } else {
      rows.back().back() += c;
    }
  }
  REQUIRE(rows.back() == std::vector<std::string>{""});
  rows.pop_back();
  return rows;
}

std::string cell(const std::vector<std::vector<std::string>>& rows,
                 std::size_t row,
                 const std::string& column) {
  const auto found = std::find(rows.front().begin(), rows.front().end(), column);
  INFO(column);
  REQUIRE(found != rows.front().end());
  return rows.at(row).at(static_cast<std::size_t>(found - rows.front().begin()));
}

const std::vector<std::string> kQuick{"data.teacher.train=1000",
                                      "data.teacher.test=200",
                                      "stop.epochs=2",
                                      "record.evaluate_every=4",
                                      "record.gap_every=3"};

Schemes schemes_of(const std::string& experiment,
                   const std::vector<std::string>& assignments,
                   const std::vector<Varied>& varied) {
  auto made = make_schemes({experiment}, assignments, varied);
  if (!made) {
    FAIL(made.error().message);
  }
  return *made;
}

std::string refusal(const std::vector<std::string>& assignments,
                    const std::vector<Varied>& varied) {
  const auto made = make_schemes({"teacher-mlp"}, assignments, varied);
  REQUIRE_FALSE(made);
  CHECK(made.error().kind == ErrorKind::usage);
  return made.error().message;
}

Comparison compared(const Schemes& schemes, int jobs, bool virtual_clock = true) {
  Comparison c;
  c.clock = virtual_clock ? "virtual" : "real";
  c.seeds = 2;
  c.schemes = schemes;
  c.trials = run_trials(schemes.schemes,
                        {.virtual_clock = virtual_clock,
                         .seeds = 2,
                         .jobs = jobs,
                         .interrupted = {},
                         .on_finish = {}});
  judge(c);
  return c;
}

void check_refused(const std::vector<std::string>& arguments, const std::string& sentence) {
  const Said said = run_program(arguments);
  CHECK(said.code == 2);
  CHECK(said.out.empty());
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  CHECK_THAT(said.err, says(sentence));
}

}  // namespace

TEST_CASE("without room for a thread a trial, as many run at once as there is room for", "[apps]") {
  // Stacks of 16 TiB, of which the address space holds no more than eight.
  pthread_attr_t usual;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  pthread_attr_t large;
  REQUIRE(pthread_attr_init(&large) == 0);
  REQUIRE(pthread_attr_setstacksize(&large, std::size_t{1} << 44) == 0);
  REQUIRE(pthread_setattr_default_np(&large) == 0);
  const Comparison c = compared(schemes_of("teacher-mlp", kQuick, {}), 16);
  REQUIRE(pthread_setattr_default_np(&usual) == 0);
  for (const Trial& trial : c.trials) {
    CHECK(trial.outcome == Outcome::finished);
  }
}

TEST_CASE("means and sample deviations are those of the textbook", "[apps]") {
  check_spread(spread_of({2, 4, 4, 4, 5, 5, 7, 9}), 8, 5, std::sqrt(32.0 / 7));
  const Spread one = spread_of({3});
  CHECK(one.mean == 3);
  CHECK(std::isnan(one.sd));
  CHECK(spread_of({}).count == 0);
  CHECK(std::isnan(spread_of({}).mean));
}

TEST_CASE("equal epochs and equal time are read off the curves", "[apps]") {
  // The first scheme is slow and goes far, the second is quick and ends after 2.5 epochs.
  const std::vector<Trial> trials{
      trial(0, 1, {{1, 10, 0.5}, {2, 20, 0.6}, {3, 30, 0.9}}),
      trial(0, 2, {{1, 12, 0.4}, {2, 24, 0.5}, {3, 36, 0.6}}),
      trial(1, 1, {{0.5, 3, 0.2}, {1.5, 9, 0.7}, {2.5, 15, 0.65}}),
      trial(1, 2, {{0.5, 2, 0.3}, {1.5, 6, 0.5}, {2.5, 11, 0.55}}),
  };
  const auto common = common_of(trials);
  REQUIRE(common);
  CHECK(common->epochs == 2.5);
  CHECK(common->seconds == 11);
  const Figures slow = figures_of(std::span(trials).first(2), Measure::accuracy, common, 0.6);
  // Halfway between 2 and 3: 0.75 and 0.55, which are 0.1 from their mean.
  check_spread(slow.at_epochs, 2, 0.65, 0.1 * std::sqrt(2.0));
  // After 11 s: a tenth of the way from 0.5 to 0.6; the other seed has no evaluation yet.
  check_spread({slow.at_seconds.count, slow.at_seconds.mean, 0}, 1, 0.51, 0);
  check_spread(slow.at_end, 2, 0.75, 0.15 * std::sqrt(2.0));
  check_spread(slow.best, 2, 0.75, 0.15 * std::sqrt(2.0));
  check_spread(slow.to_target, 2, 28, 8 * std::sqrt(2.0));
  check_spread(slow.samples_per_second, 2, 1500, 500 * std::sqrt(2.0));
  const Figures quick = figures_of(std::span(trials).last(2), Measure::accuracy, common, 0.6);
  check_spread(quick.at_epochs, 2, 0.6, 0.05 * std::sqrt(2.0));
  // A third of the way from 0.7 to 0.65, and the very end of the other.
  const double third = 0.7 - 0.05 / 3;
  check_spread(quick.at_seconds, 2, (third + 0.55) / 2, (third - 0.55) / std::sqrt(2.0));
  check_spread(quick.best, 2, 0.625, 0.075 * std::sqrt(2.0));
  CHECK(quick.to_target.count == 1);
  CHECK(quick.to_target.mean == 9);
  // A small loss is a good one.
  const Figures loss = figures_of(std::span(trials).last(2), Measure::loss, common, 0.35);
  CHECK(loss.best.mean == Approx(1 - 0.625));
  CHECK(loss.to_target.count == 1);
  CHECK(loss.to_target.mean == 9);
  CHECK(figures_of(std::span(trials), Measure::accuracy, common, {}).to_target.count == 0);
}

TEST_CASE("what has diverged, failed or not been finished is counted and kept out of means",
          "[apps]") {
  const std::vector<Trial> trials{
      trial(0, 1, {{1, 10, 0.5}, {2, 20, 0.75}}),
      trial(0, 2, {{1, 1, 0.1}}, Outcome::diverged),
      trial(0, 3, {{1, 1, kNothing}}, Outcome::failed),
      trial(0, 4, {{1, 1, 0.1}}, Outcome::interrupted),
  };
  const auto common = common_of(trials);
  REQUIRE(common);
  CHECK(common->epochs == 2);
  CHECK(common->seconds == 20);
  const Figures f = figures_of(std::span(trials), Measure::accuracy, common, 0.05);
  CHECK(f.trials == 3);
  CHECK(f.diverged == 1);
  CHECK(f.failed == 1);
  for (const Spread& spread :
       {f.at_end, f.best, f.at_epochs, f.at_seconds, f.samples_per_second, f.train_loss}) {
    CHECK(spread.count == 1);
  }
  CHECK(f.at_end.mean == 0.75);
  CHECK(f.to_target.mean == 10);
  CHECK(mean_curve(std::span(trials), Measure::accuracy).size() == 2);
  CHECK_FALSE(common_of({trials[1], trials[2], trials[3]}));
}

TEST_CASE("staleness is the mean over all shards' micro-batches, and the largest of all seeds",
          "[apps]") {
  std::vector<Trial> trials{trial(0, 1, {{1, 10, 0.5}}), trial(0, 2, {{1, 10, 0.5}})};
  trials[0].summary.staleness[0].histogram = {{0, 1}, {3, 1}};
  trials[0].summary.staleness[0].max = 3;
  trials[0].summary.staleness[1].histogram = {{1, 6}};
  trials[0].summary.staleness[1].max = 1;
  trials[1].summary.staleness[0].histogram = {{2, 5}};
  trials[1].summary.staleness[0].max = 2;
  trials[0].summary.gap = {{0, 0.25}, {1, 0.75}};
  trials[1].summary.gap = {{0, 1.5}};
  const Figures f = figures_of(std::span(trials), Measure::accuracy, common_of(trials), {});
  check_spread(f.staleness, 2, (9.0 / 8 + 2) / 2, (2 - 9.0 / 8) / std::sqrt(2.0));
  CHECK(f.staleness_max == 3);
  check_spread(f.gap, 2, 1, std::sqrt(0.5));
}

TEST_CASE("--vary takes values apart at commas outside brackets", "[apps]") {
  const auto lists = parse_varied("model.mlp.hidden=[64],[64,64],8");
  REQUIRE(lists);
  REQUIRE(lists->size() == 1);
  CHECK(lists->front().path == "model.mlp.hidden");
  CHECK(lists->front().values == std::vector<std::string>{"[64]", "[64,64]", "8"});
  CHECK(parse_varied("a=b=c")->front().values == std::vector<std::string>{"b=c"});
  CHECK_THAT(parse_varied("pipeline.stages").error().message, says("is not path=value"));
  CHECK_THAT(parse_varied("=1").error().message, says("is not path=value"));
  CHECK_THAT(parse_varied("a=1,,2").error().message, says("has an empty value"));
  CHECK_THAT(parse_varied("a=1,2,1").error().message, says("has 1 twice"));
  CHECK_THAT(parse_varied("seed=1,2").error().message, says("--seeds"));
}

TEST_CASE("--vary takes ranges, by steps and by factors", "[apps]") {
  const auto values = [](const std::string& text) {
    const auto varied = parse_varied(text);
    INFO(varied.error().message);
    REQUIRE(varied);
    return varied->front().values;
  };
  using Values = std::vector<std::string>;
  CHECK(values("optimizer.learning_rate=log:1e-3..1e-1:5") ==
        Values{"0.001", "0.00316228", "0.01", "0.0316228", "0.1"});
  CHECK(values("a=log:256..32:4") == Values{"256", "128", "64", "32"});
  CHECK(values("a=lin:0..0.5:3") == Values{"0", "0.25", "0.5"});
  CHECK(values("stop.updates=log:10000..1000000:3") == Values{"10000", "100000", "1000000"});
  CHECK(values("a=lin:-1..1:2") == Values{"-1", "1"});
  for (const char* wrong : {"a=log:0..1:3",
                            "a=log:1..2",
                            "a=log:1:3",
                            "a=lin:1..2:1",
                            "a=lin:1..2:2.5",
                            "a=lin:1..1:3",
                            "a=lin:1..x:3",
                            "a=lin:1..inf:3",
                            "a=lin:1..2:5000",
                            "a=lin:"}) {
    const auto varied = parse_varied(wrong);
    INFO(wrong);
    REQUIRE_FALSE(varied);
    CHECK_THAT(varied.error().message, says("is no range; use log:1e-3..1e-1:5"));
  }
}

TEST_CASE("--vary changes several keys together", "[apps]") {
  const auto varied = parse_varied("data.batch_size+optimizer.learning_rate=32+0.1,64+0.2");
  REQUIRE(varied);
  REQUIRE(varied->size() == 2);
  CHECK((*varied)[1].joined);
  CHECK((*varied)[1].values == std::vector<std::string>{"0.1", "0.2"});
  CHECK_THAT(parse_varied("a+b=1+2,3").error().message, says("has 2 keys that change together"));
  CHECK_THAT(parse_varied("a+b=1+2+3").error().message, says("and 1+2+3 is 3 of their values"));
  CHECK_THAT(parse_varied("a+b=1+").error().message, says("has an empty value"));
  CHECK_THAT(parse_varied("a+seed=1+2").error().message, says("--seeds"));

  std::vector<Varied> all = *varied;
  all.push_back(parse_varied("pipeline.stages=1,2")->front());
  const auto schemes = make_schemes({"teacher-mlp"}, {}, all);
  REQUIRE(schemes);
  std::vector<std::string> labels;
  for (const Contender& scheme : schemes->schemes) {
    labels.push_back(scheme.label);
  }
  CHECK(labels == std::vector<std::string>{"batch_size=32 learning_rate=0.1 stages=1",
                                           "batch_size=32 learning_rate=0.1 stages=2",
                                           "batch_size=64 learning_rate=0.2 stages=1",
                                           "batch_size=64 learning_rate=0.2 stages=2"});
}

TEST_CASE("every combination is a scheme, all with the seed of the first", "[apps]") {
  const Schemes made = schemes_of(
      "teacher-mlp",
      {"seed=7"},
      {{"pipeline.weights", {"stash", "latest"}}, {"optimizer.learning_rate", {"0.1", "0.2"}}});
  CHECK(made.refused.empty());
  REQUIRE(made.schemes.size() == 4);
  CHECK(made.columns == std::vector<std::string>{"weights", "learning_rate"});
  CHECK(made.schemes[1].label == "weights=stash learning_rate=0.2");
  CHECK(made.schemes[2].label == "weights=latest learning_rate=0.1");
  CHECK(made.schemes[1].assignments == std::vector<std::string>{"seed=7",
                                                                "pipeline.weights=stash",
                                                                "optimizer.learning_rate=0.2"});
  for (const Contender& scheme : made.schemes) {
    CHECK(scheme.resolved->seed() == 7);
    CHECK(scheme.classes);
  }
  CHECK(unequal_terms(made.schemes).empty());
  // Names that would be alike are written out.
  CHECK(schemes_of("teacher-mlp",
                   {},
                   {{"clock.forward.seconds", {"[1]"}}, {"clock.update.seconds", {"[1]"}}})
            .columns == std::vector<std::string>{"clock.forward.seconds", "clock.update.seconds"});
  const auto two = make_schemes({"teacher-mlp", "snn"}, {"data=teacher"}, {});
  REQUIRE(two);
  CHECK(two->schemes[1].label == "snn");
  const auto named = make_schemes({"mine=teacher-mlp", "lr=1 more=teacher-mlp"}, {}, {});
  REQUIRE(named);
  CHECK(named->schemes[0].label == "mine");
  CHECK(named->schemes[0].experiment == "teacher-mlp");
  CHECK(named->refused[0].label == "lr=1 more");
  CHECK(unequal_terms(two->schemes).size() >= 2);  // other networks, for other epochs
}

TEST_CASE("a registered scheme is shown by its own name", "[apps]") {
  REQUIRE(register_optimizer({.info = {.name = "plain_steps", .summary = "for a test"},
                              .method = {.kernel = UpdateKernel::sgd}}));
  Comparison c;
  c.varied = {{"optimizer.rule", {"sgd", "custom"}}};
  c.schemes = schemes_of("teacher-mlp", {"optimizer.custom.name=plain_steps"}, c.varied);
  c.seeds = 1;
  c.trials = {trial(0, 1, {{1, 10, 0.5}}), trial(1, 1, {{1, 10, 0.5}})};
  judge(c);
  const auto schemes = parsed_json(json_text(c)).fields().at("schemes").list_value();
  REQUIRE(schemes.values_size() == 2);
  const auto& custom = schemes.values(1).struct_value().fields();
  CHECK(custom.at("scheme").string_value() == "rule=plain_steps");
  const auto& values = custom.at("values").struct_value().fields();
  CHECK(values.at("optimizer.rule").string_value() == "plain_steps");
  const auto& set = custom.at("set").list_value();
  CHECK(set.values(1).string_value() == "optimizer.rule=custom");  // as `troupe sim` takes it
}

TEST_CASE("combinations that make no sense are refused with the reason, the rest stays", "[apps]") {
  const Schemes made = schemes_of(
      "teacher-mlp",
      {},
      {{"pipeline.weights", {"stash", "double_buffered"}}, {"pipeline.micro_batches", {"1", "4"}}});
  CHECK(made.schemes.size() == 3);
  REQUIRE(made.refused.size() == 1);
  CHECK(made.refused[0].label == "weights=double_buffered micro_batches=1");
  CHECK_THAT(made.refused[0].reason, says("needs pipeline.micro_batches >= pipeline.stages (4)"));

  // What a deeper key selects is not what the other key asked for.
  const Schemes undone = schemes_of("teacher-mlp",
                                    {},
                                    {{"pipeline.weights", {"stash", "pipemare"}},
                                     {"pipeline.weights.pipemare.synchronous_epochs", {"0", "1"}}});
  CHECK(undone.schemes.size() == 2);
  REQUIRE(undone.refused.size() == 2);
  CHECK_THAT(undone.refused[0].reason,
             says("pipeline.weights=stash is undone by what is set after it"));

  const Schemes same =
      schemes_of("teacher-mlp", {}, {{"optimizer.learning_rate", {"0.1", "0.10"}}});
  REQUIRE(same.refused.size() == 1);
  CHECK_THAT(same.refused[0].reason, says("the same experiment as learning_rate=0.1"));

  CHECK_THAT(refusal({}, {{"pipeline.stages", {"100", "200"}}}),
             says("every combination is refused; stages=100: pipeline.stages: the network has 8"));
}

TEST_CASE("what a run would refuse is refused before the first trial", "[apps]") {
  const auto made = make_schemes({"hogwild-sparse"},
                                 {"data.sparse.rows=2000", "data.sparse.test=100"},
                                 {{"optimizer.rule", {"sgd", "momentum"}}});
  REQUIRE(made);
  CHECK(made->schemes.size() == 1);
  REQUIRE(made->refused.size() == 1);
  CHECK(made->refused[0].label == "rule=momentum");
  CHECK_THAT(made->refused[0].reason, says("optimizer.rule: sparse Hogwild"));

  // What only one of the clocks can give.
  const std::vector<std::string> set{"pipeline.weights=latest", "replicas.count=2"};
  const std::vector<Varied> order{{"replicas.exchange", {"hogwild", "averaging"}}};
  CHECK(make_schemes({"teacher-mlp"}, set, order, true)->refused.empty());
  const auto real = make_schemes({"teacher-mlp"}, set, order, false);
  REQUIRE(real->refused.size() == 1);
  CHECK_THAT(real->refused[0].reason, says("record.order: "));
  const std::vector<Varied> held{{"clock.workers.hold_back", {"[1]", "[2]"}}};
  CHECK(make_schemes({"teacher-mlp"}, set, held, false)->refused.empty());
  const auto simulated = make_schemes({"teacher-mlp"}, set, held, true);
  REQUIRE(simulated->refused.size() == 1);
  CHECK_THAT(simulated->refused[0].reason, says("clock.workers.hold_back: "));
}

TEST_CASE("an experiment of several phases is no scheme", "[apps]") {
  const auto made = make_schemes({"warm-start", "teacher-mlp"}, {"data=teacher"}, {});
  REQUIRE(made);
  REQUIRE(made->schemes.size() == 1);
  CHECK(made->schemes[0].label == "teacher-mlp");
  REQUIRE(made->refused.size() == 1);
  CHECK(made->refused[0].label == "warm-start");
  CHECK_THAT(made->refused[0].reason, says("phases: compare holds single runs side by side"));
  CHECK_FALSE(make_schemes({"warm-start"}, {"data=teacher"}, {}));
  const auto single = make_schemes({"warm-start"}, {"data=teacher", "phases=[]"}, {});
  REQUIRE(single);
  CHECK(single->schemes.size() == 1);
}

TEST_CASE("a wrong key or value is no combination but an error", "[apps]") {
  CHECK_THAT(refusal({}, {{"pipeline.stges", {"1", "2"}}}), says("did you mean \"stages\"?"));
  CHECK_THAT(refusal({}, {{"pipeline.weights", {"stash", "spectran"}}}),
             says("did you mean \"spectrain\"?"));
  CHECK_THAT(refusal({"optimizer.momentun=0"}, {}), says("did you mean \"momentum\"?"));
  CHECK_THAT(refusal({}, {{"pipeline.stages", {"1", "0"}}}), says("pipeline.stages"));
  CHECK_THAT(refusal({}, {{"seed", {"1"}}, {"seed", {"2"}}}), says("seed is given twice"));
  std::vector<std::string> many;
  for (int i = 1; i <= 1001; ++i) {
    many.push_back(std::to_string(i));
  }
  CHECK_THAT(refusal({}, {{"pipeline.stages", many}}), says("more than 1000 combinations"));
}

TEST_CASE("the table has a row a scheme and says what diverged", "[apps]") {
  const std::string text = table_text(small_comparison());
  CHECK_THAT(text, says("hidden"));
  CHECK_THAT(text, says("at 2 epochs"));
  CHECK_THAT(text, says("at 15.0 s"));
  CHECK_THAT(text, says("to 70 %"));
  CHECK_THAT(text, says("70.00 +- 14.14"));  // 80 and 60
  CHECK_THAT(text, says("20.0 s (1/2)"));
  CHECK_THAT(text, says("diverged 1/2"));
  CHECK_THAT(text, says("refused  hidden=[0]: too small"));
  CHECK(text.find("gap") == std::string::npos);  // nobody measured one
  CHECK(text.find("nan") == std::string::npos);
}

TEST_CASE("the table says how good estimates of error signals are", "[apps]") {
  Comparison c = small_comparison();
  CHECK(table_text(c).find("cosine") == std::string::npos);
  for (std::size_t i = 0; i < 2; ++i) {
    c.trials[i].summary.predictors["predictor-0"] = {.lessons = 1,
                                                     .error = 1 + static_cast<double>(i),
                                                     .variance = 4,
                                                     .signal = 1,
                                                     .estimate = 1,
                                                     .product = 0.75};
  }
  judge(c);
  CHECK_THAT(table_text(c), says("cosine"));
  const auto rows = parsed_csv(csv_text(c));
  CHECK(std::stod(cell(rows, 1, "estimate_error")) == Approx(0.375));
  CHECK(std::stod(cell(rows, 1, "estimate_cosine")) == Approx(0.75));
  CHECK(cell(rows, 2, "estimate_cosine").empty());
}

TEST_CASE("compare.csv and compare.json can be parsed and say the same", "[apps]") {
  const Comparison c = small_comparison();
  const auto rows = parsed_csv(csv_text(c));
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) {
    CHECK(row.size() == rows.front().size());
  }
  CHECK(cell(rows, 1, "scheme") == "hidden=[64,64]");
  CHECK(cell(rows, 1, "experiment") == "the \"quoted\" one");
  CHECK(cell(rows, 1, "model.mlp.hidden") == "[64,64]");
  CHECK(std::stod(cell(rows, 1, "accuracy_end")) == Approx(0.7));
  CHECK(std::stod(cell(rows, 1, "accuracy_end_sd")) == Approx(0.1 * std::sqrt(2.0)));
  CHECK(std::stod(cell(rows, 1, "accuracy_at_seconds")) == Approx(0.625));
  CHECK(cell(rows, 2, "diverged") == "1");
  CHECK(cell(rows, 2, "trials") == "2");
  CHECK(cell(rows, 2, "accuracy_end") == "0.75");
  CHECK(cell(rows, 2, "accuracy_end_sd").empty());
  CHECK(cell(rows, 2, "gap").empty());

  const auto object = parsed_json(json_text(c));
  const auto& fields = object.fields();
  CHECK(fields.at("clock").string_value() == "virtual");
  CHECK(fields.at("measure").string_value() == "accuracy");
  CHECK(fields.at("epochs").number_value() == 2);
  CHECK(fields.at("seconds").number_value() == 15);
  CHECK(fields.at("refused").list_value().values_size() == 1);
  const auto& schemes = fields.at("schemes").list_value();
  REQUIRE(schemes.values_size() == 2);
  const auto& second = schemes.values(1).struct_value().fields();
  CHECK(second.at("scheme").string_value() == "hidden=[8]");
  CHECK(second.at("accuracy_end").struct_value().fields().at("mean").number_value() == 0.75);
  CHECK(second.at("gap").struct_value().fields().at("mean").has_null_value());
  const auto& trials = second.at("seeds").list_value();
  REQUIRE(trials.values_size() == 2);
  CHECK(trials.values(1).struct_value().fields().at("outcome").string_value() == "diverged");
  CHECK(trials.values(1).struct_value().fields().at("cause").string_value() == "the cause of it");

  const auto runs = parsed_csv(runs_text(c));
  REQUIRE(runs.size() == c.trials.size() + 1);
  CHECK(cell(runs, 1, "model.mlp.hidden") == "[64,64]");
  CHECK(cell(runs, 1, "seed") == std::to_string(c.trials[0].seed));
  CHECK(cell(runs, 1, "outcome") == "finished");
  CHECK(std::stod(cell(runs, 1, "seconds")) == c.trials[0].summary.seconds);
  CHECK(cell(runs, 4, "outcome") == "diverged");
  CHECK(cell(runs, 4, "seconds").empty());
  for (const auto& row : runs) {
    CHECK(row.size() == runs.front().size());
  }

  const auto curves = parsed_csv(curves_text(c));
  CHECK(curves.size() == 1 + 7);
  CHECK(cell(curves, 2, "scheme") == "hidden=[64,64]");
  CHECK(cell(curves, 2, "updates") == "200");
  CHECK(cell(curves, 2, "accuracy") == "0.8");
  CHECK(cell(curves, 7, "seed") == "2");
}

TEST_CASE("a trial has the same bits alone and beside others", "[apps]") {
  // Dense layers and convolutions: every kind of compiled primitive that threads might share.
  std::vector<std::string> set{"data.glyphs.limit=512",
                               "data.glyphs.test_limit=128",
                               "data.batch_size=64",
                               "stop.epochs=1",
                               "record.evaluate_every=3"};
  const auto dense =
      schemes_of("teacher-mlp", kQuick, {{"pipeline.weights", {"stash", "spectrain", "latest"}}});
  const auto convolutions = schemes_of("glyphs-mlp", set, {{"model", {"lenet5", "mlp"}}});
  auto served = kQuick;
  served.insert(served.end(), {"pipeline.stages=1", "pipeline.weights=latest", "replicas.count=2"});
  const auto replicas =
      schemes_of("teacher-mlp", served, {{"replicas.rule", {"asgd", "dana_zero"}}});
  for (const Schemes& schemes : {dense, convolutions, replicas}) {
    const Comparison one = compared(schemes, 1);
    const Comparison two = compared(schemes, 2);
    const Comparison four = compared(schemes, 4);
    CHECK(curves_text(one).size() > 500);
    CHECK(curves_text(two) == curves_text(one));
    CHECK(curves_text(four) == curves_text(one));
    CHECK(json_text(two) == json_text(one));  // with the hash of each trial's weights
    CHECK(csv_text(four) == csv_text(one));
    for (const Trial& trial : two.trials) {
      CHECK(trial.outcome == Outcome::finished);
      proto::Experiment alone = schemes.schemes[trial.scheme].resolved;
      alone.set_seed(trial.seed);
      const auto blueprint = make_blueprint(alone);
      REQUIRE(blueprint);
      RunOptions options;
      options.virtual_clock = true;
      const auto result = run_experiment(*blueprint, options);
      REQUIRE(result);
      CHECK(trial.summary.weights_sha256.size() == 64);
      CHECK(result->summary.weights_sha256 == trial.summary.weights_sha256);
      CHECK(result->summary.order_sha256 == trial.summary.order_sha256);
      CHECK(*result->summary.test_accuracy == trial.curve.back().accuracy);
      CHECK(result->summary.epochs == Approx(trial.curve.back().epochs));
    }
  }
}

TEST_CASE("seeds differ, and schemes of one seed see the same samples", "[apps]") {
  // On flushed schedules all policies are the same: only the data's order could tell them apart.
  const auto schemes = schemes_of("teacher-mlp",
                                  [] {
                                    auto set = kQuick;
                                    set.emplace_back("pipeline.schedule=gpipe");
                                    return set;
                                  }(),
                                  {{"pipeline.weights", {"stash", "latest"}}});
  const Comparison c = compared(schemes, 2);
  REQUIRE(c.trials.size() == 4);
  CHECK(c.trials[0].seed + 1 == c.trials[1].seed);
  CHECK(c.trials[0].summary.weights_sha256 != c.trials[1].summary.weights_sha256);
  CHECK(c.trials[0].summary.weights_sha256 == c.trials[2].summary.weights_sha256);
  CHECK(c.trials[1].summary.weights_sha256 == c.trials[3].summary.weights_sha256);
  CHECK(c.trials[0].curve.back().train_loss == c.trials[2].curve.back().train_loss);
  const Comparison real = compared(schemes, 1, false);
  CHECK(real.trials[3].summary.weights_sha256 == c.trials[3].summary.weights_sha256);
}

TEST_CASE("a scheme that diverges is a row like others", "[apps]") {
  auto set = kQuick;
  set.emplace_back("model.mlp.activation=relu");
  const Comparison c =
      compared(schemes_of("teacher-mlp", set, {{"optimizer.learning_rate", {"0.05", "1e30"}}}), 2);
  CHECK(c.figures[0].diverged == 0);
  CHECK(c.figures[0].at_end.count == 2);
  CHECK(c.figures[1].diverged == 2);
  CHECK(c.figures[1].at_end.count == 0);
  CHECK_THAT(table_text(c), says("diverged 2/2"));
  REQUIRE(c.common);
  CHECK(c.common->epochs == 2);
}

TEST_CASE("the verb writes its table to stdout and its files to the folder", "[apps]") {
  const Folder folder;
  std::vector<std::string> arguments{"compare",
                                     "teacher-mlp",
                                     "--vary",
                                     "pipeline.weights=stash,spectrain",
                                     "--vary",
                                     "pipeline.stages=2,100",
                                     "--seeds",
                                     "2",
                                     "--target",
                                     "0.1",
                                     "--out",
                                     folder / "new"};
  for (const std::string& assignment : kQuick) {
    arguments.insert(arguments.end(), {"--set", assignment});
  }
  const Said said = run_program(arguments);
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("spectrain"));
  CHECK_THAT(said.out,
             says("refused  weights=stash stages=100: pipeline.stages: the network has 8"));
  CHECK_THAT(said.out, says(folder / "new"));
  CHECK_THAT(said.err, says("[4/4] "));
  CHECK_THAT(said.err, says("refused: weights=spectrain stages=100: "));
  CHECK(parsed_csv(contents(folder / "new/compare.csv")).size() == 3);
  CHECK(parsed_csv(contents(folder / "new/curves.csv")).size() > 10);
  const auto runs = parsed_csv(contents(folder / "new/runs.csv"));
  REQUIRE(runs.size() == 5);
  CHECK(cell(runs, 1, "weights_sha256").size() == 64);
  CHECK(std::stod(cell(runs, 1, "staleness_max")) > 0);
  CHECK(parsed_json(contents(folder / "new/compare.json")).fields().at("seeds").number_value() ==
        2);
  CHECK(std::filesystem::exists(folder / "new/curves.gnuplot"));
  CHECK(std::filesystem::exists(folder / "new/against-stages.gnuplot") ==
        false);  // only one was left

  // The repeat that compare.json promises.
  std::replace(arguments.begin(), arguments.end(), folder / "new", folder / "again");
  arguments.insert(arguments.end(), {"--jobs", "1", "--quiet"});
  const Said again = run_program(arguments);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, !says("[4/4] "));
  for (const char* name :
       {"compare.csv", "compare.json", "curves.csv", "runs.csv", "curves.gnuplot"}) {
    CHECK(contents(folder / std::string("again/") + name) ==
          contents(folder / std::string("new/") + name));
  }
}

TEST_CASE("mistakes on compare's command line are one sentence", "[apps]") {
  const Folder folder;
  check_refused({"compare", "teacher-mpl"}, "did you mean \"teacher-mlp\"?");
  check_refused({"compare", "--vary", "pipeline.wieghts=stash"}, "did you mean \"weights\"?");
  check_refused({"compare", "--vary", "pipeline.weights"}, "is not path=value");
  check_refused({"compare", "--clock", "real", "--jobs", "2"}, "--jobs: on the real clock");
  check_refused({"compare", "--target", "97"}, "--target: 97 is no accuracy");
  std::ofstream(folder / "mine") << "x";
  check_refused({"compare", "--out", folder.path().string()},
                "exists already and is no comparison that can be continued");
  check_refused({"compare", "--out", ""}, "--out: the name of the folder is empty");
  CHECK(run_program({"compare", "--seeds", "0"}).code == 2);
  CHECK(run_program({"compare", "--clock", "vritual"}).code == 2);
}

TEST_CASE("an interrupt ends what runs and reports what is finished", "[apps]") {
  const Folder folder;
  Program program({"compare",
                   "teacher-mlp",
                   "--vary",
                   "optimizer.learning_rate=0.1,0.05,0.01",
                   "--seeds",
                   "1000",
                   "--jobs",
                   "2",
                   "--epochs",
                   "2",
                   "--out",
                   folder / "new"});
  while (program.err().find("[4/3000]") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.signal(SIGINT);
  const Said said = program.wait();
  CHECK(said.code == 130);
  CHECK_THAT(said.err, says("interrupted; what was finished is reported"));
  CHECK_THAT(said.err,
             says("the same command with --out " + folder / "new" + " goes on from here"));
  CHECK_THAT(said.out, says("0.05"));
  const auto rows = parsed_csv(contents(folder / "new/compare.csv"));
  REQUIRE(rows.size() == 4);
  int finished = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    finished += std::stoi(cell(rows, i, "trials"));
    CHECK(cell(rows, i, "failed") == "0");
  }
  CHECK(finished >= 4);
  CHECK(finished < 3000);
}

}  // namespace compare_test
