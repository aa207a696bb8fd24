// Every figure is taken in one run and set against a bound measured in the same run: FLOPs against
// the matrix product's own rate, bytes against a triad, actors against a bare loop over the same
// kernels. Where two things are compared they take turns, and the median of the rounds counts.
#include "apps/bench.hpp"

#include "apps/bench/cut.hpp"
#include "apps/bench/gpu.hpp"
#include "apps/bench/hogwild.hpp"
#include "apps/bench/peers.hpp"
#include "apps/bench/replicas.hpp"
#include "apps/bench/training.hpp"
#include "apps/bench/watch.hpp"
#include "apps/text.hpp"
#include "apps/topologies/pipeline.hpp"
#include "kernels/update.hpp"
#include "messages/experiment.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <ostream>
#include <thread>

namespace troupe {
namespace {

std::string training(const std::string& model,
                     int stages,
                     std::int64_t updates,
                     const std::string& more = "") {
  return "model { " + model +
         " } data { batch_size: 128 glyphs { limit: 2048 test_limit: 10 } } "
         "optimizer { rule: momentum learning_rate: 0.01 } pipeline { stages: " +
         std::to_string(stages) + " " + more + " } stop { updates: " + std::to_string(updates) +
         " } record { evaluate: false order: false gap_every: 0 }";
}

/// A bare loop over `model` on samples as training() has them.
BareLoop loop_of(const char* model) {
  return BareLoop({.model = model, .sample = {28, 28, 1}});
}

const char* const kMlp = "mlp { hidden: [1024, 1024] }";

/// Samples a second of the MLP as one stage actor, and of a bare loop over the same kernels, in
/// turn.
Row actors_against_loop(double seconds) {
  BareLoop loop = loop_of(kMlp);
  loop.steps(3);
  const double once = seconds_of([&] { loop.steps(10); }) / 10;
  const auto updates = std::max<std::int64_t>(20, static_cast<std::int64_t>(seconds / 8 / once));
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const double bare = seconds_of([&] { loop.steps(updates); }) / static_cast<double>(updates);
    Blueprint b = bench_blueprint(training(kMlp, 1, updates + 10));
    Cast cast = build_cast(b);
    Watch watch;
    run_on_threads(cast, watch, {});
    const double actors = watch.per_batch(9, updates + 9);
    ratios.push_back(bare / actors);
    rates.push_back(128 / actors);
  }
  return {"actors against a bare loop",
          number("%.0f samples/s", median(rates)),
          "the same kernels in a loop, MLP batch 128",
          number("%.1f %%", 100 * median(ratios)),
          ">= 97 %"};
}

// -- the hop: two machines that hand a tensor to and fro
// ---------------------------------------------------

/// Sends activations to its partner: one at a time (it waits for each to come back), or `window`
/// ahead with a credit each 64.
class Thrower final : public Actor<Thrower, StageRole> {
 public:
  Thrower(Ref<StageRole> partner,
          Ref<DirectorRole> director,
          std::int64_t messages,
          std::int64_t window,
          Tensor tensor)
      : partner_(partner),
        director_(director),
        left_(messages),
        to_come_(window > 0 ? messages / 64 : messages),
        window_(window),
        tensor_(std::move(tensor)) {}

  void handle(Start, double now, Effects& fx) {
    start_ = now;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, window_); ++i) {
      throw_one(fx);
    }
  }

  void handle(Activation, double now, Effects& fx) {
    if (--to_come_ == 0) {
      fx.send(director_, MarkDone{.step = 0, .accuracy = now - start_, .last = true});
      return;
    }
    for (std::int64_t i = 0; i < (window_ > 0 ? 64 : 1); ++i) {
      throw_one(fx);
    }
  }

  void handle(Labels, double, Effects&) {}

  void handle(ErrorSignal, double, Effects&) {}

  void handle(End, double, Effects&) {}

  void handle(PullReply, double, Effects&) {}

  void handle(MarkBatch, double, Effects&) {}

  void handle(Release, double, Effects&) {}

  void handle(Ran, double, Effects&) {}

  std::string waits_for() const override { return "its partner"; }

 private:
  void throw_one(Effects& fx) {
    if (left_ > 0) {
      --left_;
      fx.send(partner_, Activation{{}, {{"x", tensor_}}});
    }
  }

  Ref<StageRole> partner_;
  Ref<DirectorRole> director_;
  std::int64_t left_;
  std::int64_t to_come_;
  std::int64_t window_;
  Tensor tensor_;
  double start_ = 0;
};

class Catcher final : public Actor<Catcher, StageRole> {
 public:
  Catcher(Ref<StageRole> partner, bool streamed) : partner_(partner), streamed_(streamed) {}

  void handle(Start, double, Effects&) {}

  void handle(Activation m, double, Effects& fx) {
    if (!streamed_ || ++seen_ % 64 == 0) {
      fx.send(partner_, std::move(m));
    }
  }

  void handle(Labels, double, Effects&) {}

  void handle(ErrorSignal, double, Effects&) {}

  void handle(End, double, Effects&) {}

  void handle(PullReply, double, Effects&) {}

  void handle(MarkBatch, double, Effects&) {}

  void handle(Release, double, Effects&) {}

  void handle(Ran, double, Effects&) {}

  std::string waits_for() const override { return "its partner"; }

 private:
  Ref<StageRole> partner_;
  bool streamed_;
  std::int64_t seen_ = 0;
};

/// Ends the run at the first MarkDone and keeps what it says.
class Judge final : public Actor<Judge, DirectorRole> {
 public:
  explicit Judge(double& seconds) : seconds_(seconds) {}

  void handle(MarkDone m, double, Effects& fx) {
    seconds_ = m.accuracy;
    fx.finish({});
  }

  void handle(Down, double, Effects& fx) { fx.finish({}); }

  template <class M>
  void handle(M&&, double, Effects&) {}

  std::string waits_for() const override { return "the end"; }

 private:
  double& seconds_;
};

/// Seconds of one message between two detached actors.
double hop(std::int64_t messages, std::int64_t window) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({128, 1024});
  double seconds = 0;
  Cast cast;
  const auto add = [&](const char* name, std::unique_ptr<Machine> machine) {
    cast.members.push_back({name, std::move(machine), static_cast<int>(cast.members.size()), {}});
  };
  add("thrower",
      std::make_unique<Thrower>(Ref<StageRole>{1}, Ref<DirectorRole>{2}, messages, window, tensor));
  add("catcher", std::make_unique<Catcher>(Ref<StageRole>{0}, window > 0));
  add("judge", std::make_unique<Judge>(seconds));
  cast.threads = 3;
  cast.director = {2};
  cast.starting = {0};
  Watch watch;
  run_on_threads(cast, watch, {});
  return seconds / static_cast<double>(window > 0 ? messages : 2 * messages);
}

/// Seconds of one hand-over between two bare threads that sleep until it comes: what the system
/// asks for waking a thread.
double bare_hop(std::int64_t rounds) {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t at = 0;  // even: the first thread's turn
  const auto take_turns = [&](std::int64_t parity) {
    for (std::int64_t i = 0; i < rounds; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return at % 2 == parity; });
      ++at;
      changed.notify_one();
    }
  };
  return seconds_of([&] {
           std::thread other(take_turns, 1);
           take_turns(0);
           other.join();
         }) /
         static_cast<double>(2 * rounds);
}

Rows hops(double seconds) {
  const auto messages = static_cast<std::int64_t>(64 * std::ceil(seconds * 4000));
  std::vector<double> streamed;
  std::vector<double> ping_pong;
  std::vector<double> of_bare;
  for (int round = 0; round < 3; ++round) {
    streamed.push_back(hop(messages, 256));
    ping_pong.push_back(hop(messages / 32, 0));
    of_bare.push_back(ping_pong.back() / bare_hop(messages / 32));
  }
  return {{"handle between two actors, streamed",
           number("%.2f us a message", 1e6 * median(streamed)),
           "",
           "",
           "<= 1 us"},
          {"handle between two actors, ping-pong",
           number("%.2f us a message", 1e6 * median(ping_pong)),
           "two bare threads that wake each other",
           number("%.2f x", median(of_bare)),
           "<= 15 us"}};
}

/// Two stages on two cores: what the slowest stage's own work leaves of the time.
Row two_stages(double seconds) {
  const char* model = "mlp { hidden: [512, 512, 512, 512, 512, 512] }";
  BareLoop loop = loop_of(model);
  loop.steps(3);
  const double once = seconds_of([&] { loop.steps(10); }) / 10;
  const auto updates = std::max<std::int64_t>(30, static_cast<std::int64_t>(seconds / 4 / once));
  std::vector<double> ratios;
  std::vector<double> speed_ups;
  for (int round = 0; round < 5; ++round) {
    const double bare = seconds_of([&] { loop.steps(updates); }) / static_cast<double>(updates);
    Blueprint b = bench_blueprint(
        training(model, 2, updates + 20, "schedule { async_one_f_one_b {} } weights { stash {} }"));
    Cast cast = build_cast(b);
    std::vector<std::vector<ActorId>> by_stage(2);
    for (std::size_t id = 0; id < cast.members.size(); ++id) {
      if (cast.members[id].thread >= 2) {
        by_stage[static_cast<std::size_t>(cast.members[id].thread - 2)].push_back(
            static_cast<ActorId>(id));
      }
    }
    Watch watch;
    run_on_threads(cast, watch, {});
    const double from = watch.at(15);
    const double to = watch.at(updates + 15);
    double slowest = 0;
    double work = 0;
    for (const auto& actors : by_stage) {
      double busy = 0;
      for (const double s : watch.busy(actors, from, to)) {
        busy += s;
      }
      slowest = std::max(slowest, busy);
      work += busy;
    }
    // Throughput in units of work over time, against total work / slowest stage.
    ratios.push_back((work / (to - from)) / (work / slowest));
    speed_ups.push_back(bare / (to - from) * static_cast<double>(updates));
  }
  return {"two stages on two cores",
          number("%.2f x one core's bare loop", median(speed_ups)),
          "total work / slowest stage",
          number("%.1f %%", 100 * median(ratios)),
          ">= 90 %"};
}

/// a = b + s c, as fast as the compiler makes it: the machine's own bandwidth.
__attribute__((optimize("O3"), noinline)) void triad(float* __restrict a,
                                                     const float* __restrict b,
                                                     const float* __restrict c,
                                                     std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    a[i] = b[i] + 1e-9f * c[i];
  }
}

Row optimizer_bandwidth(double seconds) {
  const std::int64_t n = 16 << 20;  // 64 MiB a tensor: far beyond every cache
  Stream stream(Device{});
  std::vector<Tensor> t;
  for (int i = 0; i < 3; ++i) {
    t.push_back(stream.allocate({n}));
    fill(stream, t.back(), 0.5);
  }
  const auto of_triad_loop = [&] {
    triad(t[0].data<float>(), t[1].data<float>(), t[2].data<float>(), n);
  };
  UpdateArguments arguments{.kernel = UpdateKernel::momentum,
                            .scalars = {.rate = 1e-6f, .gamma = 0.9f},
                            .w = t[0],
                            .g = t[1],
                            .w_new = t[0],
                            .m = t[2],
                            .v = {},
                            .displacement = {},
                            .displacement_decay = 0,
                            .predictions = {}};
  std::vector<double> ratios;
  std::vector<double> rates;
  const int rounds = std::max(3, static_cast<int>(seconds * 10));
  for (int round = 0; round < rounds; ++round) {
    const double of_triad = 12.0 * static_cast<double>(n) / seconds_of(of_triad_loop);
    rates.push_back(20.0 * static_cast<double>(n) / seconds_of([&] { update(stream, arguments); }));
    ratios.push_back(rates.back() / of_triad);
  }
  return {"optimizer step (momentum, 20 B a parameter)",
          number("%.1f GB/s", median(rates) / 1e9),
          "triad (12 B an element) in turn",
          number("%.1f %%", 100 * median(ratios)),
          ">= 60 %"};
}

/// A machine whose jobs compute nothing: what is left is the machines' own logic, the messages and
/// the Agenda.
class Hollow final : public Machine {
 public:
  Hollow(std::unique_ptr<Machine> inner, const Tensor& tensor)
      : inner_(std::move(inner)), tensor_(tensor) {}

  void on(Message message, double now, Effects& fx) override {
    inner_->on(std::move(message), now, fx);
    for (Run& run : fx.runs) {
      run.job = [tensor = tensor_, work = run.work](Stream&) {
        Outputs out;
        if (work == Work::update) {
          out.weights = {{{.values = tensor}}};
          out.tensors = {tensor, tensor, tensor};  // moments of one slice
        } else if (work == Work::unmodelled) {
          out.tensors = {tensor, tensor};  // a batch and its labels
        } else {
          out.bundle = {{"x", tensor}};
          out.result = tensor;
          out.tensors = {tensor};
        }
        return out;
      };
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  Tensor tensor_;
};

/// A pipeline of 64 stages that compute nothing.
Row virtual_clock(double seconds) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({1});
  std::vector<double> rates;
  std::int64_t updates = 200;
  for (int round = 0; round < 4; ++round) {
    Blueprint b = bench_blueprint(
        "model { quadratic { layers: 64 } } data { batch_size: 1 none {} } optimizer { rule: sgd "
        "learning_rate: 0.001 } "
        "pipeline { stages: 64 schedule { async_one_f_one_b {} } weights { latest {} } } stop { "
        "updates: " +
        std::to_string(updates) +
        " } record { evaluate: false gap_every: 0 } "
        "clock { forward { seconds: 1 gamma {} } input_gradient { seconds: 1 gamma {} } "
        "weight_gradient { seconds: 1 } }");
    Cast cast = build_cast(b);
    for (Cast::Member& member : cast.members) {
      member.machine = std::make_unique<Hollow>(std::move(member.machine), tensor);
    }
    Watch watch;
    const TimeModel times(b.experiment.clock(), b.times, 1);
    Agenda agenda(cast, times, watch, nullptr);
    const double spent = seconds_of([&] { agenda.run(); });
    const double rate = static_cast<double>(agenda.delivered()) / spent;
    if (round > 0) {
      rates.push_back(rate);
    }
    updates = std::max<std::int64_t>(
        100, static_cast<std::int64_t>(static_cast<double>(updates) / spent * seconds / 4));
  }
  return {"virtual clock, 64 workers, empty compute",
          number("%.2f M messages/s", median(rates) / 1e6),
          "",
          "",
          ">= 2 M/s"};
}

struct Bench {
  std::string name;
  std::function<Result<Rows>(const BenchOptions& options, double seconds)> measure;
  bool on_request = false;
};

const std::vector<Bench>& benches() {
  static const std::vector<Bench> all = [] {
    std::vector<Bench> these;
    const auto add = [&](const std::string& name, auto measure) {
      these.push_back({name, [measure](const BenchOptions&, double seconds) {
                         return measure(seconds);
                       }});
    };
    for (const TrainingBench& bench : training_benches()) {
      add(bench.name, [&bench](double seconds) { return Rows{training_step(bench, seconds)}; });
    }
    add("actors", [](double seconds) { return Rows{actors_against_loop(seconds)}; });
    add("hop", hops);
    add("stages", [](double seconds) { return Rows{two_stages(seconds)}; });
    add("cut", profiled_cuts);
    add("optimizer", [](double seconds) { return Rows{optimizer_bandwidth(seconds)}; });
    add("virtual", [](double seconds) { return Rows{virtual_clock(seconds)}; });
    add("hogwild", hogwild);
    add("replicas", replicas);
    these.push_back({"gpu",
                     [](const BenchOptions&, double seconds) { return training_on_gpu(seconds); },
                     true});
    these.push_back({"gpu-peers",
                     [](const BenchOptions& options, double seconds) {
                       return against_peers_on_gpu(options.python, seconds);
                     },
                     true});
    these.push_back({"peers",
                     [](const BenchOptions& options, double seconds) {
                       return against_peers(options.python, seconds);
                     },
                     true});
    return these;
  }();
  return all;
}

}  // namespace

const std::vector<std::string>& bench_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Bench& bench : benches()) {
      all.push_back(bench.name);
    }
    return all;
  }();
  return names;
}

int run_bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
  const double seconds = options.quick ? 0.5 : 5;  // of each row, about
  const auto wanted = [&](const Bench& bench) {
    const auto& names = options.names;
    return names.empty() ? !bench.on_request
                         : std::find(names.begin(), names.end(), bench.name) != names.end();
  };
  std::vector<std::vector<std::string>> lines{{"what", "measured", "against", "ratio", "budget"}};
  for (const Bench& bench : benches()) {
    if (!wanted(bench)) {
      continue;
    }
    err << "measuring " << bench.name << '\n';
    const auto rows = bench.measure(options, seconds);
    if (!rows) {
      err << "troupe: " << rows.error().message << '\n';
      return static_cast<int>(rows.error().kind);
    }
    for (const Row& row : rows.value()) {
      lines.push_back({row.what, row.measured, row.against, row.ratio, row.budget});
    }
  }
  out << table(lines) << std::flush;
  return 0;
}

}  // namespace troupe
