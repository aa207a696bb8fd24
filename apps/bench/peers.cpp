#include "apps/bench/benches.hpp"
#include "apps/bench/gpu.hpp"
#include "apps/bench/replicas.hpp"
#include "apps/bench/training.hpp"
#include "kernels/wording.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

namespace troupe {

extern const char* const kPeerScript;  // apps/bench/peers.py

namespace {

/// What PyTorch runs best with on one thread.
constexpr std::array<std::pair<const char*, const char*>, 5> kEnvironment{{
    {"CUDA_VISIBLE_DEVICES", ""},  // autograd with a thread for a GPU cannot fork
    {"OMP_NUM_THREADS", "1"},
    {"MALLOC_MMAP_MAX_", "0"},
    {"MALLOC_TRIM_THRESHOLD_", "8589934592"},
    {"MALLOC_TOP_PAD_", "268435456"},
}};

/// The script in a process of its own, which answers each line with a line.
class Peer {
 public:
  explicit Peer(const std::string& python, bool on_gpu = false) {
    int requests[2];
    int answers[2];
    TROUPE_CHECK(pipe2(requests, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0, "pipe2");
    process_ = fork();
    TROUPE_CHECK(process_ >= 0, "fork");
    if (process_ == 0) {
      dup2(requests[0], STDIN_FILENO);
      dup2(answers[1], STDOUT_FILENO);
      for (const auto& [name, value] : kEnvironment) {
        if (!on_gpu) {
          setenv(name, value, 1);
        }
      }
      execlp(python.c_str(), python.c_str(), "-c", kPeerScript, nullptr);
      _exit(127);
    }
    close(requests[0]);
    close(answers[1]);
    to_ = requests[1];
    from_ = fdopen(answers[0], "r");
    std::signal(SIGPIPE, SIG_IGN);  // a peer that ends early is met when its answer is read
  }

  ~Peer() {
    close(to_);  // which ends the script
    std::fclose(from_);
    waitpid(process_, nullptr, 0);
  }

  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The next line of its output; nothing where it has ended.
  std::optional<std::string> answer() {
    std::string line;
    for (int c = std::fgetc(from_); c != EOF; c = std::fgetc(from_)) {
      if (c == '\n') {
        return line;
      }
      line += static_cast<char>(c);
    }
    return std::nullopt;
  }

  /// The number that it answers; nothing where it does not.
  std::optional<double> ask(const std::string& request) {
    const std::string line = request + '\n';
    if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return std::nullopt;
    }
    const auto text = answer();
    char* end = nullptr;
    const double value = text ? std::strtod(text->c_str(), &end) : 0;
    return text && end != text->c_str() ? std::optional(value) : std::nullopt;
  }

 private:
  pid_t process_;
  int to_;
  std::FILE* from_;
};

struct Turns {  // seconds
  std::vector<double> ours, theirs;
};

/// What a turn of one is against a turn of the other, seconds by turn.
Row compared_turns(const std::string& what,
                   const std::string& version,
                   double samples,
                   const Turns& seconds,
                   const std::string& budget,
                   const std::string& unit = "samples") {
  Rounds rounds;
  for (std::size_t i = 0; i < seconds.ours.size(); ++i) {
    rounds.add(samples / seconds.ours[i], seconds.theirs[i] / seconds.ours[i]);
  }
  return {what,
          number("%.0f ", rounds.rate()) + unit + "/s",
          version + number(": %.0f ", samples / median(seconds.theirs)) + unit + "/s",
          rounds.ratio_and_range("%.2f x", " (%.2f", " to %.2f)"),
          budget};
}

Error no_answer(const std::string& from) {
  return {ErrorKind::usage, "PyTorch's " + from + " gave no answer; its own output is above"};
}

/// Error (usage) where the peer says nothing; ContractError where its network is another.
Result<void> check_parameters(Peer& peer,
                              const std::string& request,
                              const std::string& name,
                              std::int64_t ours) {
  const auto theirs = peer.ask(request);
  if (!theirs) {
    return no_answer(name);
  }
  TROUPE_CHECK(*theirs == static_cast<double>(ours),
               fill_in("{} has {} parameters, PyTorch's {}", name, ours, *theirs));
  return {};
}

/// `ours()` and the answers to `request`, in turn.
template <class F>
Result<Turns> take_turns(Peer& peer, const std::string& request, const std::string& name, F ours) {
  Turns seconds;
  for (int round = 0; round < 5; ++round) {
    seconds.ours.push_back(ours());
    const auto other = peer.ask(request);
    if (!other) {
      return no_answer(name);
    }
    seconds.theirs.push_back(*other);
  }
  return seconds;
}

Result<Row> compare(Peer& peer,
                    const std::string& version,
                    const TrainingBench& bench,
                    double seconds) {
  BareLoop loop(bench.workload);
  TROUPE_TRY(check_parameters(peer, bench.name + " parameters", bench.name, loop.parameters()));
  loop.steps(2);
  const double once = thread_seconds_of([&] { loop.steps(1); });
  const std::int64_t steps = as_many_as_fit(seconds / 10, once, 1);
  const std::string request = bench.name + " " + std::to_string(steps);
  if (!peer.ask(bench.name + " 2")) {
    return no_answer(bench.name);
  }
  const auto seconds_each = take_turns(
      peer, request, bench.name, [&] { return thread_seconds_of([&] { loop.steps(steps); }); });
  TROUPE_TRY(seconds_each);
  const auto samples = static_cast<double>(steps * loop.batch());
  return compared_turns(bench.what, version, samples, *seconds_each, "");
}

/// Two asynchronous replicas on one server against two of PyTorch's processes.
struct ReplicaBench {
  const char* what;
  const char* way;  // of the script
  const char* network;
  const char* model;
  const char* budget;
};

constexpr std::array<ReplicaBench, 4> kReplicaBenches{{
    {"two replicas, MLP, beside Hogwild", "hogwild", "mlp", kReplicasMlp, ">= 1.25 x"},
    {"two replicas, MLP, beside an RPC server", "rpc", "mlp", kReplicasMlp, ">= 1.9 x"},
    {"two replicas, LeNet-5, beside Hogwild", "hogwild", "lenet5", "lenet5 {}", ">= 1.5 x"},
    {"two replicas, LeNet-5, beside an RPC server", "rpc", "lenet5", "lenet5 {}", ">= 3 x"},
}};

Result<Row> compare(Peer& peer,
                    const std::string& version,
                    const ReplicaBench& bench,
                    double seconds) {
  const double rehearsal = seconds_of_two_replicas(bench.model, kReplicasServer, 20) / 20;
  const std::int64_t steps = as_many_as_fit(seconds / 5, rehearsal, 20);
  const std::string request =
      std::string(bench.way) + ' ' + bench.network + ' ' + std::to_string(steps);
  const auto seconds_each = take_turns(peer, request, bench.way, [&] {
    return seconds_of_two_replicas(bench.model, kReplicasServer, steps);
  });
  TROUPE_TRY(seconds_each);
  const auto samples = static_cast<double>(2 * steps * kReplicasBatch);
  return compared_turns(bench.what, version, samples, *seconds_each, bench.budget);
}

/// `way`: "eager" or "compiled".
Result<Row> compare(Peer& peer,
                    const std::string& version,
                    const GpuBench& bench,
                    const std::string& way,
                    double seconds) {
  BareLoop loop(bench.workload, kGpu, Precision::bf16);
  const std::string theirs_is = "gpu " + way + ' ' + bench.name + ' ';
  TROUPE_TRY(check_parameters(peer, theirs_is + "parameters", bench.name, loop.parameters()));
  const auto seconds_of_steps = [&](std::int64_t steps) {
    return seconds_of([&] {
      loop.steps(steps);
      loop.synchronize();
    });
  };
  seconds_of_steps(5);
  const std::int64_t steps = as_many_as_fit(seconds / 10, seconds_of_steps(5) / 5, 5);
  if (!peer.ask(theirs_is + "10")) {  // which compiles and tries algorithms
    return no_answer(bench.name);
  }
  const auto seconds_each = take_turns(
      peer, theirs_is + std::to_string(steps), bench.name, [&] { return seconds_of_steps(steps); });
  TROUPE_TRY(seconds_each);
  return compared_turns(bench.what,
                        version + ' ' + way,
                        static_cast<double>(steps) * bench.units(),
                        *seconds_each,
                        way == "eager" ? ">= 1 x" : "",
                        bench.unit);
}

/// "PyTorch 2.1", once the script has said so.
Result<std::string> meet(Peer& peer, const std::string& python) {
  const auto greeting = peer.answer();
  if (!greeting) {
    return Error{ErrorKind::usage,
                 "cannot run Python as '" + python + "'; name one that has torch: --python PYTHON"};
  }
  if (!greeting->starts_with("torch ")) {
    return Error{ErrorKind::usage,
                 "'" + python + "' has no PyTorch (" + greeting->substr(greeting->find(' ') + 1) +
                     "); install it (pip install torch, or Debian's python3-torch) or name a "
                     "Python that has it: --python PYTHON"};
  }
  return "PyTorch " + greeting->substr(6);
}

}  // namespace

Result<Rows> against_peers(const std::string& python, double seconds) {
  Peer peer(python);
  const auto version = meet(peer, python);
  TROUPE_TRY(version);
  Rows rows;
  for (const TrainingBench& bench : training_benches()) {
    auto row = compare(peer, *version, bench, seconds);
    TROUPE_TRY(row);
    rows.push_back(*row);
  }
  for (const ReplicaBench& bench : kReplicaBenches) {
    auto row = compare(peer, *version, bench, seconds);
    TROUPE_TRY(row);
    rows.push_back(*row);
  }
  return rows;
}

Result<Rows> against_peers_on_gpu(const std::string& python, double seconds) {
  TROUPE_TRY(gpu_for_benches("gpu-peers"));
  Peer peer(python, true);
  const auto version = meet(peer, python);
  TROUPE_TRY(version);
  Rows rows;
  for (const GpuBench& bench : gpu_benches()) {
    if (bench.convolutions && cudnn_version().empty()) {
      continue;
    }
    for (const char* way : {"eager", "compiled"}) {
      auto row = compare(peer, *version, bench, way, seconds);
      TROUPE_TRY(row);
      rows.push_back(*row);
    }
  }
  return rows;
}

}  // namespace troupe
