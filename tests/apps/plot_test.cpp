// Figures: what of comparisons and runs is drawn, and that gnuplot can draw it.
#include "apps/compare/plot.hpp"

#include "apps/plot/drawing.hpp"
#include "apps/plot/folder_curves.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

namespace plot_test {

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

/// The folder of a comparison of two schemes whose first seed is `seed`, as troupe writes it; the second seed has not
/// finished.
void write_comparison(const fs::path& folder, std::uint64_t seed, bool evaluated = true) {
  Comparison c;
  c.clock = "virtual";
  c.seeds = 2;
  c.schemes.columns = {"count"};
  c.varied = {{"replicas.count", {"1", "2"}}};
  for (std::size_t i = 0; i < 2; ++i) {
    Contender scheme;
    scheme.label = concat("count=", i + 1, ", \"said\"");
    scheme.values = {concat(i + 1)};
    scheme.classes = true;
    c.schemes.schemes.push_back(scheme);
    c.trials.push_back(trial_of(i, seed, 0.25));
    c.trials.push_back(trial_of(i, seed + 1, 0.75));
    c.trials.back().outcome = Outcome::diverged;
    for (std::size_t t = 2 * i; !evaluated && t < 2 * i + 2; ++t) {
      c.trials[t].curve.clear();
    }
  }
  judge(c);
  fs::create_directories(folder);
  std::ofstream(folder / "compare.json") << json_text(c);
  std::ofstream(folder / "curves.csv") << curves_text(c);
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
  REQUIRE(figures.size() == 3);
  CHECK(figures[0].stem == "curves");
  REQUIRE(figures[0].panels.size() == 3);
  const PlotPanel& losses = figures[0].panels[2];
  CHECK(losses.y_label == "training loss");
  CHECK(losses.log_y);
  CHECK(losses.lines[5].points[0].y == 8);
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
  CHECK(figures_to_draw(c).size() == 2);  // curves and costs
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
  REQUIRE(figures.size() == 3);
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
             says("set ytics (0.1, 0.2, 0.5, 1, 2, 5)\nset logscale y"));
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
  const auto curves = curves_in({folder / "first"});
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
  const auto schemes = curves_in({folder / "compared"});
  REQUIRE(schemes);
  REQUIRE(schemes->size() == 2);
  CHECK(schemes->back().title == "weights=stash");
  CHECK(schemes->back().trials.size() == 2);

  const Said said = run_program(
      {"plot", folder / "first", folder / "second", folder / "compared", "--out", folder / "plot"});
  INFO(said.err);
  CHECK((said.code == 0) == has_gnuplot());
  CHECK((said.err.find("there is no gnuplot") == std::string::npos) == has_gnuplot());
  CHECK(fs::exists(folder / "plot/curves.pdf") == has_gnuplot());
  CHECK_THAT(said.out, says("curves.gnuplot"));
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
  CHECK(curves_in({folder / "first"}));  // a line that is still being written
  std::ofstream(folder / "first/metrics.jsonl", std::ios::app) << "\n";
  const Said wrong = run_program({"plot", folder / "first", "--out", folder / "p"});
  CHECK(wrong.code == 3);
  CHECK_THAT(wrong.err, says("first/metrics.jsonl:"));
}

TEST_CASE("what schemes cost is drawn: staleness, bytes and seconds", "[apps]") {
  Comparison c = comparison_of_replicas();
  for (Trial& trial : c.trials) {
    const auto scheme = static_cast<std::int64_t>(trial.scheme);
    trial.summary.bytes_sent = 1000 * (scheme + 1);
    trial.summary.staleness[0] = {.mean = 0, .max = scheme, .histogram = {{scheme, 1}}};
  }
  judge(c);
  const auto figures = figures_to_draw(c, FigureSize::column);
  CHECK(figures.back().stem == "costs");
  CHECK(figures.back().size == FigureSize::column);
  const auto& panels = figures.back().panels;
  REQUIRE(panels.size() == 3);
  CHECK(panels[0].y_label == "accuracy on the test data, %");
  CHECK(panels[0].lines[5].points[0].y == Approx(69));
  CHECK(panels[1].log_x);
  CHECK(panels[1].lines[5].points[0].x == 6000);
  CHECK(panels[1].lines[0].points[0].y == Approx(0.46));  // the mean of 1 - 0.49 and 1 - 0.59
  CHECK(panels[2].x_label == "seconds of the virtual clock");
  CHECK(panels[2].y_label == "training loss");
  CHECK_THAT(figure_script(figures.back()), says("with yerrorbars"));
}

TEST_CASE("what a title says is never a command", "[apps]") {
  Figure figure{
      .stem = "one", .title = "a\nsystem('b')\x01", .panels = {{.x_label = "x\r", .y_label = "y"}}};
  figure.panels[0].lines.push_back({"c\nexit", {{1, 1}, {2, 2}}});
  const std::string script = figure_script(figure);
  CHECK_THAT(script, says("set multiplot title 'a system(''b'') '\n"));
  CHECK_THAT(script, says("set xlabel 'x '\n"));
  CHECK_THAT(script, says("title 'c exit'\n"));
  const Folder folder;
  std::ofstream(folder / "metrics.jsonl") << R"({"kind":"header","clock":"real'\nsystem"})"
                                          << "\n";
  const auto curves = curves_in({folder.path().string()});
  REQUIRE_FALSE(curves);
  CHECK_THAT(curves.error().message, says("metrics.jsonl:1: "));
}

TEST_CASE("a title that is too long for any figure loses its middle, and no half of a letter stays",
          "[apps]") {
  const auto width = [](const std::string& title) {
    Figure figure{.stem = "one", .title = "", .panels = {{.x_label = "x", .y_label = "y"}}};
    figure.panels[0].lines.push_back({title, {{1, 1}}});
    const std::string script = figure_script(figure);
    const std::string size = "set terminal svg noenhanced size ";
    return std::stod(script.substr(script.find(size) + size.size()));
  };
  CHECK(width(std::string(100'000, 'x')) < 2000);
  Figure figure{.stem = "one", .title = "", .panels = {{.x_label = "x", .y_label = "y"}}};
  std::string letters;
  for (int i = 0; i < 100; ++i) {
    letters += "\u00e4";
  }
  figure.title = "a" + letters + "b";
  figure.panels[0].lines.push_back({"c", {{1, 1}}});
  std::string half;
  for (int i = 0; i < 29; ++i) {
    half += "\u00e4";
  }
  CHECK_THAT(figure_script(figure), says("title 'a" + half + " ... " + half + "b'"));
}

TEST_CASE("seeds of any size are told apart in the folder of a comparison", "[apps]") {
  const Folder folder;
  for (const std::uint64_t seed :
       {std::uint64_t{1}, (std::uint64_t{1} << 53) - 1, ~std::uint64_t{0} - 1}) {
    write_comparison(folder / "c", seed);
    const auto curves = curves_in({folder / "c"});
    INFO(seed);
    REQUIRE(curves);
    REQUIRE(curves->size() == 2);
    CHECK(curves->front().title == "count=1, \"said\"");
    REQUIRE(curves->front().trials.size() == 1);  // the other one has diverged
    CHECK(curves->front().trials[0].seed == seed);
    CHECK(curves->front().trials[0].curve.back().accuracy == 0.25);
  }
  std::ofstream(folder / "c/curves.csv", std::ios::app) << "count=1,-1,1,1,1,1,1,1\n";
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("curves.csv:10: "));
  write_comparison(folder / "c", 1);
  std::ofstream(folder / "c/curves.csv", std::ios::app) << "count=1,1e30,1,1,1,1,1,1\n";
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("curves.csv:10: "));
}

TEST_CASE("why a comparison has no curves is told", "[apps]") {
  const Folder folder;
  write_comparison(folder / "c", 1, false);
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("nothing was evaluated there"));
  std::ofstream(folder / "c/compare.json") << R"({"clock":"virtual","schemes":[]})"
                                           << "\n";
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("no trial has finished there"));
  std::ofstream(folder / "c/compare.json") << R"({"clock":"moon","schemes":[]})"
                                           << "\n";
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("compare.json:1: "));
  fs::remove(folder / "c/compare.json");
  fs::create_directory(folder / "c/compare.json");
  CHECK_THAT(curves_in({folder / "c"}).error().message, says("it is not a file"));
}

TEST_CASE("curves that are called alike are told apart by their folders", "[apps]") {
  const Folder folder;
  for (const char* name : {"a/run-1", "b/run-1", "b/run-2"}) {
    fs::create_directories(folder / name);
    std::ofstream(folder / (std::string(name) + "/metrics.jsonl"))
        << R"({"kind":"header","clock":"real"})"
        << "\n"
        << R"({"kind":"train","epoch":0.5,"seconds":1,"loss":0.3})"
        << "\n";
  }
  write_comparison(folder / "c", 1);
  const auto curves =
      curves_in({folder / "a/run-1", folder / "b/run-1", folder / "b/run-2", folder / "c"});
  REQUIRE(curves);
  REQUIRE(curves->size() == 5);
  CHECK((*curves)[0].title == folder / "a/run-1" + ": run-1");
  CHECK((*curves)[1].title == folder / "b/run-1" + ": run-1");
  CHECK((*curves)[2].title == "run-2");
  CHECK((*curves)[3].title == folder / "c" + ": count=1, \"said\"");
  CHECK((*curves)[2].losses.front().train_loss.mean == 0.3);  // to the bit
  const auto twice = curves_in({folder / "a/run-1", folder / "a/../a/run-1"});
  REQUIRE_FALSE(twice);
  CHECK(twice.error().kind == ErrorKind::usage);
  CHECK_THAT(twice.error().message, says("are the same folder"));
}

TEST_CASE("each phase of a run has a curve", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "two.textproto") << R"(
model { quadratic {} }
data { none {} batch_size: 1 }
stop { updates: 20 }
record { every: 1 }
phases { name: "one" }
phases { name: "two" set: "stop.updates=10" })";
  const Said said =
      run_program({"sim", folder / "two.textproto", "--quiet", "--out", folder / "run"});
  INFO(said.err);
  REQUIRE(said.code == 0);
  const auto curves = curves_in({folder / "run"});
  REQUIRE(curves);
  REQUIRE(curves->size() == 2);
  CHECK((*curves)[0].title == "run/01-one");
  CHECK((*curves)[0].losses.size() == 20);
  CHECK((*curves)[1].title == "run/02-two");
  CHECK((*curves)[1].losses.size() == 10);
}

TEST_CASE("no figure of other data stays in a folder", "[apps]") {
  const Folder folder;
  for (const char* name :
       {"curves.pdf", "against-a.svg", "against-b.gnuplot", "curves.csv", "against-me.txt"}) {
    std::ofstream(folder / name) << "old";
  }
  remove_figures(folder.path(), "curves");
  remove_figures(folder.path(), "against-");
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    left.insert(entry.path().filename().string());
  }
  CHECK(left == std::set<std::string>{"curves.csv", "against-me.txt"});
}

}  // namespace plot_test
