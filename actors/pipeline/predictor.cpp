#include "actors/pipeline/predictor.hpp"

#include "kernels/combine.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// -- what jobs work on, as functions of tensors

/// What the model sees as samples: those of h, or where these are texts their positions.
std::int64_t rows_of(const Predictor::Known& of, const Shape& reads, std::int64_t classes) {
  const std::int64_t width = reads.back();
  const std::int64_t rows = of.output.elements() / (reads.elements() / width * (width - classes));
  TROUPE_CHECK(rows > 0,
               "[Predictor] a lesson has no samples");  // of a checkpoint that nobody wrote
  return rows;
}

/// (rows, reads): h, whose last dimension is longer by `classes`: at each position the label as one of them.
Tensor model_input(Stream& stream,
                   const Predictor::Known& of,
                   const Shape& reads,
                   std::int64_t classes) {
  const std::int64_t rows = rows_of(of, reads, classes);
  const Shape shape = with_batch(rows, reads);
  if (classes == 0) {
    return of.output.reshape(shape);
  }
  const std::int64_t width = reads.back();
  const std::int64_t positions = reads.elements() / width;
  Tensor x = stream.allocate(shape);
  fill(stream, x, 0);
  const auto from = of.output.span<float>();
  const auto labels = of.labels.span<std::int32_t>();
  const auto to = x.span<float>();
  for (std::int64_t r = 0; r < rows * positions; ++r) {
    const auto row = to.begin() + r * width;
    std::copy_n(from.begin() + r * (width - classes), width - classes, row);
    row[width - classes + labels[static_cast<std::size_t>(r / positions)]] = 1;
  }
  return x;
}

/// PredictionRecord::result. Shapes: (B, n) both.
Tensor sums_of(Stream& stream, const Tensor& estimate, const Tensor& signal) {
  const std::int64_t rows = signal.shape()[0];
  const std::int64_t width = signal.shape()[1];
  const auto y = estimate.span<float>();
  const auto t = signal.span<float>();
  Tensor sums = stream.allocate({5}, DType::float64);
  const auto all = sums.span<double>();
  std::fill(all.begin(), all.end(), 0);
  for (std::int64_t j = 0; j < width; ++j) {
    double mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      mean += static_cast<double>(t[static_cast<std::size_t>(r * width + j)]);
    }
    mean /= static_cast<double>(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double e = y[static_cast<std::size_t>(r * width + j)];
      const double s = t[static_cast<std::size_t>(r * width + j)];
      all[0] += (e - s) * (e - s);
      all[1] += (s - mean) * (s - mean);
      all[2] += s * s;
      all[3] += e * e;
      all[4] += e * s;
    }
  }
  return sums;
}

}  // namespace

void Predictor::handle(Start, double, Effects& fx) {
  ask(fx);
}

void Predictor::handle(Credit, double, Effects& fx) {
  ++asked_;
  advance(fx);
}

void Predictor::handle(Activation m, double, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an empty activation");
  const NamedTensor& sent = m.bundle.front();
  const MicroBatch at = micro_batch_of(m.stamp);
  Known& known = known_[at];
  (sent.name == kLesson ? known.signal : known.output) = sent.tensor;
  if (m.bundle.size() > 1) {  // modules draw their inputs from buffers: labels travel with them
    known.labels = m.bundle.back().tensor;
  }
  offer(at);
  advance(fx);
}

void Predictor::handle(Labels m, double, Effects& fx) {
  known_[micro_batch_of(m.stamp)].labels = std::move(m.labels);
  advance(fx);
}

void Predictor::handle(ErrorSignal m, double, Effects& fx) {
  const MicroBatch at = micro_batch_of(m.stamp);
  const NamedTensor& sent = m.bundle.front();
  if (sent.name == kEstimate) {
    known_[at].estimate = sent.tensor;
  } else {
    known_[at].signal = sent.tensor;
    offer(at);
  }
  advance(fx);
}

void Predictor::handle(PullReply m, double, Effects& fx) {
  weights_ = std::move(m.weights);
  advance(fx);
}

bool Predictor::answerable(const Known& known) const {
  return !known.answered && known.output && !(of_input() && asked_ == 0) &&
         ((c_.classes == 0 && !c_.head) || known.labels) && (c_.lambda == 0 || known.signal);
}

void Predictor::advance(Effects& fx) {
  if (running_ || weights_.empty()) {
    return;
  }
  const auto next = std::find_if(
      known_.begin(), known_.end(), [&](const auto& one) { return answerable(one.second); });
  if (next != known_.end()) {
    at_ = next->first;
    c_.head ? judge(fx) : answer(fx);
  } else if (c_.freshest && slot_.fresh()) {
    Lesson lesson = slot_.draw().value;
    at_ = lesson.at;
    teach(std::move(lesson.of), fx);
  } else if (!known_.empty() && known_.begin()->second.answered &&
             teachable(known_.begin()->second)) {
    at_ = known_.begin()->first;
    teach(known_.at(at_), fx);
  }
}

/// A lesson that is complete goes to the slot. One about an input need not wait for the module, which may be far behind the
/// one that has sent it.
void Predictor::offer(const MicroBatch& at) {
  Known& known = known_.at(at);
  if (c_.freshest && known.output && teachable(known) && (known.answered || of_input())) {
    replaced_ += slot_.keep({at, known}, 1);
    known.signal = {};
    known.offered = true;
  }
  if (known.offered && known.answered) {
    known_.erase(at);
  }
}

Run Predictor::job(Work work) const {
  return {
      .work = work, .stage = c_.stage, .stamp = {c_.replica, c_.chunk, at_.batch, at_.micro_batch}};
}

void Predictor::answer(Effects& fx) {
  running_ = true;
  run(fx,
      job(of_input() ? Work::predict_input : Work::predict),
      [model = c_.model,
       weights = weights_,
       buffers = c_.buffers,
       of = known_.at(at_),
       reads = c_.reads,
       classes = c_.classes,
       lambda = c_.lambda,
       shape = c_.input,
       seed = c_.seed](Stream& stream) {
        const Pass pass{.stream = stream, .seed = seed};
        const Bundle input{{"x", model_input(stream, of, reads, classes)}};
        const Tensor y = model->forward(pass, weights, buffers, input, {}, false).y.front().tensor;
        ForwardPass made;
        if (shape.dimensions() > 0) {
          made.y.push_back({"x", y.reshape(with_batch(of.output.shape()[0], shape))});
          return made;
        }
        Tensor error = stream.allocate(y.shape());
        const auto rows = static_cast<double>(y.shape()[0]);
        std::vector<Term> terms{{(1 - lambda) / rows, y}};
        if (lambda > 0) {
          terms.push_back({lambda, of.signal.reshape(y.shape())});
        }
        combine(stream, terms, error);
        made.y.push_back({"x", error.reshape(of.output.shape())});
        return made;
      });
}

void Predictor::handle(Ran<ForwardPass> m, double, Effects& fx) {
  running_ = false;
  known_.at(at_).answered = true;
  offer(at_);
  if (of_input()) {
    --asked_;
    const Stamp stamp{c_.replica, c_.chunk, at_.batch, at_.micro_batch};
    if (c_.learner) {
      const Stamp before{c_.replica, c_.chunk - 1, at_.batch, at_.micro_batch};
      fx.send(*c_.learner, ErrorSignal{before, {{kEstimate, m.made.y.front().tensor}}});
    }
    fx.send_beside(c_.module, Activation{stamp, std::move(m.made.y)});
  } else {
    send_error(std::move(m.made.y), fx);
  }
  advance(fx);
}

void Predictor::send_error(Bundle error, Effects& fx) {
  fx.send_beside(c_.module,
                 ErrorSignal{{c_.replica, c_.chunk, at_.batch, at_.micro_batch}, std::move(error)});
}

/// Forward and backward of a head: the gradient by h is the answer, that by the weights the lesson.
void Predictor::judge(Effects& fx) {
  running_ = true;
  const bool last = parts_ + 1 == c_.micro_batches;
  run(fx,
      job(Work::predict),
      [model = c_.model,
       weights = weights_,
       buffers = c_.buffers,
       of = known_.at(at_),
       reads = c_.reads,
       seed = c_.seed,
       gradient = std::move(gradient_),
       divide_by = last ? c_.micro_batches : 1](Stream& stream) mutable {
        const Pass pass{.stream = stream, .seed = seed};
        const Bundle input{{"x", model_input(stream, of, reads, 0)}, {kLabelsEntry, of.labels}};
        ForwardPass forward =
            model->forward(pass, weights, std::move(buffers), input, of.labels, true);
        InputGradient half = model->input_gradient(pass, weights, std::move(forward.stash), {});
        BackwardPass made;
        made.dx.push_back({"x", half.dx.front().tensor.reshape(of.output.shape())});
        made.gradient =
            model->weight_gradient(stream, half.deltas, std::move(gradient), divide_by).gradient;
        return made;
      });
  gradient_.clear();
}

/// The forward again, at the weights of now: so the gradient is theirs, and no stash waits for a lesson
/// that may never come.
void Predictor::teach(Known of, Effects& fx) {
  running_ = true;
  if (c_.at_estimate) {
    of.output = std::exchange(of.estimate, {});
  }
  const bool last = parts_ + 1 == c_.micro_batches;
  run(fx,
      job(of_input() ? Work::teach_input : Work::teach),
      [model = c_.model,
       weights = weights_,
       buffers = c_.buffers,
       of = std::move(of),
       reads = c_.reads,
       classes = c_.classes,
       of_input = of_input(),
       seed = c_.seed,
       gradient = std::move(gradient_),
       divide_by = last ? c_.micro_batches : 1](Stream& stream) mutable {
        const Pass pass{.stream = stream, .seed = seed};
        const std::int64_t count = rows_of(of, reads, classes);
        const auto rows = static_cast<double>(count);
        const Tensor signal = stream.allocate({count, of.signal.elements() / count});
        combine(stream, {{of_input ? 1 : rows, of.signal.reshape(signal.shape())}}, signal);
        const Bundle input{{"x", model_input(stream, of, reads, classes)}};
        ForwardPass forward =
            model->forward(pass, weights, std::move(buffers), input, signal, true);
        // Its loss leaves (estimate - signal) / B behind.
        const Tensor estimate = stream.allocate(signal.shape());
        const Tensor error = forward.stash.back().front().reshape(signal.shape());
        combine(stream, {{rows, error}, {1, signal}}, estimate);
        BackwardPass made;
        made.dx.push_back({"sums", sums_of(stream, estimate, signal)});
        const InputGradient half =
            model->input_gradient(pass, weights, std::move(forward.stash), {});
        made.gradient =
            model->weight_gradient(stream, half.deltas, std::move(gradient), divide_by).gradient;
        return made;
      });
  gradient_.clear();
}

void Predictor::handle(Ran<BackwardPass> m, double now, Effects& fx) {
  running_ = false;
  if (!c_.freshest) {
    known_.erase(at_);
  }
  if (c_.head) {
    send_error(std::move(m.made.dx), fx);
  } else {
    fx.record(PredictionRecord{{c_.replica, c_.chunk, at_.batch, at_.micro_batch},
                               m.made.dx.front().tensor,
                               of_input() ? PredictionOf::input : PredictionOf::error_signal,
                               std::exchange(replaced_, 0)});
  }
  count(std::move(m.made.gradient), now, fx);
  advance(fx);
}

/// A lesson more; the last one of a mini-batch makes an update.
void Predictor::count(std::vector<Tensor> gradient, double now, Effects& fx) {
  gradient_ = std::move(gradient);
  if (++parts_ < c_.micro_batches) {
    return;
  }
  parts_ = 0;
  weights_.clear();  // the shard has the only handle of them: the update may be made in place
  fx.send(c_.shard,
          Push{.from = c_.self,
               .stamp = {c_.replica, c_.chunk, updates_, 0},
               .sequence = ++pushes_,
               .read_time = now,
               .gradient = std::exchange(gradient_, {}),
               .reads = {},
               .forward = {}});
  ++updates_;
  ask(fx);
}

void Predictor::ask(Effects& fx) {
  fx.send(c_.shard,
          Pull{.from = c_.self,
               .request = static_cast<std::uint64_t>(updates_),
               .view = {updates_, {}}});
}

std::string Predictor::waits_for() const {
  if (running_) {
    return "its own kernel";
  }
  if (weights_.empty()) {
    return "its shard";
  }
  return known_.empty() ? ""
         : of_input()   ? "the output of the module before, or its module, which has an input"
                        : "labels, or what the next module makes of its module's output";
}

void Predictor::archive(Archive& a) {
  a(known_,
    slot_,
    replaced_,
    weights_,
    gradient_,
    parts_,
    updates_,
    pushes_,
    at_,
    asked_,
    running_);
}

}  // namespace troupe
