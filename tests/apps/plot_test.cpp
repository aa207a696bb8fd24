// Figures: what of comparisons and runs is drawn, and that gnuplot can draw it.
#include "apps/compare/plot.hpp"

#include "apps/plot/figure.hpp"
#include "apps/plot/folder_curves.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

Trial trial_of(std::size_t scheme, std::uint64_t seed, double accuracy) {
  Trial t{.scheme = scheme, .seed = seed, .outcome = Outcome::finished};
  for (const double epochs : {1.0, 2.0}) {
    t.curve.push_back({.updates = 1,
                       .epochs = epochs,
                       .seconds = 10 * epochs,
                       .train_loss = 8 / (epochs * epochs * epochs),
                       .test_loss = 1 - accuracy,
                       .accuracy = accuracy * epochs / 2});
  }
  return t;
}

/// R = 1, 4, 16 under two rules, two seeds each.
Comparison comparison_of_replicas() {
  Comparison c;
  c.clock = "virtual";
  c.seeds = 2;
  c.varied = {{"replicas.rule", {"asgd", "dana_zero"}}, {"replicas.count", {"1", "4", "16"}}};
  c.schemes.columns = {"rule", "count"};
  for (const std::string& rule : c.varied[0].values) {
    for (const std::string& count : c.varied[1].values) {
      Contender scheme;
      scheme.label = "rule=" + rule + " count=" + count;
      scheme.experiment = "it's mine";
      scheme.values = {rule, count};
      scheme.classes = true;
      const double accuracy = (rule == "asgd" ? 0.5 : 0.8) - 0.01 * std::stod(count);
      const std::size_t at = c.schemes.schemes.size();
      c.trials.push_back(trial_of(at, 1, accuracy));
      c.trials.push_back(trial_of(at, 2, accuracy + 0.1));
      c.schemes.schemes.push_back(scheme);
    }
  }
  judge(c);
  return c;
}

bool has_gnuplot() {
  return std::system("gnuplot --version > /dev/null 2>&1") == 0;
}

/// What tells line `line` from others: its colour and dashes.
std::string style(const std::string& script, std::size_t line) {
  const std::size_t at = script.find(concat("$panel0_line", line, " using 1:2 "));
  REQUIRE(at != std::string::npos);
  return script.substr(script.find(" dt ", at), std::string(" dt 1 lc rgb '#000000'").size());
}

Words short_sim(const std::string& out, const Words& more = {}) {
  return with({"sim",
               "glyphs-mlp",
               "--quiet",
               "--epochs",
               "2",
               "--set",
               "data.glyphs.limit=512",
               "--set",
               "data.glyphs.test_limit=64",
               "--set",
               "record.every=1",
               "--out",
               out},
              more);
}

}  // namespace

TEST_CASE("a comparison is drawn over epochs, over seconds, and against what was varied by numbers",
          "[apps]") {
  const Comparison c = comparison_of_replicas();
  const std::vector<Figure> figures = figures_to_draw(c);
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].stem == "curves");
  REQUIRE(figures[0].panels.size() == 3);
  const PlotPanel& losses = figures[0].panels[2];
  CHECK(losses.y_label == "training loss");
  CHECK(losses.log_y);
  CHECK(losses.lines[5].points[1].y == 1);
  CHECK(figures[0].panels[0].lines[0].title == "rule=asgd count=1");
  CHECK(figures[0].panels[0].lines[0].points[1].y == Approx(54));  // percent
  CHECK(figures[0].panels[1].lines[0].points[1].x == 20);

  CHECK(figures[1].stem == "against-count");
  REQUIRE(figures[1].panels.size() == 1);
  const PlotPanel& against = figures[1].panels[0];
  CHECK(against.x_label == "replicas.count");
  REQUIRE(against.lines.size() == 2);
  CHECK(against.lines[1].title == "rule=dana_zero");
  REQUIRE(against.lines[1].points.size() == 3);
  CHECK(against.lines[1].points[2].x == 16);
  CHECK(against.lines[1].points[2].y == Approx(69));
  CHECK(against.lines[1].points[2].deviation == Approx(10 / std::sqrt(2.0)));
  const std::string script = figure_script(figures[1]);
  CHECK_THAT(script, says("set logscale x"));
  CHECK_THAT(script, says("set xtics (1, 4, 16)"));
  CHECK_THAT(script, says("title 'it''s mine: virtual clock, mean and standard deviation of 2"));
}

TEST_CASE("a key of words, or of one value, has no axis", "[apps]") {
  Comparison c = comparison_of_replicas();
  c.varied = {{"replicas.rule", {"asgd", "dana_zero"}}, {"replicas.split", {"shared"}}};
  for (Contender& scheme : c.schemes.schemes) {
    scheme.values[1] = "2";
  }
  CHECK(figures_to_draw(c).size() == 1);
  for (Trial& trial : c.trials) {
    trial.curve.clear();
  }
  judge(c);
  CHECK(figures_to_draw(c).empty());
}

TEST_CASE("what changes along with a key is no line of its own", "[apps]") {
  Comparison c = comparison_of_replicas();
  c.varied[1].joined = true;
  const std::vector<Figure> figures = figures_to_draw(c);
  REQUIRE(figures.size() == 2);
  CHECK(figures[1].panels[0].lines.size() == 1);
}

TEST_CASE("twenty lines are told apart by colours and dashes", "[apps]") {
  Figure figure{.stem = "many", .title = "", .panels = {{.x_label = "x", .y_label = "y"}}};
  for (int i = 0; i < 20; ++i) {
    figure.panels[0].lines.push_back({concat("line ", i), {{1, 1.0 + i}, {2, 2.0 + i}}});
  }
  const std::string script = figure_script(figure);
  std::set<std::string> styles;
  for (std::size_t i = 0; i < 20; ++i) {
    styles.insert(style(script, i));
  }
  CHECK(styles.size() == 20);
}

TEST_CASE("logarithmic axes come where they say something and are possible", "[apps]") {
  const auto script = [](std::vector<PlotPoint> points) {
    return figure_script({.stem = "one",
                          .title = "",
                          .panels = {{.x_label = "x",
                                      .y_label = "y",
                                      .lines = {{"a", std::move(points)}},
                                      .log_y = true}}});
  };
  CHECK_THAT(script({{1, 3}, {2, 0.5}}),
             says("set logscale y\nset ytics (0.1, 0.2, 0.5, 1, 2, 5)"));
  CHECK_THAT(script({{1, 1}, {2, 0.9}}), !says("\nset logscale"));
  CHECK_THAT(script({{1, 1}, {2, 0}}), !says("\nset logscale"));
  CHECK_THAT(script({{1, 1e6}, {2, 1}}), says("set ytics (1, 10, 100, 1000, 10000, 1e+05, 1e+06)"));
  CHECK(script({{1, kNothing}}).empty());
}

TEST_CASE("a figure is drawn where gnuplot is, and nothing is lost where it is not", "[apps]") {
  const Folder folder;
  const std::vector<Figure> figures = figures_to_draw(comparison_of_replicas());
  const auto none = draw_figure(folder.path(), figures[0], "no-such-plotter");
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, says("there is no no-such-plotter"));
  CHECK_THAT(none.error().message, says("gnuplot-nox"));
  CHECK(fs::exists(folder / "curves.gnuplot"));
  const auto failing = draw_figure(folder.path(), figures[0], "false");
  REQUIRE_FALSE(failing);
  CHECK_THAT(failing.error().message, says("false failed"));
  const auto no_pdf = draw_figure(folder.path(), figures[0], "true");
  REQUIRE_FALSE(no_pdf);
  CHECK_THAT(no_pdf.error().message, says("curves.pdf is not drawn, as this true has no terminal"));
  if (!has_gnuplot()) {
    return;
  }
  for (const Figure& figure : figures) {
    const auto drawn = draw_figure(folder.path(), figure);
    INFO((drawn ? "" : drawn.error().message));
    REQUIRE(drawn);
    CHECK(contents(folder / (figure.stem + ".png")).starts_with("\x89PNG"));
    CHECK(contents(folder / (figure.stem + ".pdf")).starts_with("%PDF-"));
    CHECK(contents(folder / (figure.stem + ".pdf")).size() > 5000);
    CHECK_THAT(contents(folder / (figure.stem + ".svg")), says("rule=dana_zero"));
  }
}

TEST_CASE("troupe plot draws runs and comparisons together", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(short_sim(folder / "first")).code == 0);
  REQUIRE(run_program(short_sim(folder / "second", {"--lr", "0.01"})).code == 0);
  const auto curves = curves_in(folder / "first");
  REQUIRE(curves);
  REQUIRE(curves->size() == 1);
  CHECK(curves->front().title == "first");
  CHECK(curves->front().clock == "virtual");
  CHECK(curves->front().losses.size() == 8);  // 4 updates an epoch
  CHECK(curves->front().losses.back().epochs == 2);
  REQUIRE(curves->front().trials.size() == 1);
  CHECK(curves->front().trials[0].curve.back().epochs == 2);

  Words compare =
      short_sim(folder / "compared", {"--vary", "pipeline.weights=latest,stash", "--seeds", "2"});
  compare.front() = "compare";
  REQUIRE(run_program(compare).code == 0);
  const auto schemes = curves_in(folder / "compared");
  REQUIRE(schemes);
  REQUIRE(schemes->size() == 2);
  CHECK(schemes->back().title == "weights=stash");
  CHECK(schemes->back().trials.size() == 2);

  const Said said = run_program(
      {"plot", folder / "first", folder / "second", folder / "compared", "--out", folder / "plot"});
  if (has_gnuplot()) {
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK(contents(folder / "plot/curves.pdf").starts_with("%PDF-"));
  }
  const std::string script = contents(folder / "plot/curves.gnuplot");
  for (const std::string& title : {std::string("'first'"),
                                   std::string("'second'"),
                                   "'" + (folder / "compared: weights=latest") + "'"}) {
    CHECK_THAT(script, says(" title " + title));
  }

  CHECK_THAT(run_program({"plot", folder / "none", "--out", folder / "p"}).err,
             says(" does not exist"));
  CHECK_THAT(run_program({"plot", folder.path().string(), "--out", folder / "p"}).err,
             says("is neither the folder of a run"));
  std::ofstream(folder / "first/metrics.jsonl", std::ios::app) << "{\"kind\":\"eval";
  CHECK(curves_in(folder / "first"));  // a line that is still being written
  std::ofstream(folder / "first/metrics.jsonl", std::ios::app) << "\n";
  const Said wrong = run_program({"plot", folder / "first", "--out", folder / "p"});
  CHECK(wrong.code == 3);
  CHECK_THAT(wrong.err, says("first/metrics.jsonl:"));
}
