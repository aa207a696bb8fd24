#include "apps/board/campaign.hpp"

#include "apps/presets/presets.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/sha256.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

/// A trial whose experiment is none that can be run.
bool is_refused(const Trial& trial) {
  return trial.outcome == Outcome::failed && trial.exit_code == static_cast<int>(ErrorKind::usage);
}

/// At the end of the run; infinite where there is none.
double end_loss(const Trial& trial) {
  const bool there = trial.outcome == Outcome::finished && !trial.curve.empty();
  const double loss = there ? trial.curve.back().test_loss : INFINITY;
  return std::isfinite(loss) ? loss : INFINITY;
}

/// As `settings` make it, which are checked when it is run.
Contender contender_of(const std::string& label, const std::vector<std::string>& settings) {
  auto resolved = load_experiment(std::string(kDefaultPreset), settings);
  TROUPE_CHECK(bool(resolved), "[contender_of] the settings of apps/board/schemes.txt are keys");
  return {.label = label,
          .title = label,
          .experiment = std::string(kDefaultPreset),
          .values = {},
          .assignments = settings,
          .resolved = *std::move(resolved)};
}

std::string rate_setting(const std::string& rate) {
  return "optimizer.learning_rate=" + rate;
}

}  // namespace

std::vector<Trial> Campaign::train(const std::vector<Contender>& contenders, int seeds) {
  std::size_t done = 0;
  std::size_t taken = 0;
  const std::size_t all = contenders.size() * static_cast<std::size_t>(seeds);
  TrialOptions options{.virtual_clock = true,
                       .seeds = seeds,
                       .jobs = options_.jobs,
                       .interrupted = [&] { return !options_.train || options_.interrupted(); },
                       .on_finish = {}};
  options.recall = [&](Trial& trial) {
    const bool there = kept_.recall(contenders[trial.scheme], trial);
    taken += there ? 1 : 0;
    return there;
  };
  options.on_finish = [&](const Trial& trial) {
    const Contender& contender = contenders[trial.scheme];
    ++done;
    if (is_refused(trial)) {
      return;  // another program may not refuse it
    }
    if (const auto written = kept_.keep(contender, trial); !written) {
      options_.note(written.error().message);
    }
    options_.note(fill_in(
        "[{}/{}] {} seed {}: {}",
        taken + done,
        all,
        contender.label,
        trial.seed,
        trial.outcome == Outcome::finished ? concat("loss ", end_loss(trial)) : trial.cause));
  };
  std::vector<Trial> trials = run_trials(contenders, options);
  for (const Trial& trial : trials) {
    if (trial.outcome != Outcome::interrupted && !is_refused(trial)) {
      finished_.emplace_back(contenders[trial.scheme], trial);
    }
  }
  return trials;
}

std::vector<BoardCell> Campaign::tune(const BoardLine& network,
                                      const std::vector<const BoardLine*>& schemes,
                                      const std::vector<std::string>& conditions) {
  std::vector<BoardCell> cells;
  std::vector<Contender> tuned;
  for (const BoardLine* scheme : schemes) {
    for (const std::string& rate : board_.rates(network, *scheme)) {
      auto settings = board_.settings(network, conditions.front(), *scheme).front();
      settings.push_back(rate_setting(rate));
      tuned.push_back(
          contender_of(concat(network.name(), " ", scheme->name(), " at ", rate), settings));
    }
  }
  const std::vector<Trial> trials = train(tuned, 1);
  std::size_t at = 0;
  for (const BoardLine* scheme : schemes) {
    const auto rates = board_.rates(network, *scheme);
    const auto first = trials.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = first + static_cast<std::ptrdiff_t>(rates.size());
    at += rates.size();
    const auto best = std::min_element(
        first, last, [](const Trial& a, const Trial& b) { return end_loss(a) < end_loss(b); });
    if (std::any_of(first, last, [](const Trial& trial) {
          return trial.outcome == Outcome::interrupted;
        })) {
      continue;  // of which nothing can be said
    }
    const bool any = std::isfinite(end_loss(*best));
    for (const std::string& condition : conditions) {
      BoardCell& cell = cells.emplace_back();
      cell.network = &network;
      cell.scheme = scheme;
      cell.condition = condition;
      cell.rate = any ? rates[static_cast<std::size_t>(best - first)] : "";
      cell.at_edge = any && (best == first || best == last - 1);
      if (!any) {
        cell.refused = is_refused(*best) ? best->cause : "diverged at every rate";
      }
    }
  }
  return cells;
}

std::vector<BoardCell> Campaign::run(const BoardLine& network,
                                     const std::vector<const BoardLine*>& schemes,
                                     const std::vector<std::string>& conditions) {
  std::vector<BoardCell> cells = tune(network, schemes, conditions);
  for (const std::string& condition : conditions) {
    std::vector<BoardCell*> open;
    for (BoardCell& cell : cells) {
      if (cell.condition == condition && !cell.rate.empty()) {
        open.push_back(&cell);
      }
    }
    for (std::size_t line = 0; !open.empty(); ++line) {
      std::vector<Contender> contenders;
      std::vector<BoardCell*> whose;
      for (BoardCell* cell : open) {
        auto lines = board_.settings(network, condition, *cell->scheme);
        if (line < lines.size()) {
          lines[line].push_back(rate_setting(cell->rate));
          contenders.push_back(contender_of(
              concat(network.name(), " ", condition, " ", cell->scheme->name()), lines[line]));
          whose.push_back(cell);
        }
      }
      if (contenders.empty()) {
        break;
      }
      open.clear();
      const std::vector<Trial> of_line = train(contenders, options_.seeds);
      for (std::size_t i = 0; i < whose.size(); ++i) {
        const auto begin = of_line.begin() + static_cast<std::ptrdiff_t>(i) * options_.seeds;
        if (is_refused(*begin)) {
          whose[i]->refused = begin->cause;
          open.push_back(whose[i]);
          continue;
        }
        if (!options_.train && begin->outcome == Outcome::interrupted) {
          open.push_back(whose[i]);  // refused, perhaps, which nobody has kept
          continue;
        }
        whose[i]->refused.clear();
        whose[i]->line = line;
        std::copy_if(begin,
                     begin + options_.seeds,
                     std::back_inserter(whose[i]->trials),
                     [](const Trial& trial) { return trial.outcome != Outcome::interrupted; });
      }
    }
  }
  std::erase_if(cells,
                [](const BoardCell& cell) { return cell.trials.empty() && cell.refused.empty(); });
  return cells;
}

std::vector<std::string> Campaign::repeat(double share, std::size_t& repeated) {
  std::vector<std::pair<std::string, std::size_t>> order;
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    Sha256 digest;
    const std::string name = concat(finished_[i].first.label, " seed ", finished_[i].second.seed);
    digest.update(name.data(), name.size());
    order.emplace_back(digest.finish(), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(std::ceil(share * static_cast<double>(order.size()))));
  std::vector<Contender> contenders;
  for (const auto& [digest, i] : order) {
    contenders.push_back(finished_[i].first);
    contenders.back().resolved->set_seed(finished_[i].second.seed);
  }
  const TrialOptions options{.virtual_clock = true,
                             .seeds = 1,
                             .jobs = options_.jobs,
                             .interrupted = options_.interrupted,
                             .on_finish = {}};
  const std::vector<Trial> again = run_trials(contenders, options);
  std::vector<std::string> differ;
  repeated = 0;
  for (std::size_t i = 0; i < again.size(); ++i) {
    const Trial& before = finished_[order[i].second].second;
    if (again[i].outcome == Outcome::interrupted) {
      continue;
    }
    ++repeated;
    if (bits_of(again[i]) != bits_of(before)) {
      differ.push_back(fill_in("{} seed {} differs: weights {} before, {} now",
                               contenders[i].label,
                               before.seed,
                               before.summary.weights_sha256,
                               again[i].summary.weights_sha256));
    }
  }
  return differ;
}

}  // namespace troupe
