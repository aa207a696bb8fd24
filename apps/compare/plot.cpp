#include "apps/compare/plot.hpp"

#include "kernels/check.hpp"
#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace troupe {
namespace {

double unit_of(Measure measure) {
  return measure == Measure::accuracy ? 100 : 1;
}

std::string label_of(Measure measure) {
  return measure == Measure::accuracy ? "accuracy on the test data, %" : "loss on the test data";
}

PlotLine line_of(const std::string& title,
                 const std::vector<MeanPoint>& curve,
                 double MeanPoint::*x,
                 Spread MeanPoint::*y,
                 double unit) {
  PlotLine line{.title = title};
  for (const MeanPoint& point : curve) {
    const Spread& spread = point.*y;
    line.points.push_back({point.*x, unit * spread.mean, unit * spread.sd});
  }
  return line;
}

/// The label of a scheme without the key `key`, and without those that change along with it.
std::string other_values(const Comparison& c, std::size_t scheme, std::size_t key) {
  std::size_t first = key;
  while (first > 0 && c.varied[first].joined) {
    --first;
  }
  const Contender& s = c.schemes.schemes[scheme];
  const bool several =
      std::any_of(c.schemes.schemes.begin(), c.schemes.schemes.end(), [&](const Contender& other) {
        return other.experiment != s.experiment;
      });
  std::string text = several ? s.experiment : "";
  for (std::size_t i = 0, group = 0; i < c.varied.size(); ++i) {
    group = c.varied[i].joined ? group : i;
    if (group != first) {
      text += concat(text.empty() ? "" : " ", c.schemes.columns[i], "=", s.values[i]);
    }
  }
  return text;
}

/// No panel where fewer than two values are numbers, or one is none.
std::optional<PlotPanel> panel_against(const Comparison& c, std::size_t key) {
  std::vector<std::string> order;
  std::map<std::string, PlotLine> lines;
  std::set<double> values;
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    const auto x = numeral<double>(c.schemes.schemes[i].values[key]);
    if (!x) {
      return {};
    }
    values.insert(*x);
    const Spread& y = c.figures[i].at_end;
    const std::string title = other_values(c, i, key);
    if (const auto [line, is_new] = lines.try_emplace(title, PlotLine{.title = title}); is_new) {
      order.push_back(title);
    }
    lines[title].points.push_back({*x, unit_of(c.measure) * y.mean, unit_of(c.measure) * y.sd});
  }
  if (values.size() < 2) {
    return {};
  }
  PlotPanel panel{.x_label = c.varied[key].path,
                  .y_label = label_of(c.measure),
                  .log_x = true,
                  .log_y = c.measure == Measure::loss,
                  .ticks_at_points = true};
  for (const std::string& title : order) {
    PlotLine& line = lines[title];
    std::sort(line.points.begin(), line.points.end(), [](const PlotPoint& a, const PlotPoint& b) {
      return a.x < b.x;
    });
    panel.lines.push_back(std::move(line));
  }
  return panel;
}

std::string title_of(const Comparison& c) {
  std::string names;  // each experiment once
  for (const Contender& scheme : c.schemes.schemes) {
    const std::string& name = scheme.experiment;
    if ((", " + names + ", ").find(", " + name + ", ") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  return fill_in("{}: {} clock, {}",
                 names,
                 c.clock,
                 c.seeds > 1 ? concat("mean and standard deviation of ", c.seeds, " seeds")
                             : std::string("one seed"));
}

/// The loss on the test data at the last evaluation.
Spread end_loss_of(std::span<const Trial> trials) {
  std::vector<double> losses;
  for (const Trial& trial : trials) {
    if (trial.outcome == Outcome::finished && !trial.curve.empty()) {
      losses.push_back(trial.curve.back().test_loss);
    }
  }
  return spread_of(losses);
}

/// `drawn`: the schemes that `titles` and `curves` are of. A panel whose points have all one x is left out.
std::vector<PlotPanel> panels_of_costs(const Comparison& c,
                                       const std::vector<std::size_t>& drawn,
                                       const std::vector<std::string>& titles,
                                       const std::vector<std::vector<MeanPoint>>& curves) {
  std::vector<PlotPanel> panels{
      {.x_label = "mean staleness, versions", .y_label = label_of(c.measure), .log_y = false},
      {.x_label = "bytes sent", .y_label = "loss on the test data", .log_x = true, .log_y = true}};
  PlotPanel seconds{.x_label = concat("seconds of the ", c.clock, " clock"),
                    .y_label = "training loss",
                    .log_y = true};
  std::set<double> staleness;
  std::set<double> bytes;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Figures& f = c.figures[drawn[i]];
    const double unit = unit_of(c.measure);
    const Spread loss = end_loss_of(c.trials_of(drawn[i]));
    staleness.insert(f.staleness.mean);
    bytes.insert(f.bytes_sent.mean);
    panels[0].lines.push_back(
        {titles[i], {{f.staleness.mean, unit * f.at_end.mean, unit * f.at_end.sd}}});
    panels[1].lines.push_back({titles[i], {{f.bytes_sent.mean, loss.mean, loss.sd}}});
    seconds.lines.push_back(
        line_of(titles[i], curves[i], &MeanPoint::seconds, &MeanPoint::train_loss, 1));
  }
  if (bytes.size() < 2) {
    panels.pop_back();
  }
  if (staleness.size() < 2) {
    panels.erase(panels.begin());
  }
  panels.push_back(std::move(seconds));
  return panels;
}

}  // namespace

std::vector<PlotPanel> curve_panels(const std::vector<std::vector<MeanPoint>>& curves,
                                    const std::vector<std::string>& titles,
                                    Measure measure,
                                    const std::string& clock) {
  const bool loss = measure == Measure::loss;
  std::vector<PlotPanel> panels{{.x_label = "epochs", .y_label = label_of(measure), .log_y = loss},
                                {.x_label = concat("seconds of the ", clock, " clock"),
                                 .y_label = label_of(measure),
                                 .log_y = loss},
                                {.x_label = "epochs", .y_label = "training loss", .log_y = true}};
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const double unit = unit_of(measure);
    panels[0].lines.push_back(
        line_of(titles[i], curves[i], &MeanPoint::epochs, &MeanPoint::value, unit));
    panels[1].lines.push_back(
        line_of(titles[i], curves[i], &MeanPoint::seconds, &MeanPoint::value, unit));
    panels[2].lines.push_back(
        line_of(titles[i], curves[i], &MeanPoint::epochs, &MeanPoint::train_loss, 1));
  }
  return panels;
}

std::vector<Figure> figures_to_draw(const Comparison& c, FigureSize size) {
  std::vector<std::vector<MeanPoint>> curves;
  std::vector<std::string> titles;
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    std::vector<MeanPoint> curve = mean_curve(c.trials_of(i), c.measure);
    if (curve.empty() || std::isnan(curve.back().value.mean)) {
      continue;
    }
    titles.push_back(c.schemes.schemes[i].label);
    if (const std::size_t lost = c.figures[i].diverged + c.figures[i].failed; lost > 0) {
      titles.back() +=
          concat(" (", c.figures[i].trials - lost, "/", c.figures[i].trials, " seeds)");
    }
    curves.push_back(std::move(curve));
    drawn.push_back(i);
  }
  if (curves.empty()) {
    return {};
  }
  std::vector<Figure> figures{{.stem = "curves",
                               .title = title_of(c),
                               .panels = curve_panels(curves, titles, c.measure, c.clock)}};
  for (std::size_t key = 0; key < c.varied.size(); ++key) {
    if (auto panel = panel_against(c, key)) {
      figures.push_back({.stem = "against-" + c.schemes.columns[key],
                         .title = title_of(c),
                         .panels = {*std::move(panel)}});
    }
  }
  figures.push_back(
      {.stem = "costs", .title = title_of(c), .panels = panels_of_costs(c, drawn, titles, curves)});
  for (Figure& figure : figures) {
    figure.size = size;
  }
  return figures;
}

}  // namespace troupe
