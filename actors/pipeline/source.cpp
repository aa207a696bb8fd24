#include "actors/pipeline/source.hpp"

#include "kernels/stream.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/data/batch.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int32_t kCreditsMax = 1000;  // beyond what was sent: of those that have come back
constexpr std::int64_t kMarksInFlight = 4;
constexpr std::int64_t kMarksBehind = 2;  // evaluations that training may run ahead of
constexpr std::int64_t kMarkBatch = 500;  // samples of a Mark's batch; the last has the rest
constexpr std::int64_t kMarkLabels =
    2048;  // where samples have many: the head's output is labels * classes

GatheredBatch gather(Stream& stream,
                     const Dataset& data,
                     Split split,
                     std::span<const std::int64_t> indices,
                     std::int64_t epoch) {
  Batch batch = gather_batch(stream, data, split, indices, epoch);
  return {std::move(batch.x), std::move(batch.target)};
}

/// `next`: the micro-batch, counted through.
Ref<StageRole> who_has(const std::vector<Ref<StageRole>>& copies, std::int64_t next) {
  return copies[static_cast<std::size_t>(next) % copies.size()];
}

}  // namespace

Source::Source(Config config)
    : c_(std::move(config)),
      order_(c_.data->contiguous()               ? BatchOrder(c_.sizes)
             : c_.samples.empty() && c_.shuffles ? BatchOrder(c_.sizes, c_.shuffles)
             : c_.samples.empty()
                 ? BatchOrder(c_.data->size(Split::train), c_.sizes, c_.seed)
                 : BatchOrder(
                       static_cast<std::int64_t>(c_.samples.size()), c_.sizes.size(0), c_.seed)),
      credits_(c_.prefetch),
      taken_(1 + c_.input_predictors.size()) {}

std::int64_t Source::place(std::int64_t batch) const {
  const std::int64_t own = first_ + batch;
  return c_.samples.empty() ? c_.passed + own * c_.replicas + c_.replica
                            : c_.passed / c_.replicas + own;
}

std::int64_t Source::passed() const {
  const std::int64_t own = first_ + admitted();
  return admitted() == 0 ? c_.passed : c_.passed + (own - 1) * c_.replicas + c_.replica + 1;
}

void Source::handle(Start, double now, Effects& fx) {
  if (c_.batches > 0) {
    end(c_.batches, fx);
  }
  admit(now, fx);
}

/// In place of Start.
void Source::handle(Rejoin m, double now, Effects& fx) {
  first_ = m.batch;
  admit(now, fx);
}

/// Micro-batches, by who decides what is admitted.
std::int64_t Source::taken() const {
  const auto [slowest, fastest] = std::minmax_element(taken_.begin(), taken_.end());
  return c_.by_slowest ? *slowest : *fastest;
}

void Source::handle(Credit m, double now, Effects& fx) {
  const std::int64_t before = taken();
  const auto taker = static_cast<std::size_t>(taken_.size() == 1 ? 0 : m.chunk);
  TROUPE_BELIEVE(taker < taken_.size(), "credit of chunk ", m.chunk, ", which does not exist");
  TROUPE_BELIEVE(credits_ <= c_.prefetch + kCreditsMax, "credit for what was never sent");
  ++taken_[taker];
  credits_ += static_cast<std::int32_t>(taken() - before);
  admit(now, fx);
}

void Source::handle(MarkDue m, double, Effects& fx) {
  due({m.step, m.own});
  mark(fx);
}

void Source::handle(Halt, double now, Effects& fx) {
  halted_ = true;
  if (c_.buffered) {
    halt_stages(fx);
  }
  admit(now, fx);
}

/// For an end that was not known: what they have begun by now says where it is.
void Source::halt_stages(Effects& fx) {
  if (!std::exchange(stages_halted_, true)) {
    for (const auto& stage : c_.stages) {
      fx.send(stage, Halt{});
    }
  }
}

void Source::handle(Halted m, double, Effects& fx) {
  TROUPE_BELIEVE(stages_halted_, "where a stage stands, which nobody has asked");
  begun_[m.chunk] = m.step;
  end_where_stages_stand(fx);
}

void Source::end_where_stages_stand(Effects& fx) {
  // What is being gathered will still be sent.
  if (!stages_halted_ || begun_.size() < c_.stages.size() || gathering_) {
    return;
  }
  std::int64_t batches = admitted();
  for (const auto& [chunk, begun] : begun_) {
    batches = std::max(batches, begun);
  }
  begun_.clear();
  end(batches, fx);
}

void Source::admit(double now, Effects& fx) {
  if (gathering_ || credits_ == 0 || stages_halted_) {
    return;
  }
  const std::int64_t batch = next_ / c_.micro_batches;
  const auto part = static_cast<std::int32_t>(next_ % c_.micro_batches);
  if (c_.served) {
    if (c_.seconds > 0 && now >= c_.seconds && !std::exchange(halted_, true)) {
      fx.send(c_.director, Halt{});  // it finds an end that all servers can reach
    }
  } else if (part == 0 && (!end_ || batch < *end_) &&
             (halted_ || (c_.seconds > 0 && now >= c_.seconds))) {
    if (c_.buffered) {
      halt_stages(fx);
      return;
    }
    end(batch, fx);  // earlier than announced, where an end was: nobody has been given anything of
                     // `batch` yet
  }
  if (end_ && batch >= *end_) {
    return;
  }
  // Each Mark to come pins a version, so training waits where evaluation falls behind; but not before the mini-batches
  // that a stage runs ahead have been admitted, or the Mark's own step would never come.
  const std::int64_t ahead = c_.evaluation.every > 0 ? 1 + c_.delay_max / c_.evaluation.every : 0;
  if (part == 0 && static_cast<std::int64_t>(due_.size()) > kMarksBehind + ahead) {
    return;
  }
  gathering_ = true;
  --credits_;
  gather_samples(batch, part, fx);
}

void Source::gather_samples(std::int64_t batch, std::int32_t part, Effects& fx) {
  const std::int64_t place = this->place(batch);
  const auto chosen = order_.indices(place, part, c_.micro_batches);
  std::vector<std::int64_t> indices(chosen.begin(), chosen.end());
  if (!c_.samples.empty()) {
    for (std::int64_t& index : indices) {
      index = c_.samples[static_cast<std::size_t>(index)];
    }
  }
  run(fx,
      {.stamp = {c_.replica, 0, first_ + batch, part}},
      [data = c_.data, indices = std::move(indices), epoch = order_.epoch(place)](Stream& stream) {
        return gather(stream, *data, Split::train, indices, epoch);
      });
}

void Source::handle(Ran<GatheredBatch> m, double now, Effects& fx) {
  if (m.lane == Lane::mark) {
    mark_gathering_ = false;
    if (mark_->next < 0) {  // it was begun anew meanwhile
      mark_->next = 0;
      mark(fx);
      return;
    }
    send_mark_batch(std::move(m.made), fx);
    ++mark_->next;
    mark(fx);
    return;
  }
  const std::int64_t batch = next_ / c_.micro_batches;
  const auto part = static_cast<std::int32_t>(next_ % c_.micro_batches);
  const Stamp stamp{c_.replica, 0, batch, part};
  for (std::size_t c = 0; c < c_.labelled.size(); ++c) {
    fx.send(c_.labelled[c],
            Labels{{c_.replica, static_cast<std::int32_t>(c), batch, part}, m.made.target});
  }
  for (std::size_t t = 0; t < c_.heads.size() && !c_.buffered; ++t) {
    const std::int32_t head = c_.head_chunk + static_cast<std::int32_t>(t);
    fx.send(who_has(c_.heads[t], next_), Labels{{c_.replica, head, batch, part}, m.made.target});
  }
  for (std::size_t i = 0; i < c_.input_predictors.size(); ++i) {
    const Stamp behind{c_.replica, static_cast<std::int32_t>(i) + 1, batch, part};
    fx.send_beside(c_.input_predictors[i], Activation{behind, {{"x", m.made.x}}});
  }
  for (Stamp to = stamp; const auto& first : c_.first) {
    fx.send(who_has(first, next_), Activation{to, {{"x", m.made.x}}});
    ++to.chunk;
  }
  gathering_ = false;
  ++next_;
  if (next_ % c_.micro_batches == 0 && !c_.served) {
    const std::int64_t admitted = batch + 1;
    const bool last = end_ && admitted == *end_;
    if (c_.evaluation.due(admitted) && !last) {
      due({admitted});
    }
    if (last && c_.evaluate) {
      due({admitted});
    }
    mark(fx);
  }
  end_where_stages_stand(fx);
  admit(now, fx);
}

void Source::end(std::int64_t batches, Effects& fx) {
  end_ = batches;
  for (const auto& stage : c_.stages) {
    fx.send(stage, End{batches});
  }
  for (const auto& shard : c_.shards) {
    fx.send(shard, End{batches});
  }
  fx.send(c_.director, End{batches});
  if ((batches * c_.micro_batches <= next_ || stages_halted_) && c_.evaluate) {
    due({batches});  // all of it has been admitted already, or never will be
    mark(fx);
  }
}

void Source::due(DueMark mark) {
  const bool known =
      (mark_ && mark_->due == mark) || std::find(due_.begin(), due_.end(), mark) != due_.end();
  if (!known) {
    due_.push_back(mark);
  }
}

/// A sample for each part at least.
std::int64_t Source::mark_batch() const {
  return std::clamp<std::int64_t>(kMarkLabels / c_.data->labels_per_sample(), parts(), kMarkBatch);
}

/// The last one has the rest, where it need not have a sample for each part.
std::int64_t Source::mark_batches() const {
  const std::int64_t samples = c_.data->size(Split::test);
  return parts() > 1 ? std::max<std::int64_t>(1, samples / mark_batch())
                     : (samples + mark_batch() - 1) / mark_batch();
}

void Source::send_mark_batch(GatheredBatch made, Effects& fx) const {
  std::int32_t chunk = 0;
  for (const auto& first : c_.first) {
    fx.send(first.front(),
            MarkBatch{.step = mark_->due.step,
                      .index = mark_->next,
                      .chunk = chunk++,
                      .bundle = {{"x", made.x}},
                      .labels = made.target,
                      .own = mark_->due.own});
  }
}

void Source::mark(Effects& fx) {
  if (!mark_ && !due_.empty()) {
    mark_ = Mark{.due = due_.front()};
    due_.pop_front();
  }
  if (!mark_ || mark_gathering_ || mark_->next == mark_batches() ||
      mark_->next - std::ssize(mark_->results) / parts() >= kMarksInFlight) {
    return;
  }
  const std::int64_t first = mark_->next * mark_batch();
  const std::int64_t last =
      mark_->next + 1 == mark_batches() ? c_.data->size(Split::test) : first + mark_batch();
  mark_gathering_ = true;
  run(fx,
      {.lane = Lane::mark, .stamp = {.batch = mark_->due.step}},
      [data = c_.data, first, last](Stream& stream) {
        std::vector<std::int64_t> indices(static_cast<std::size_t>(last - first));
        std::iota(indices.begin(), indices.end(), first);
        return gather(stream, *data, Split::test, indices, 0);
      });
}

void Source::handle(MarkResult m, double now, Effects& fx) {
  TROUPE_BELIEVE(mark_ && m.step == mark_->due.step && m.index < mark_batches() && m.part < parts(),
                 "a result of a Mark that is not open: step ",
                 m.step);
  mark_->results[{m.index, m.part}] = std::move(m.result);
  if (std::ssize(mark_->results) == mark_batches() * parts()) {
    conclude_mark(fx);
  }
  mark(fx);
  admit(now, fx);
}

void Source::conclude_mark(Effects& fx) {
  double loss = 0;
  double right = 0;
  for (const auto& [batch, result] :
       mark_->results) {  // in the order of the batches, whatever order they came in
    const std::vector<double> values = to_host(result);
    loss += values[0];
    right += values[1];
  }
  const std::int64_t samples = c_.data->size(Split::test);
  const auto labels = static_cast<double>(samples * c_.data->labels_per_sample());
  const bool classes = c_.data->classes() > 0;
  fx.send(c_.director,
          MarkDone{.replica = c_.replica,
                   .step = mark_->due.step,
                   .loss = loss / labels,
                   .accuracy = right / labels,
                   .has_accuracy = classes,
                   .samples = samples,
                   .last = end_ && mark_->due.step == *end_,
                   .own = mark_->due.own});
  if (mark_->due.own) {  // the director releases what is pinned, of the others alone
    for (const auto& stage : c_.stages) {
      fx.send(stage, Release{.step = mark_->due.step});
    }
  }
  mark_.reset();
}

std::string Source::waits_for() const {
  if (mark_ && !mark_gathering_) {
    return "results of the evaluation at step " + std::to_string(mark_->due.step);
  }
  if (end_ && next_ >= *end_ * c_.micro_batches) {
    return "";
  }
  return gathering_       ? "its own data"
         : stages_halted_ ? "the stages to halt"
                          : "a credit of the first stage";
}

void Source::archive(Archive& a) {
  const std::size_t takers = taken_.size();
  a(first_,
    next_,
    credits_,
    taken_,
    gathering_,
    halted_,
    stages_halted_,
    begun_,
    end_,
    due_,
    mark_,
    mark_gathering_);
  expect_archived(taken_.size() == takers, "other modules give credit than in this run");
  expect_archived(credits_ >= 0 && credits_ <= c_.prefetch + kCreditsMax && next_ >= 0,
                  "the state has a credit that nobody has given");
  expect_archived(!end_ || (*end_ >= 0 && (c_.batches == 0 || *end_ <= c_.batches)),
                  "the state has an end that the run does not come to");
}

}  // namespace troupe
