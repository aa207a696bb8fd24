#include "actors/casts/sparse/row_source.hpp"

#include "actors/exchange/shared_weights.hpp"
#include "actors/run/ending.hpp"
#include "messages/archive.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kAhead = 16;  // mini-batches of each that the fastest may be ahead

}  // namespace

RowSource::RowSource(Config config) : c_(std::move(config)) {
  for (std::size_t r = 0; r < c_.workers.size(); ++r) {
    reached_.push_back(static_cast<std::int64_t>(r));  // its first mini-batch
  }
  if (c_.batches > 0) {
    end_ = c_.batches;
  }
}

void RowSource::handle(Start, double now, Effects& fx) {
  go_on(now, fx);
}

void RowSource::handle(Advanced m, double now, Effects& fx) {
  reached_.at(static_cast<std::size_t>(m.replica)) = m.batches;
  go_on(now, fx);
}

void RowSource::handle(Halt, double now, Effects& fx) {
  end_ = std::min(allowed_, end_.value_or(allowed_));
  go_on(now, fx);
}

void RowSource::go_on(double now, Effects& fx) {
  if (looking_ || finished_) {
    return;
  }
  if (c_.seconds > 0 && now >= c_.seconds) {
    end_ = std::min(allowed_, end_.value_or(allowed_));
  }
  const std::int64_t done = *std::min_element(reached_.begin(), reached_.end());
  if (end_ && done >= *end_) {
    look(c_.evaluate && evaluated_ < *end_, fx);
    return;
  }
  if (c_.evaluate_every > 0 && done >= evaluated_ + c_.evaluate_every) {
    look(true, fx);
    return;
  }
  allow(fx);
}

void RowSource::allow(Effects& fx) {
  const auto replicas = static_cast<std::int64_t>(c_.workers.size());
  std::int64_t limit = *std::min_element(reached_.begin(), reached_.end()) + kAhead * replicas;
  if (c_.evaluate_every > 0) {
    limit = std::min(limit, evaluated_ + c_.evaluate_every);
  }
  if (end_) {
    limit = std::min(limit, *end_);
  }
  if (limit > allowed_) {
    allowed_ = limit;
    // In the order of their next mini-batches: on the virtual clock they begin in it.
    std::vector<std::size_t> order(c_.workers.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order,
                      [&](std::size_t a, std::size_t b) { return reached_[a] < reached_[b]; });
    for (const std::size_t worker : order) {
      fx.send(c_.workers[worker], Advance{allowed_});
    }
  }
}

/// Copies the buffer, and evaluates the copy where that is wanted. No worker writes meanwhile.
void RowSource::look(bool evaluate, Effects& fx) {
  looking_ = true;
  run(fx,
      {.lane = Lane::mark, .stamp = {.batch = allowed_}},
      [weights = c_.weights, data = c_.data, evaluate](Stream& stream) {
        RowsLooked looked{stream.allocate({weights->elements()}), {}};
        shared_copy(stream, *weights, looked.weights);
        if (evaluate) {
          SparseResult result;
          sparse_logistic_loss(looked.weights.span<float>(),
                               data->rows(Split::test),
                               0,
                               data->size(Split::test),
                               result);
          looked.score = {result.loss, result.right};
        }
        return looked;
      });
}

void RowSource::handle(Ran<RowsLooked> m, double now, Effects& fx) {
  looking_ = false;
  // Workers stand still at this step: it is the end, or the evaluation's.
  const std::int64_t step = allowed_;
  if (const auto& score = m.made.score) {
    const std::int64_t samples = c_.data->size(Split::test);
    const double accuracy = static_cast<double>(score->right) / static_cast<double>(samples);
    evaluated_ = step;
    fx.record(EvaluationRecord{.step = step,
                               .loss = score->loss / static_cast<double>(samples),
                               .accuracy = accuracy,
                               .has_accuracy = true,
                               .samples = samples});
    if (c_.target_accuracy > 0 && accuracy >= c_.target_accuracy) {
      end_ = step;
    }
  }
  if (end_ && step >= *end_) {
    Ending ending;
    ending.step = step;
    ending.weights = {{{.values = std::move(m.made.weights),
                        .step = step,
                        .version = static_cast<std::int64_t>(c_.weights->updates())}}};
    ending.buffers = {{}};
    finish(std::move(ending), fx);
    return;
  }
  go_on(now, fx);
}

void RowSource::handle(Down m, double, Effects& fx) {
  finish(ending_of(m), fx);
}

void RowSource::handle(Diverged m, double, Effects& fx) {
  finish(ending_of(m, c_.allow_divergence), fx);
}

void RowSource::finish(Ending ending, Effects& fx) {
  if (!std::exchange(finished_, true)) {
    fx.finish(std::move(ending));
  }
}

std::string RowSource::waits_for() const {
  if (finished_ || looking_) {
    return "";
  }
  return "the workers to come to mini-batch " + std::to_string(allowed_);
}

void RowSource::archive(Archive& a) {
  troupe::archive(a, *c_.weights);
  a(reached_, allowed_, end_, evaluated_, looking_, finished_);
}

}  // namespace troupe
