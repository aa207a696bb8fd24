#include "apps/board/page.hpp"

#include "apps/cli/text.hpp"
#include "apps/compare/statistics.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace troupe {
namespace {

/// What a page and a table say of a cell.
struct CellNumbers {
  Figures figures;
  Spread updates;
  Spread epochs;
  Spread accuracy;  // at the end
  Spread
      to_target;  // updates until the first evaluation with the network's $target, of seeds that get there
  Spread lost_after;  // seconds, of seeds whose run was lost
};

CellNumbers numbers_of(const BoardCell& cell) {
  const double target = std::stod(cell.network->words.at("target"));
  std::vector<double> updates;
  std::vector<double> epochs;
  std::vector<double> accuracy;
  std::vector<double> to_target;
  std::vector<double> lost_after;
  for (const Trial& trial : cell.trials) {
    if (trial.outcome == Outcome::failed) {
      lost_after.push_back(trial.summary.seconds);
    }
    if (trial.outcome != Outcome::finished || trial.curve.empty()) {
      continue;
    }
    updates.push_back(static_cast<double>(trial.summary.updates));
    epochs.push_back(trial.summary.epochs);
    if (std::isfinite(trial.curve.back().accuracy)) {
      accuracy.push_back(trial.curve.back().accuracy);
    }
    const auto there =
        std::find_if(trial.curve.begin(), trial.curve.end(), [&](const CurvePoint& point) {
          return point.test_loss <= target;
        });
    if (there != trial.curve.end()) {
      to_target.push_back(static_cast<double>(there->updates));
    }
  }
  return {.figures = figures_of(cell.trials, Measure::loss, {}, {}),
          .updates = spread_of(updates),
          .epochs = spread_of(epochs),
          .accuracy = spread_of(accuracy),
          .to_target = spread_of(to_target),
          .lost_after = spread_of(lost_after)};
}

/// "0.3124 ± 0.011", with what became of the other seeds.
std::string loss_text(const BoardCell& cell) {
  if (!cell.refused.empty()) {
    return "refused";
  }
  const CellNumbers n = numbers_of(cell);
  const Figures& f = n.figures;
  std::string text;
  const auto add = [&](const std::string& more) {
    text += (text.empty() ? "" : ", ") + more;
  };
  if (f.at_end.count > 0) {
    add(number(f.at_end.mean, "%.4g") +
        (f.at_end.count > 1 ? " ± " + number(f.at_end.sd, "%.2g") : ""));
  }
  if (f.diverged > 0) {
    add(concat("diverged ", f.diverged, "/", f.trials));
  }
  if (f.failed > 0) {
    add(concat("lost ", f.failed, "/", f.trials, " at ", number(n.lost_after.mean, "%.2g"), " s"));
  }
  return text + (cell.line > 0 && !text.empty() ? "¹" : "");
}

/// Of one scheme on one network, in the order of conditions.
struct BoardRow {
  std::vector<const BoardCell*> cells;
  double order = INFINITY;  // the loss under the first condition
};

std::vector<BoardRow> rows_of(const std::vector<BoardCell>& cells, const BoardLine* network) {
  std::vector<BoardRow> rows;
  for (const BoardCell& cell : cells) {
    if (cell.network != network) {
      continue;
    }
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const BoardRow& row) {
      return row.cells.front()->scheme == cell.scheme;
    });
    BoardRow& row = same != rows.end() ? *same : rows.emplace_back();
    if (row.cells.empty() && cell.refused.empty()) {
      const Spread loss = numbers_of(cell).figures.at_end;
      row.order = loss.count > 0 ? loss.mean : INFINITY;
    }
    row.cells.push_back(&cell);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const BoardRow& a, const BoardRow& b) {
    return a.order < b.order;
  });
  return rows;
}

std::string row_text(const BoardRow& row, const std::vector<std::string>& conditions) {
  const BoardCell& first = *row.cells.front();
  const CellNumbers n = numbers_of(first);
  const Figures& f = n.figures;
  const bool any = f.at_end.count > 0;
  std::string text = fill_in("| `{}` | {} | {}{}",
                             first.scheme->name(),
                             first.scheme->names.back(),
                             first.rate,
                             first.at_edge ? "²" : "");
  for (const std::string& condition : conditions) {
    const auto cell = std::find_if(row.cells.begin(), row.cells.end(), [&](const BoardCell* one) {
      return one->condition == condition;
    });
    text += " | " + (cell != row.cells.end() ? loss_text(**cell) : "");
  }
  const std::string reached =
      n.to_target.count == 0
          ? "never"
          : number(n.to_target.mean, "%.0f") +
                (n.to_target.count < f.trials ? concat(" (", n.to_target.count, "/", f.trials, ")")
                                              : "");
  text += any ? fill_in(" | {} | {} | {}/{} | {}",
                        number(n.updates.mean, "%.0f"),
                        reached,
                        number(f.staleness.mean, "%.2f"),
                        f.staleness_max,
                        f.bytes_sent.mean > 0 ? mebibytes(f.bytes_sent.mean) : "")
              : " | | | | ";
  return text + " |\n";
}

/// A row of the table of orderings; "" where one of the two schemes was not measured there.
std::string ordering_text(const BoardLine& ordering,
                          const std::vector<BoardCell>& cells,
                          const BoardLine* network) {
  const std::string& column = ordering.names[1];
  const auto measured_of = [&](const std::string& scheme) {
    for (const BoardCell& cell : cells) {
      if (cell.network == network && cell.condition == ordering.name() &&
          cell.scheme->name() == scheme) {
        const CellNumbers n = numbers_of(cell);
        return column == "updates"     ? n.updates
               : column == "staleness" ? n.figures.staleness
                                       : n.figures.at_end;
      }
    }
    return Spread{};
  };
  const Spread better = measured_of(ordering.names[2]);
  const Spread worse = measured_of(ordering.names[3]);
  if (better.count == 0 || worse.count == 0) {
    return "";
  }
  const auto variance = [](const Spread& spread) {
    return spread.count > 1 ? spread.sd * spread.sd / static_cast<double>(spread.count) : 0;
  };
  const double ahead = (worse.mean - better.mean) * (column == "updates" ? -1 : 1);
  const double noise = 2 * std::sqrt(variance(better) + variance(worse));
  const auto shown = [](const std::string& name, const Spread& spread) {
    return fill_in("`{}` {}{}",
                   name,
                   number(spread.mean, "%.4g"),
                   spread.count > 1 ? " ± " + number(spread.sd, "%.2g") : "");
  };
  return fill_in("| {} | {} | {} | {} | {} | {} | {} |\n",
                 ordering.text,
                 network->name(),
                 ordering.name(),
                 column,
                 shown(ordering.names[2], better),
                 shown(ordering.names[3], worse),
                 ahead > noise    ? "held"
                 : ahead < -noise ? "refuted"
                                  : "neither: within the noise");
}

}  // namespace

std::string board_csv(const std::vector<BoardCell>& cells) {
  std::string text =
      "network,condition,scheme,workers,rate,rate_at_edge,condition_line,trials,diverged,failed,"
      "test_loss,test_loss_sd,accuracy,updates,epochs,updates_to_target,reached_target,"
      "staleness_mean,staleness_max,bytes_sent,lost_after,says,source\n";
  for (const BoardCell& cell : cells) {
    const CellNumbers n = numbers_of(cell);
    const Figures& f = n.figures;
    std::string says = cell.refused;
    for (const Trial& trial : cell.trials) {
      says = says.empty() && trial.outcome == Outcome::failed ? trial.cause : says;
    }
    std::vector<std::string> fields{cell.network->name(),
                                    cell.condition,
                                    cell.scheme->name(),
                                    cell.scheme->names.back(),
                                    cell.rate,
                                    cell.at_edge ? "1" : "0",
                                    std::to_string(cell.line)};
    for (const std::size_t count : {f.trials, f.diverged, f.failed}) {
      fields.push_back(std::to_string(count));
    }
    for (const double value : {f.at_end.mean,
                               f.at_end.sd,
                               n.accuracy.mean,
                               n.updates.mean,
                               n.epochs.mean,
                               n.to_target.mean,
                               double(n.to_target.count),
                               f.staleness.mean,
                               double(f.staleness_max),
                               f.bytes_sent.mean,
                               n.lost_after.mean}) {
      fields.push_back(csv_field(value));
    }
    fields.push_back(says);
    fields.push_back(paper_of(*cell.scheme));
    text += csv_line(fields);
  }
  return text;
}

std::string board_curves(const std::vector<BoardCell>& cells) {
  std::string text = "network,condition,scheme,seed,updates,seconds,test_loss\n";
  for (const BoardCell& cell : cells) {
    for (const Trial& trial : cell.trials) {
      for (const CurvePoint& point : trial.curve) {
        text += fill_in("{},{},{},{},{},{},{}\n",
                        cell.network->name(),
                        cell.condition,
                        cell.scheme->name(),
                        trial.seed,
                        point.updates,
                        csv_field(point.seconds),
                        csv_field(point.test_loss));
      }
    }
  }
  return text;
}

std::string board_page(const Board& board,
                       const std::vector<BoardCell>& cells,
                       const std::set<std::string>& makers) {
  std::vector<const BoardLine*> networks;
  std::vector<std::string> conditions;
  for (const BoardCell& cell : cells) {
    if (std::find(networks.begin(), networks.end(), cell.network) == networks.end()) {
      networks.push_back(cell.network);
    }
    if (std::find(conditions.begin(), conditions.end(), cell.condition) == conditions.end()) {
      conditions.push_back(cell.condition);
    }
  }
  std::string text;
  for (const BoardLine* network : networks) {
    text +=
        concat(text.empty() ? "" : "\n", "## ", network->name(), "\n\n| scheme | workers | rate");
    std::string rule = "|---|---|---";
    for (const std::string& condition : conditions) {
      text += " | " + condition;
      rule += "|---";
    }
    text += fill_in(" | updates | updates to {} | staleness | sent |\n{}|---|---|---|---|\n",
                    network->words.at("target"),
                    rule);
    for (const BoardRow& row : rows_of(cells, network)) {
      text += row_text(row, conditions);
    }
    std::map<std::string, std::vector<std::string>> refused;  // by reason
    for (const BoardCell& cell : cells) {
      if (cell.network == network && !cell.refused.empty()) {
        refused[cell.refused].push_back(concat("`", cell.scheme->name(), "` ", cell.condition));
      }
    }
    for (const auto& [reason, whose] : refused) {
      text += concat(&whose == &refused.begin()->second ? "\nRefused:\n\n" : "", "- ");
      for (const std::string& one : whose) {
        text += one + (&one == &whose.back() ? ": " : ", ");
      }
      text += reason + "\n";
    }
  }
  std::string orderings;
  for (const BoardLine* network : networks) {
    for (const BoardLine* ordering : board.of_kind("ordering")) {
      orderings += ordering_text(*ordering, cells, network);
    }
  }
  if (!orderings.empty()) {
    text +=
        "\n## Orderings\n\n| what is published | network | condition | of | better | worse | "
        "verdict |\n|---|---|---|---|---|---|---|\n" +
        orderings;
  }
  for (const std::string& maker : makers) {
    text += concat("\nMade by ", maker, ".\n");
  }
  return text;
}

}  // namespace troupe
