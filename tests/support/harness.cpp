#include "tests/support/harness.hpp"

#include "apps/topologies/cast.hpp"
#include "apps/topologies/hosts.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "kernels/update.hpp"
#include "messages/experiment.hpp"
#include "messages/told_once.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/system/threads.hpp"
#include "tests/support/catch.hpp"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace troupe::test {
namespace {

class Collector final : public RecordSink, public OrderSink {
 public:
  Collector(Outcome& outcome, const std::function<void(const RecordEntry&)>& record)
      : outcome_(outcome), record_(record) {}

  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (record_) {
      record_(entry);
    }
    if (!told_once_.is_news(entry)) {
      return std::nullopt;
    }
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      outcome_.applied.push_back(*applied);
    } else if (const auto* loss = std::get_if<LossRecord>(&entry)) {
      const double mean = to_host(loss->result)[0] / static_cast<double>(loss->rows);
      outcome_.losses[loss->stamp] = mean;
      if (!std::isfinite(mean)) {
        return Diverged{loss->stamp, mean};
      }
    } else if (const auto* evaluation = std::get_if<EvaluationRecord>(&entry)) {
      outcome_.evaluations.push_back(*evaluation);
    } else if (const auto* stage = std::get_if<StageRecord>(&entry)) {
      std::int64_t& most = outcome_.stashes_max[stage->stage];
      most = std::max(most, stage->stashes_max);
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      outcome_.busy.push_back(*busy);
      outcome_.seconds = std::max(outcome_.seconds, busy->end);
    } else if (const auto* server = std::get_if<ServerRecord>(&entry)) {
      outcome_.servers.push_back(*server);
    } else if (const auto* copy = std::get_if<LossOfCopy>(&entry)) {
      outcome_.lost_copies.push_back(*copy);
    } else if (const auto* lost = std::get_if<LossOfReplica>(&entry)) {
      outcome_.lost.push_back(*lost);
    } else if (const auto* returned = std::get_if<ReturnOfReplica>(&entry)) {
      outcome_.returned.push_back(*returned);
    }
    return std::nullopt;
  }

  void note(const Delivered& made) override {
    const auto add = [&](std::uint64_t value) {
      outcome_.order = mix(outcome_.order ^ value);
    };
    add(std::bit_cast<std::uint64_t>(made.now));
    add(made.to);
    add(made.message);
    add(static_cast<std::uint64_t>(made.stamp.batch));
    add(static_cast<std::uint64_t>(made.stamp.chunk * 1000 + made.stamp.micro_batch));
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) + 0x9e3779b97f4a7c15ull;
  }

  Outcome& outcome_;
  ToldOnce told_once_;
  const std::function<void(const RecordEntry&)>& record_;
};

class Failing final : public Machine {
 public:
  Failing(std::unique_ptr<Machine> inner, std::int64_t batch)
      : inner_(std::move(inner)), batch_(batch) {}

  void on(Message message, double now, Effects& effects) override {
    if (!dead_) {
      inner_->on(std::move(message), now, effects);
      for (const Run& run : effects.runs) {
        dead_ = dead_ || (run.work != Work::unmodelled && run.stamp.batch >= batch_);
      }
    }
    if (dead_) {
      throw std::runtime_error("a kernel failed");
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  std::int64_t batch_;
  bool dead_ = false;
};

void append(std::vector<float>& all, const Chunk& chunk, const Weights& weights) {
  for (const ParameterLayout::Entry& e : chunk.layout().entries) {
    for (const double value : to_host(weights[e.slice].values.view(e.offset, e.spec.shape))) {
      all.push_back(static_cast<float>(value));
    }
  }
}

}  // namespace

Options joined(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

BoxedExperiment experiment(std::string_view text, const std::vector<std::string>& assignments) {
  auto parsed = parse_experiment(text, "test");
  INFO((parsed ? std::string() : parsed.error().message));
  REQUIRE(parsed);
  proto::Experiment e = *parsed;
  if (e.replicas().rate_factor() == 0) {  // identities are told at the rate that is written
    e.mutable_replicas()->set_rate_factor(1);
  }
  for (const std::string& assignment : assignments) {
    if (assignment.ends_with('}')) {  // what is no key is said as a file says it
      REQUIRE(google::protobuf::TextFormat::Parser().MergeFromString(assignment, &e));
      continue;
    }
    const auto set = set_value(e, assignment);
    INFO(assignment << ": " << (set ? std::string() : set.error().message));
    REQUIRE(set);
  }
  const auto resolved = resolve(e);
  INFO((resolved ? std::string() : resolved.error().message));
  REQUIRE(resolved);
  return e;
}

Outcome run(const proto::Experiment& e, const HarnessOptions& options) {
  auto blueprint = make_blueprint(e);
  INFO((blueprint ? std::string() : blueprint.error().message));
  REQUIRE(blueprint);
  if (options.redesign) {
    options.redesign(*blueprint);
  }
  Cast cast = build_cast(*blueprint);
  if (options.recast) {
    options.recast(cast);
  }
  Outcome outcome;
  Collector collector(outcome, options.record);
  const TimeModel times(e.clock(),
                        blueprint->times,
                        e.seed(),
                        static_cast<std::int32_t>(e.replicas().count()),
                        blueprint->sizes);
  if (options.threads) {
    ThreadOptions thread_options;
    thread_options.modelled = e.clock().modelled() ? &times : nullptr;
    outcome.ending = run_on_threads(cast, collector, thread_options);
  } else {
    Agenda agenda(cast, times, collector, &collector);
    agenda.lose = options.lose;
    if (options.meddle) {
      agenda.lose = [&](ActorId to, const Message& message) {
        return options.meddle(agenda, to, message);
      };
    }
    Witness witness;
    std::optional<Faults> faults;
    if (any_faults(e.clock().faults())) {
      faults.emplace(make_faults(*blueprint, cast));
      agenda.inject_faults(*faults, witness);
    }
    try {
      outcome.ending = agenda.run();
    } catch (const LawBroken& broken) {
      outcome.broken = broken.what();
    }
    outcome.faults = faults ? faults->counts() : Faults::Counts{};
    outcome.seconds = std::max(outcome.seconds, agenda.now());
    outcome.delivered = agenda.delivered();
  }
  outcome.weights = flatten(*blueprint, outcome.ending.weights);
  return outcome;
}

std::unique_ptr<Machine> failing_at(std::unique_ptr<Machine> stage, std::int64_t batch) {
  return std::make_unique<Failing>(std::move(stage), batch);
}

Cast::Member& member(Cast& cast, std::string_view name) {
  const auto found = std::find_if(cast.members.begin(),
                                  cast.members.end(),
                                  [&](const Cast::Member& m) { return m.name == name; });
  REQUIRE(found != cast.members.end());
  return *found;
}

void check_accounts(const Outcome& outcome) {
  REQUIRE(!outcome.servers.empty());
  for (const ServerRecord& server : outcome.servers) {
    if (server.group >= 0) {
      continue;  // the run's updates are those of the server above
    }
    INFO("server " << server.chunk << "." << server.slice);
    std::int64_t version = -1;
    std::int64_t applied = 0;
    std::int64_t lag = 0;
    std::set<std::pair<std::int32_t, std::int64_t>> seen;
    for (const AppliedRecord& record : outcome.applied) {
      if (record.stamp.chunk != server.chunk || record.slice != server.slice ||
          record.applied_to >= server.version) {
        continue;
      }
      CHECK((record.applied_to == version || record.applied_to == version + 1));
      version = record.applied_to;
      ++applied;
      std::int64_t oldest = record.applied_to;
      for (const Read& read : record.reads) {
        oldest = std::min(oldest, read.forward_version);
      }
      lag += record.applied_to - oldest;
      CHECK(seen.insert({record.stamp.replica, record.stamp.batch}).second);
    }
    CHECK(version + 1 == server.version);
    CHECK(applied == server.applied);
    CHECK(lag == server.lag);
  }
}

std::int64_t servers_of_all(const Outcome& outcome) {
  return std::count_if(outcome.servers.begin(),
                       outcome.servers.end(),
                       [](const ServerRecord& server) { return server.group < 0; });
}

std::vector<float> flatten(const Blueprint& blueprint, const std::vector<Weights>& by_chunk) {
  std::vector<float> all;
  if (blueprint.grid && by_chunk.size() == blueprint.chunks.size()) {
    for (const ParameterValues& values : values_of(blueprint.chunks, by_chunk, {})) {
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  for (std::size_t c = 0; c < by_chunk.size(); ++c) {
    append(all, *blueprint.chunks[c], by_chunk[c]);
  }
  return all;
}

double Outcome::mean_loss(std::int64_t first, std::int64_t last) const {
  double sum = 0;
  int n = 0;
  for (const auto& [stamp, loss] : losses) {
    if (stamp.batch >= first && stamp.batch < last) {
      sum += loss;
      ++n;
    }
  }
  return n > 0 ? sum / n : std::numeric_limits<double>::quiet_NaN();
}

std::vector<float> delayed_sgd(const proto::Experiment& e, std::int64_t delay, float feedback) {
  auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  const Blueprint& b = *blueprint;
  const Chunk whole(b.network, {0}, 0);
  Stream stream(Device{});
  const auto weights_of = [](const std::vector<Tensor>& slices) {
    Weights w;
    for (const Tensor& t : slices) {
      w.push_back({.values = t});
    }
    return w;
  };
  std::deque<Weights> history{weights_of(whole.initial_slices(stream, e.seed()))};  // newest last
  const ChunkOptimizer optimizer(e, rate_of(b), 0, 0);
  const UpdateKernel kernel = *optimizer.scheme().method.kernel;
  double carried = 1;
  std::vector<Tensor> m;  // by slice
  std::vector<Tensor> v;
  std::vector<std::vector<float>> before;  // by slice: u of the step before
  const auto zeros = [&](const Weights& like) {
    std::vector<Tensor> all;
    for (const Slice& slice : like) {
      all.push_back(stream.allocate(slice.values.shape()));
      fill(stream, all.back(), 0);
    }
    return all;
  };
  std::vector<Tensor> buffers = whole.initial_buffers(stream);
  BatchOrder order(b.data->size(Split::train), b.sizes, e.seed());
  const auto M = static_cast<std::int64_t>(e.pipeline().micro_batches());
  for (std::int64_t batch = 0; batch < b.batches; ++batch) {
    const Weights& at =
        history[history.size() - 1 - static_cast<std::size_t>(std::min(batch, delay))];
    std::vector<Tensor> gradient;
    for (std::int64_t j = 0; j < M; ++j) {
      const auto indices = order.indices(batch, j, M);
      const auto [x, target] =
          gather_batch(stream, *b.data, Split::train, indices, order.epoch(batch));
      const Pass pass{.stream = stream,
                      .seed = e.seed(),
                      .first_sample = b.sizes.samples_before(batch) + j * x.shape()[0]};
      ForwardPass forward = whole.forward(pass, at, std::move(buffers), {{"x", x}}, target, true);
      buffers = std::move(forward.buffers);
      const InputGradient backward = whole.input_gradient(pass, at, std::move(forward.stash), {});
      gradient = whole
                     .weight_gradient(stream,
                                      backward.deltas,
                                      std::move(gradient),
                                      j + 1 == M ? static_cast<std::int32_t>(M) : 1)
                     .gradient;
    }
    const Weights& newest = history.back();
    const UpdateScalars scalars =
        optimizer.scalars(optimizer.numbers(batch + 1, optimizer.rate(batch)), carried);
    if (batch == 0 && moments(kernel) >= 1) {
      m = zeros(newest);
    }
    if (batch == 0 && moments(kernel) >= 2) {
      v = zeros(newest);
    }
    std::vector<Tensor> next;
    for (std::size_t i = 0; i < newest.size(); ++i) {
      const Tensor& w = newest[i].values;
      next.push_back(stream.allocate(w.shape()));
      update(stream,
             {.kernel = kernel,
              .scalars = scalars,
              .w = w,
              .g = gradient[i],
              .w_new = next.back(),
              .m = m.empty() ? Tensor{} : m[i],
              .v = v.empty() ? Tensor{} : v[i],
              .displacement = {},
              .displacement_decay = 0,
              .predictions = {}});
    }
    for (std::size_t i = 0; feedback > 0 && i < next.size(); ++i) {
      const auto was = newest[i].values.span<float>();
      const auto is = next[i].span<float>();
      std::vector<float> u(is.size());
      for (std::size_t j = 0; j < u.size(); ++j) {
        u[j] = was[j] - is[j];
        is[j] -= batch == 0 ? 0 : feedback * (u[j] - before[i][j]);
      }
      before.resize(next.size());
      before[i] = std::move(u);
    }
    history.push_back(weights_of(next));
    while (static_cast<std::int64_t>(history.size()) > delay + 2) {
      history.pop_front();
    }
  }
  std::vector<float> all;
  append(all, whole, history.back());
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

std::string versions(const Outcome& outcome, std::int64_t batch, bool backward) {
  std::map<std::int32_t, std::string> by_chunk;
  for (const AppliedRecord& record : outcome.applied) {
    if (record.stamp.batch != batch) {
      continue;
    }
    std::string& text = by_chunk[record.stamp.chunk];
    for (const Read& read : record.reads) {
      const Reach& reach = backward ? read.backward.reach : read.forward.reach;
      text += text.empty() ? "" : ",";
      text += std::to_string(backward ? read.backward_version : read.forward_version);
      if (reach.horizon != 0) {
        text += (reach.horizon > 0 ? "+" : "") + std::to_string(reach.horizon);
      }
    }
  }
  std::string all;
  for (const auto& [chunk, text] : by_chunk) {
    all += (all.empty() ? "" : " ") + text;
  }
  return all;
}

std::string tiny_task(std::string_view hidden, std::string_view activation) {
  return "model { mlp { hidden: [" + std::string(hidden) +
         "] activation: " + std::string(activation) +
         " } } data { batch_size: 16 teacher { inputs: 12 outputs: 5 hidden: 16 train: 512 test: "
         "64 } } "
         "optimizer { rule: momentum learning_rate: 0.05 momentum: 0.9 } stop { updates: 40 } "
         "record { evaluate: false order: false }";
}

}  // namespace troupe::test
