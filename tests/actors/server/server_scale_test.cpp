// What a server does for a message does not grow with the number of its replicas: counted in questions that it puts to its
// Admission, and in pushes that this looks at.
#include "actors/server/server_shard.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace server_scale_test {

using namespace troupe;

namespace {

struct Counts {
  std::int64_t questions = 0;  // whether somebody is answered
  std::int64_t choices = 0;    // which pushes make an update
  std::int64_t handled = 0;    // messages
};

/// Another one, whose calls are counted.
class Counted final : public Admission {
 public:
  Counted(std::unique_ptr<Admission> of, Counts& counts) : of_(std::move(of)), counts_(counts) {}

  bool accepts(const Arrival& push, const Ledger& ledger) const override {
    return of_->accepts(push, ledger);
  }

  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double now) const override {
    ++counts_.choices;
    return of_->choose(waiting, ledger, now);
  }

  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    ++counts_.questions;
    return of_->answers(replica, ledger);
  }

  std::int64_t answers_by(const Ledger& ledger) const override { return of_->answers_by(ledger); }

  bool broadcasts() const override { return of_->broadcasts(); }

 private:
  std::unique_ptr<Admission> of_;
  Counts& counts_;
};

std::unique_ptr<Admission> admission(const std::vector<std::string>& assignments, int replicas) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(set_value(e, "replicas.count=" + std::to_string(replicas)));
  REQUIRE(resolve(e));
  const RuleContext context{.experiment = e,
                            .replicas = replicas,
                            .rate = Rate(e.optimizer(), 0),
                            .parts = {},
                            .elements = 1};
  return make_rule(context).admission;
}

Tensor one_number() {
  Stream stream(Device{});
  Tensor t = stream.allocate({1});
  fill(stream, t, 0);
  return t;
}

/// All replicas push at once, and again whenever they are answered, `rounds` times each; an update takes as long as
/// what comes next.
Counts play(const std::vector<std::string>& assignments, int replicas, std::int64_t rounds) {
  Counts counts;
  const Tensor number = one_number();
  std::vector<Ref<ShardRole>> shards;
  for (int r = 0; r < replicas; ++r) {
    shards.push_back({static_cast<ActorId>(100 + r)});
  }
  proto::Experiment experiment;
  ServerShard server(
      {.self = {2},
       .optimizer = {3},
       .admission = std::make_shared<Counted>(admission(assignments, replicas), counts),
       .rate = Rate(experiment.optimizer(), 0),
       .reaches = {},
       .replicas = shards,
       .evaluation = {},
       .director = {1},
       .initial = number});
  std::vector<std::int64_t> made(static_cast<std::size_t>(replicas));
  std::deque<Message> under_way;
  const auto push = [&](std::int32_t who, std::int64_t read_version) {
    const std::int64_t batch = made[static_cast<std::size_t>(who)]++;
    Contribution of;
    of.values = {number};
    if (batch < rounds) {
      under_way.push_back(Message{Upload{.stamp = {.replica = who, .batch = batch},
                                         .sequence = static_cast<std::uint64_t>(batch + 1),
                                         .answer = true,
                                         .contribution = std::move(of),
                                         .read_version = read_version,
                                         .reads = {}}});
    }
  };
  for (std::int32_t r = 0; r < replicas; ++r) {
    push(r, 0);
  }
  for (double now = 1; !under_way.empty(); ++now) {
    Message message = std::move(under_way.front());
    under_way.pop_front();
    ++counts.handled;
    Effects fx;
    server.on(std::move(message), now, fx);
    for (const Effects::Send& send : fx.sends) {
      if (const auto* answer = get_if<Answer>(&send.message)) {
        push(answer->replica, answer->weights.front().version);
      } else if (holds_alternative<Combine>(send.message)) {
        Combined done;
        done.updated.next = number;
        under_way.push_back(Message{std::move(done)});
      }
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("a server asks its admission a few times a message, with 40 replicas and with 320",
          "[actors]") {
  for (const std::vector<std::string>& rule :
       std::vector<std::vector<std::string>>{{"replicas.rule=asgd"},
                                             {"replicas.rule=ringmaster"},
                                             {"replicas.rule=delayed"},
                                             {"replicas.rule.ssp.bound=1"},
                                             {"replicas.rule.softsync.n=8"},
                                             {"replicas.exchange.wsp.wave=2"},
                                             {"replicas.exchange.diloco.mode=quorum"},
                                             {"replicas.exchange=synchronous"}}) {
    for (const int replicas : {40, 320}) {
      const Counts counts = play(rule, replicas, 4);
      INFO(rule.front() << ", " << replicas << " replicas: " << counts.handled << " messages, "
                        << counts.questions << " questions, " << counts.choices << " choices");
      CHECK(counts.handled >= 4 * replicas);
      CHECK(counts.questions <= 4 * counts.handled);
      CHECK(counts.choices <= 2 * counts.handled);
    }
  }
}

TEST_CASE("who waits for all is not looked for at each push", "[actors]") {
  const Counts counts = play({"replicas.exchange=synchronous"}, 320, 4);
  INFO(counts.handled << " messages, " << counts.choices << " choices");
  CHECK(counts.choices <= 4 * 4);  // at the first and at the last push of each update
}

}  // namespace server_scale_test
