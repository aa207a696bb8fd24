#include "actors/casts/sparse/row_worker.hpp"

#include "messages/archive.hpp"

#include <utility>

namespace troupe {

RowWorker::RowWorker(Config config)
    : c_(std::move(config)),
      order_(c_.data->size(Split::train), c_.batch_size, c_.seed),
      next_(c_.replica) {}

void RowWorker::handle(Advance m, double now, Effects& fx) {
  allowed_ = m.batches;
  go_on(now, fx);
}

void RowWorker::go_on(double now, Effects& fx) {
  if (running_ || next_ >= allowed_) {
    return;
  }
  const auto indices = order_.indices(next_, 0, 1);
  running_ = true;
  started_ = now;
  run(fx,
      {.work = Work::forward, .stamp = {.replica = c_.replica, .batch = next_}},
      [weights = c_.weights,
       data = c_.data,
       rows = std::vector<std::int64_t>(indices.begin(), indices.end()),
       steps = SparseSteps{.writer = c_.replica,
                           .rate = static_cast<float>(c_.rate.at(next_)),
                           .add = c_.add}](Stream& stream) {
        SparseResult result;
        sparse_logistic_steps(*weights,
                              {.rows = data->rows(Split::train),
                               .order = rows,
                               .first = 0,
                               .count = static_cast<std::int64_t>(rows.size())},
                              steps,
                              result);
        RowsDone done{.result = stream.allocate({2}, DType::float64),
                      .updates = static_cast<std::int64_t>(weights->updates()),
                      .staleness = {result.staleness.begin(), result.staleness.end()}};
        done.result.span<double>()[0] = result.loss;
        done.result.span<double>()[1] = static_cast<double>(result.right);
        return done;
      });
}

void RowWorker::handle(Ran<RowsDone> m, double now, Effects& fx) {
  const Stamp stamp{.replica = c_.replica, .batch = next_};
  fx.record(LossRecord{.stamp = stamp,
                       .samples = c_.batch_size,
                       .rows = c_.batch_size,
                       .result = std::move(m.made.result)});
  AppliedRecord applied{.stamp = stamp,
                        .applied_to = m.made.updates,
                        .rate = c_.rate.at(next_),
                        .seconds = now - started_,
                        .reads = {}};
  for (const std::int64_t staleness : m.made.staleness) {
    const std::int64_t read = applied.applied_to - staleness;
    applied.reads.push_back({.micro_batch = static_cast<std::int32_t>(applied.reads.size()),
                             .forward = {read, {}},
                             .backward = {read, {}},
                             .forward_version = read,
                             .backward_version = read});
  }
  fx.record(std::move(applied));
  running_ = false;
  next_ += c_.replicas;
  fx.send(c_.source, Advanced{c_.replica, next_});
  go_on(now, fx);
}

std::string RowWorker::waits_for() const {
  return running_ ? "its own rows" : "leave to begin mini-batch " + std::to_string(next_);
}

void RowWorker::archive(Archive& a) {
  a(next_, allowed_, running_, started_);
}

}  // namespace troupe
