// A village of replicas that gossip: their exchanges, with what they tell one another and the jobs that they
// ask for, in an order drawn by seed that keeps each pair's messages in theirs.
#pragma once

#include "actors/exchange/built_in.hpp"
#include "actors/exchange/peers.hpp"
#include "messages/experiment.hpp"
#include "tests/actors/exchange/fake_host.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace troupe::test {

class Village {
 public:
  static constexpr std::int64_t kNumbers = 64;
  static constexpr ActorId kFirstShard = 10;

  using Values = std::vector<float>;

  /// Replicas begin at different weights, unless `equal`.
  Village(const std::vector<std::string>& assignments, std::uint64_t seed, bool equal = false)
      : Village(assignments, seed, [equal, seed](std::size_t r) {
          return initial(equal ? 0 : r, seed);
        }) {}

  /// `first`: the weights that a replica begins at.
  Village(const std::vector<std::string>& assignments,
          std::uint64_t seed,
          const std::function<Values(std::size_t)>& first)
      : random_(seed) {
    REQUIRE(register_peer_exchanges());
    for (const std::string& assignment : assignments) {
      REQUIRE(set_value(experiment_, assignment));
    }
    REQUIRE(resolve(experiment_));
    const auto n = static_cast<std::size_t>(experiment_.replicas().count());
    std::vector<Ref<ShardRole>> peers;
    for (std::size_t r = 0; r < n; ++r) {
      peers.push_back({kFirstShard + static_cast<ActorId>(r)});
    }
    std::vector<CodedLink> links;
    for (std::size_t r = 0; r < n; ++r) {
      if (has_coded_peers(experiment_)) {
        links = links_of(static_cast<std::int32_t>(r));
      }
      auto& one = houses_.emplace_back(std::make_unique<House>());
      one->exchange = &one->host.join(exchange_of(experiment_)
                                          .peer({.replica = static_cast<std::int32_t>(r),
                                                 .rule = halving_rule(),
                                                 .peers = peers,
                                                 .options = {},
                                                 .seed = seed,
                                                 .evaluation = {},
                                                 .director = {},
                                                 .links = links,
                                                 .experiment = &experiment_}),
                                      {tensor_of(first(r))});
    }
  }

  std::size_t size() const { return houses_.size(); }

  std::int64_t step(std::size_t r) const { return houses_[r]->host.step(); }

  /// Of the replica's newest step.
  Values weights(std::size_t r) const {
    const House& one = *houses_[r];
    const Weights at =
        one.host.installed.empty() ? one.exchange->newest() : one.host.installed.back().base;
    const Tensor& x = at.front().values;
    return {x.span<float>().begin(), x.span<float>().end()};
  }

  /// Sum over the replicas, number by number.
  std::vector<double> sum() const {
    std::vector<double> all(kNumbers);
    for (std::size_t r = 0; r < size(); ++r) {
      const Values x = weights(r);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] += static_cast<double>(x[i]);
      }
    }
    return all;
  }

  /// The largest difference between two replicas.
  double apart() const {
    double most = 0;
    for (std::size_t r = 1; r < size(); ++r) {
      for (std::size_t i = 0; i < kNumbers; ++i) {
        most = std::max(most, std::abs(static_cast<double>(weights(r)[i] - weights(0)[i])));
      }
    }
    return most;
  }

  /// Mean square distance from the mean.
  double consensus() const {
    const std::vector<double> all = sum();
    double distance = 0;
    for (std::size_t r = 0; r < size(); ++r) {
      const Values x = weights(r);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double apart = static_cast<double>(x[i]) - all[i] / static_cast<double>(size());
        distance += apart * apart;
      }
    }
    return distance / static_cast<double>(size());
  }

  /// The replica's optimizer makes a step that adds `move(step)` to each number; nothing where one is under way.
  void begin(std::size_t r, const std::function<float(std::int64_t)>& move) {
    House& one = *houses_[r];
    one.host.begin(static_cast<std::int32_t>(r));
    Values next = weights(r);
    for (float& x : next) {
      x += move(one.host.step());
    }
    Applied made;
    made.next = weights_of({tensor_of(next)});
    made.next.front().step = one.host.step() + 1;
    one.exchange->applied(std::move(made), 0, one.fx);
    collect(r);
  }

  /// Each of these replicas makes `steps` steps more; then everything that is told is heard.
  void run(std::int64_t steps,
           const std::function<float(std::size_t, std::int64_t)>& move,
           std::vector<std::size_t> who = {}) {
    if (who.empty()) {
      who = living();
    }
    std::map<std::size_t, std::int64_t> ends;
    for (const std::size_t r : who) {
      ends[r] = step(r) + steps;
    }
    run_until(ends, move);
  }

  /// The living go on to step `step`.
  void run_to(std::int64_t step, const std::function<float(std::size_t, std::int64_t)>& move) {
    std::map<std::size_t, std::int64_t> ends;
    for (const std::size_t r : living()) {
      ends[r] = step;
    }
    run_until(ends, move);
  }

  /// Each of these replicas goes on to its step.
  void run_until(const std::map<std::size_t, std::int64_t>& ends,
                 const std::function<float(std::size_t, std::int64_t)>& move) {
    while (true) {
      std::vector<std::function<void()>> possible;
      for (const auto& [r, end] : ends) {
        if (!houses_[r]->host.applying() && step(r) < end) {
          possible.emplace_back(
              [&, at = r] { begin(at, [&](std::int64_t s) { return move(at, s); }); });
        }
      }
      for (auto& [pair, notes] : under_way_) {
        if (!notes.empty()) {
          possible.emplace_back([&, to = pair.second, queue = &notes] {
            Note note = std::move(queue->front());
            queue->pop_front();
            houses_[to]->exchange->came(std::move(note), 0, houses_[to]->fx);
            collect(to);
          });
        }
      }
      for (std::size_t r = 0; r < size(); ++r) {
        if (!houses_[r]->jobs.empty()) {
          possible.emplace_back([this, r] { work(r); });
        }
        if (!houses_[r]->news.empty()) {
          possible.emplace_back([this, r] { hear_news(r); });
        }
      }
      if (possible.empty() || things_ == 0) {
        break;
      }
      --things_;
      possible[std::uniform_int_distribution<std::size_t>(0, possible.size() - 1)(random_)]();
    }
    for (const auto& [r, end] : ends) {
      REQUIRE((step(r) == end || things_ == 0));  // nobody waits for what does not come
    }
  }

  /// Replica `r` hears this of the next one.
  void hear(std::size_t r,
            const std::string& what,
            std::vector<double> numbers,
            std::vector<Tensor> tensors) {
    House& one = *houses_[r];
    one.exchange->came(Note{.stamp = {static_cast<std::int32_t>((r + 1) % size()), 0, step(r), 0},
                            .what = what,
                            .numbers = std::move(numbers),
                            .tensors = std::move(tensors)},
                       0,
                       one.fx);
  }

  /// As run(), but nothing more happens to these replicas after so many things have happened.
  void run_for(std::int64_t steps,
               const std::function<float(std::size_t, std::int64_t)>& move,
               std::int64_t things) {
    things_ = things;
    run(steps, move);
    things_ = -1;
  }

  /// The mean of all at step `step` is asked of replica `r`.
  void evaluate(std::size_t r, std::int64_t step) {
    House& one = *houses_[r];
    one.exchange->make_pin(step, one.fx);
    collect(r);
  }

  /// Whether replica `r` has answered that.
  bool has_evaluated(std::size_t r, std::int64_t step) const {
    return std::ranges::any_of(houses_[r]->host.pins,
                               [step](const auto& pin) { return pin.first == step; });
  }

  /// Replica `r` dies, and what it has told and nobody has heard yet is lost, unless it is heard late; the others are told: at
  /// once, or each when its turn comes.
  void die(std::size_t r, bool at_once = true, bool heard_late = false) {
    dead_.insert(r);
    for (auto& [pair, notes] : under_way_) {
      if ((pair.first == r && !heard_late) || pair.second == r) {
        notes.clear();
      }
    }
    houses_[r]->jobs.clear();
    houses_[r]->news.clear();
    Membership left{.epoch = static_cast<std::int64_t>(dead_.size()),
                    .alive = std::vector<bool>(size(), true)};
    for (const std::size_t gone : dead_) {
      left.alive[gone] = false;
    }
    for (std::size_t other = 0; other < size(); ++other) {
      if (!dead_.contains(other)) {
        houses_[other]->news.push_back(left);
        if (at_once) {
          hear_news(other);
        }
      }
    }
  }

  std::vector<std::size_t> living() const {
    std::vector<std::size_t> all;
    for (std::size_t r = 0; r < size(); ++r) {
      if (!dead_.contains(r)) {
        all.push_back(r);
      }
    }
    return all;
  }

  /// Runs the jobs that have been asked for, and delivers nothing.
  void work_all() {
    for (std::size_t r = 0; r < size(); ++r) {
      while (!houses_[r]->jobs.empty()) {
        work(r);
      }
    }
  }

  /// What has been told so far, and by whom.
  const std::vector<Note>& told() const { return told_; }

 private:
  struct House {
    FakeHost host;
    PeerExchange* exchange = nullptr;
    Effects fx;
    std::deque<Run> jobs;
    std::deque<Membership> news;
  };

  static Values initial(std::size_t r, std::uint64_t seed) {
    Values x(kNumbers);
    const RandomStream random(seed, Purpose::test, r);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(random.normal(i));
    }
    return x;
  }

  static Tensor tensor_of(const Values& values) {
    Stream stream(Device{});
    Tensor x = stream.allocate({static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), x.span<float>().begin());
    return x;
  }

  std::vector<CodedLink> links_of(std::int32_t r) const {
    const proto::Codecs& codecs = experiment_.replicas().codec();
    auto codec = make_codec({.chosen = codecs.up(),
                             .parts = {{.name = "x", .offset = 0, .shape = {kNumbers}}},
                             .elements = kNumbers,
                             .replicas = static_cast<std::int32_t>(experiment_.replicas().count()),
                             .feedback = keeps_residual(codecs)});
    if (!codec) {
      return {};
    }
    return {{.codec = std::move(codec),
             .feedback = keeps_residual(codecs),
             .seed = 1,
             .name = link_name(r, 0, 0)}};
  }

  void hear_news(std::size_t r) {
    House& one = *houses_[r];
    const Membership m = std::move(one.news.front());
    one.news.pop_front();
    one.exchange->membership(m, 0, one.fx);
    collect(r);
  }

  void work(std::size_t r) {
    House& one = *houses_[r];
    Run run = std::move(one.jobs.front());
    one.jobs.pop_front();
    one.exchange->job_done(get<Ran<Computed>>(run.job(stream_)).made, 0, one.fx);
    collect(r);
  }

  void collect(std::size_t r) {
    House& one = *houses_[r];
    for (auto& [to, note] : sent<Note>(one.fx)) {
      const auto hearer = static_cast<std::size_t>(to - kFirstShard);
      told_.push_back(note);
      if (!dead_.contains(hearer) && !dead_.contains(r)) {
        under_way_[{r, hearer}].push_back(std::move(note));
      }
    }
    for (Run& run : one.fx.runs) {
      one.jobs.push_back(std::move(run));
    }
    one.fx.clear();
  }

  proto::Experiment experiment_;
  std::mt19937_64 random_;
  Stream stream_{Device{}};
  std::vector<std::unique_ptr<House>> houses_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Note>> under_way_;
  std::vector<Note> told_;
  std::set<std::size_t> dead_;
  std::int64_t things_ = -1;  // that may still happen in run(); below 0: any number
};

}  // namespace troupe::test
