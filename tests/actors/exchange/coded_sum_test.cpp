// Replicas that add up what codecs make of their gradients, by a ring or a tree: random_k, powersgd and half
// precision against the papers' loops in double, whatever the order of messages; what is left out is kept.
#include "actors/exchange/link_states.hpp"
#include "actors/exchange/reduction.hpp"
#include "actors/pipeline/optimizer.hpp"
#include "tests/actors/exchange/fake_host.hpp"
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <random>

namespace coded_sum_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Doubles = std::vector<double>;

constexpr int kReplicas = 4;
constexpr std::int64_t kSmall = 24;  // numbers of the second slice, which has no matrix
constexpr std::uint64_t kSeed = 7;

/// Replica r's gradients of a mini-batch, by slice: what the last ones were, and something new.
std::vector<Numbers> gradients(int replica, std::int64_t batch) {
  std::vector<Numbers> all;
  for (const std::int64_t n : {kSlice, kSmall}) {
    Numbers x = normal(n, static_cast<std::uint64_t>(1000 + n), 1);
    const Numbers own = normal(n, static_cast<std::uint64_t>(100 * batch + replica), 0.5);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += own[i];
    }
    all.push_back(std::move(x));
  }
  return all;
}

/// What is under way: a part to a shard, or what one of a shard's jobs has made.
struct Letter {
  std::size_t to = 0;
  std::function<Message()> message;
};

/// Replicas' reductions with an optimizer each, through the codec of `choice` ("random_k.density=0.1").
class Circle {
 public:
  Circle(ReductionKind how, const std::string& choice, bool feedback, int replicas = kReplicas)
      : members_(static_cast<std::size_t>(replicas)) {
    REQUIRE(set_value(experiment_, "replicas.codec.up" + choice));
    REQUIRE(set_value(experiment_,
                      std::string("replicas.codec.feedback=") + (feedback ? "on" : "off")));
    REQUIRE(resolve(experiment_));
    std::vector<Ref<ShardRole>> peers;
    for (int r = 0; r < replicas; ++r) {
      peers.push_back({static_cast<ActorId>(r)});
    }
    for (int r = 0; r < replicas; ++r) {
      Member& one = members_[static_cast<std::size_t>(r)];
      GradientSum::Config config{
          .how = how, .replica = r, .peers = peers, .recodes = recodes(r, feedback)};
      one.reduction = &one.host.join(
          std::make_unique<Reduction>(halving_rule(), std::move(config), links(feedback)),
          {filled(0, kSlice), filled(0, kSmall)});
    }
  }

  /// All replicas add up their gradients of the next mini-batch; messages go in an order drawn by `seed`.
  /// Returns the mean, by slice, which has the same bits everywhere.
  std::vector<Numbers> round(unsigned seed,
                             const std::function<std::vector<Numbers>(int)>& gradient) {
    std::mt19937 random(seed);
    for (std::size_t r = 0; r < members_.size(); ++r) {
      Member& one = members_[r];
      one.host.begin(static_cast<std::int32_t>(r));
      std::vector<Tensor> slices;
      for (const Numbers& x : gradient(static_cast<int>(r))) {
        slices.push_back(from_host(stream_, x, {static_cast<std::int64_t>(x.size())}));
      }
      one.reduction->sum(std::move(slices), {}, one.fx);
      collect(r);
    }
    while (!letters_.empty()) {
      const auto i = static_cast<std::ptrdiff_t>(random() % letters_.size());
      Letter letter = std::move(letters_[static_cast<std::size_t>(i)]);
      letters_.erase(letters_.begin() + i);
      deliver(letter.to, letter.message());
      collect(letter.to);
    }
    std::vector<Numbers> first;
    for (Member& one : members_) {
      REQUIRE(one.host.sums.size() == 1);
      std::vector<Numbers> mean;
      for (const Tensor& slice : one.host.sums.front()) {
        mean.emplace_back(slice.span<float>().begin(), slice.span<float>().end());
      }
      first = first.empty() ? mean : first;
      CHECK(std::memcmp(first[0].data(), mean[0].data(), 4 * mean[0].size()) == 0);
      CHECK(std::memcmp(first[1].data(), mean[1].data(), 4 * mean[1].size()) == 0);
      one.host.sums.clear();
      one.reduction->applied(
          Applied{.next = weights_of({filled(0, kSlice), filled(0, kSmall)})}, 0, one.fx);
      one.fx.clear();
    }
    return first;
  }

  std::int64_t bytes = 0;  // that parts had

  /// Replica 0 has sent its first part, and gets this one.
  void hear(GradientPart part) {
    Member& one = members_[0];
    one.host.begin(0);
    one.reduction->sum({filled(1, kSlice), filled(1, kSmall)}, {}, one.fx);
    Effects fx = std::exchange(one.fx, {});
    deliver(0, fx.runs.at(0).job(stream_));
    one.reduction->came(std::move(part), 0, one.fx);
  }

 private:
  struct Member {
    FakeHost host;
    Reduction* reduction = nullptr;
    Effects fx;
  };

  std::vector<RuleContext::Part> parts_of(std::size_t slice) const {
    return slice == 0 ? parts() : std::vector<RuleContext::Part>{{"b3", 0, {kSmall}, false}};
  }

  CodecContext context(std::size_t slice, bool feedback) const {
    return {.chosen = experiment_.replicas().codec().up(),
            .parts = parts_of(slice),
            .elements = slice == 0 ? kSlice : kSmall,
            .replicas = kReplicas,
            .feedback = feedback};
  }

  std::vector<CodedLink> recodes(int r, bool feedback) const {
    std::vector<CodedLink> all;
    for (const std::size_t s : {0, 1}) {
      if (codec_scheme(experiment_.replicas().codec().up()).recoded) {
        all.push_back({.codec = make_codec(context(s, feedback)),
                       .feedback = feedback,
                       .seed = kSeed,
                       .name = link_name(r, 0, s)});
      }
    }
    return all;
  }

  std::vector<SummedLink> links(bool feedback) const {
    std::vector<SummedLink> all;
    for (const std::size_t s : {0, 1}) {
      if (auto code = make_sum_code(context(s, feedback))) {
        all.push_back({.code = std::move(code), .feedback = feedback, .seed = kSeed, .name = s});
      }
    }
    return all;
  }

  void deliver(std::size_t to, Message message) {
    Member& one = members_[to];
    if (auto* part = get_if<GradientPart>(&message)) {
      one.reduction->came(std::move(*part), 0, one.fx);
    } else {
      one.reduction->job_done(get<Ran<Computed>>(std::move(message)).made, 0, one.fx);
    }
  }

  void collect(std::size_t from) {
    Effects fx = std::exchange(members_[from].fx, {});
    for (Effects::Send& send : fx.sends) {
      letters_.push_back({send.to, [m = std::move(send.message)] {
                            return m;
                          }});
    }
    for (Run& run : fx.runs) {
      letters_.push_back({from, [this, job = std::move(run.job)] {
                            return job(stream_);
                          }});
    }
    for (const TrafficRecord& record : recorded<TrafficRecord>(fx)) {
      bytes += record.bytes;
    }
  }

  proto::Experiment experiment_;
  Stream stream_{Device{}};
  std::vector<Member> members_;
  std::deque<Letter> letters_;
};

/// The oracle's replicas: what each has left out so far.
struct Residuals {
  std::vector<std::vector<Doubles>> left = std::vector<std::vector<Doubles>>(
      kReplicas, std::vector<Doubles>{Doubles(kSlice), Doubles(kSmall)});

  /// Gradient + what is left, by replica.
  std::vector<Doubles> due(std::size_t slice, std::int64_t batch) const {
    std::vector<Doubles> all;
    for (int r = 0; r < kReplicas; ++r) {
      Doubles x = left[static_cast<std::size_t>(r)][slice];
      const Numbers g = gradients(r, batch)[slice];
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] += static_cast<double>(g[i]);
      }
      all.push_back(std::move(x));
    }
    return all;
  }
};

Doubles mean_of(const std::vector<Doubles>& all) {
  Doubles mean(all.front().size());
  for (const Doubles& x : all) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      mean[i] += x[i] / static_cast<double>(all.size());
    }
  }
  return mean;
}

double farthest(const Numbers& got, const Doubles& due) {
  double most = 0;
  for (std::size_t i = 0; i < due.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got.at(i)) - due[i]));
  }
  return most;
}

/// A matrix of the slice, rows x columns from `at`.
struct Matrix {
  std::size_t at = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Vogels et al. 2019, algorithm 1; factors are column by column.

/// M Q with orthonormal columns.
Doubles first_factor(const Doubles& x, const Matrix& m, const Doubles& q) {
  const std::size_t rank = q.size() / m.columns;
  Doubles p(rank * m.rows);
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < m.rows; ++i) {
      sum += p[a * m.rows + i] * p[b * m.rows + i];
    }
    return sum;
  };
  for (std::size_t c = 0; c < rank; ++c) {
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.columns; ++j) {
        p[c * m.rows + i] += x[m.at + i * m.columns + j] * q[c * m.columns + j];
      }
    }
    for (std::size_t before = 0; before < c; ++before) {
      const double along = dot(before, c);
      for (std::size_t i = 0; i < m.rows; ++i) {
        p[c * m.rows + i] -= along * p[before * m.rows + i];
      }
    }
    const double norm = std::sqrt(dot(c, c));
    for (std::size_t i = 0; i < m.rows; ++i) {
      p[c * m.rows + i] /= norm;
    }
  }
  return p;
}

/// M' P
Doubles second_factor(const Doubles& x, const Matrix& m, const Doubles& p) {
  const std::size_t rank = p.size() / m.rows;
  Doubles q(rank * m.columns);
  for (std::size_t c = 0; c < rank; ++c) {
    for (std::size_t j = 0; j < m.columns; ++j) {
      for (std::size_t i = 0; i < m.rows; ++i) {
        q[c * m.columns + j] += x[m.at + i * m.columns + j] * p[c * m.rows + i];
      }
    }
  }
  return q;
}

/// P Q'
Doubles product(const Doubles& p, const Doubles& q, const Matrix& m) {
  Doubles out(m.rows * m.columns);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) {
      for (std::size_t c = 0; c < p.size() / m.rows; ++c) {
        out[i * m.columns + j] += p[c * m.rows + i] * q[c * m.columns + j];
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("numbers of a job that no job makes are refused", "[actors]") {
  for (const double wrong :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::size_t at : {0u, 1u, 2u}) {
      Computed made{.numbers = {0, 0, 0}};
      CHECK(unpack(made, 0).size() == 1);
      made.numbers[at] = wrong;
      INFO(at << ": " << wrong);
      CHECK_THROWS_WITH(unpack(made, 0), says("[unpack]"));
    }
  }
}

TEST_CASE("sums of random_k are the means at its places, and 0 elsewhere", "[actors][codecs]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  const bool feedback = GENERATE(true, false);
  Circle circle(how, ".random_k.density=0.1", feedback);
  Residuals residuals;
  constexpr std::int64_t k[] = {45, 2};
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    const std::vector<Numbers> got =
        circle.round(static_cast<unsigned>(batch), [&](int r) { return gradients(r, batch); });
    for (std::size_t s = 0; s < 2; ++s) {
      std::vector<Doubles> due = residuals.due(s, batch);
      Doubles mean = mean_of(due);
      std::int64_t sent = 0;
      for (std::size_t i = 0; i < mean.size(); ++i) {
        const bool chosen = got[s][i] != 0;
        sent += chosen ? 1 : 0;
        // Without feedback each stands for its stratum: of 448 in 45, or 24 in 2 numbers.
        const double strata = s == 1 ? 12 : i < 43 * 10 ? 10 : 9;
        mean[i] = chosen ? mean[i] * (feedback ? 1 : strata) : 0;
        for (std::size_t r = 0; feedback && r < kReplicas; ++r) {
          residuals.left[r][s][i] = chosen ? 0 : due[r][i];
        }
      }
      CHECK(sent == k[s]);
      CHECK(farthest(got[s], mean) < 1e-4);
    }
  }
  CHECK(circle.bytes == 6 * 2 * (kReplicas - 1) * 4 * (k[0] + k[1]));
}

TEST_CASE("powersgd is the paper's loop, and either kind of residual makes the same sums",
          "[actors][codecs]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  const int rank = GENERATE(1, 2);
  INFO("rank " << rank);
  Circle circle(how, concat(".powersgd.rank=", rank), true);
  const Matrix matrices[] = {{0, 20, 13}, {288, 7, 20}};
  // The first Qs are drawn from one seed at all replicas.
  RandomStream random(kSeed, Purpose::sample, 0);
  random.key = random.bits(0);
  std::vector<Doubles> q;
  std::uint64_t at = 0;
  for (const Matrix& m : matrices) {
    Doubles& of = q.emplace_back();
    for (std::size_t j = 0; j < static_cast<std::size_t>(rank) * m.columns; ++j) {
      of.push_back(static_cast<double>(static_cast<float>(random.normal(at++))));
    }
  }
  std::vector<Doubles> q_shared = q;
  Residuals own;     // e = Delta - P (M' P)', M the replica's own: algorithm 2, line 9
  Residuals shared;  // e = Delta - the mean's P Q', as in the authors' program
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    const std::vector<Numbers> got =
        circle.round(static_cast<unsigned>(batch), [&](int r) { return gradients(r, batch); });
    const std::vector<Doubles> due = own.due(0, batch);
    const std::vector<Doubles> due_shared = shared.due(0, batch);
    Doubles sum = mean_of(due);
    for (int r = 0; r < kReplicas; ++r) {
      own.left[static_cast<std::size_t>(r)][0].assign(kSlice, 0);
      shared.left[static_cast<std::size_t>(r)][0].assign(kSlice, 0);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const Matrix& m = matrices[i];
      const Doubles p = first_factor(mean_of(due), m, q[i]);
      q[i] = second_factor(mean_of(due), m, p);
      const Doubles both = product(p, q[i], m);
      const Doubles p_shared = first_factor(mean_of(due_shared), m, q_shared[i]);
      q_shared[i] = second_factor(mean_of(due_shared), m, p_shared);
      const Doubles both_shared = product(p_shared, q_shared[i], m);
      for (std::size_t j = 0; j < both.size(); ++j) {
        CHECK(both[j] == Approx(both_shared[j]).margin(1e-9));
        sum[m.at + j] = both[j];
      }
      for (std::size_t r = 0; r < kReplicas; ++r) {
        const Doubles alone = product(p, second_factor(due[r], m, p), m);
        for (std::size_t j = 0; j < both.size(); ++j) {
          own.left[r][0][m.at + j] = due[r][m.at + j] - alone[j];
          shared.left[r][0][m.at + j] = due_shared[r][m.at + j] - both_shared[j];
        }
      }
    }
    CHECK(farthest(got[0], sum) < 2e-3);
    CHECK(farthest(got[1], mean_of(own.due(1, batch))) < 1e-5);  // no matrix: as it is
  }
  const std::int64_t first = rank * (20 + 7);
  const std::int64_t second = rank * (13 + 20) + (kSlice - 20 * 13 - 7 * 20) + kSmall;
  CHECK(circle.bytes == 6 * 2 * (kReplicas - 1) * 4 * (first + second));
}

TEST_CASE("half precision leaves nothing out for good where it is added up", "[actors][codecs]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  const std::string codec = GENERATE("=fp16", "=bf16");
  const bool feedback = GENERATE(true, false);
  constexpr std::int64_t kRounds = 100;
  INFO(codec << " " << feedback);
  Circle circle(how, codec, feedback);
  const auto constant = [&](int r) {
    return gradients(r, 0);
  };
  std::vector<Doubles> sums{Doubles(kSlice), Doubles(kSmall)};
  for (std::int64_t batch = 0; batch < kRounds; ++batch) {
    const std::vector<Numbers> got = circle.round(static_cast<unsigned>(batch), constant);
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::size_t i = 0; i < got[s].size(); ++i) {
        sums[s][i] += static_cast<double>(got[s][i]);
      }
    }
  }
  double off = 0;
  for (std::size_t s = 0; s < 2; ++s) {
    const Doubles mean = mean_of(Residuals().due(s, 0));
    for (std::size_t i = 0; i < mean.size(); ++i) {
      off = std::max(off, std::abs(sums[s][i] - kRounds * mean[i]));
    }
  }
  // Each of R replicas keeps half a unit in the last place of a sum of at most R numbers, most of which are below
  // 16; what is forgotten is forgotten anew each time.
  const double unit = codec == "=fp16" ? 8 * 0x1p-10 : 8 * 0x1p-7;
  if (feedback) {
    CHECK(off <= unit);
  } else {
    CHECK(off > 4 * unit);
  }
  CHECK(circle.bytes == kRounds * 2 * (kReplicas - 1) * 2 * (kSlice + kSmall));
}

TEST_CASE("a gradient that is not finite makes a mean that is not", "[actors][codecs]") {
  for (const char* codec : {"=fp16", ".random_k.density=0.1", "=powersgd"}) {
    INFO(codec);
    Circle circle(ReductionKind::ring, codec, true);
    const std::vector<Numbers> got = circle.round(1, [](int r) {
      std::vector<Numbers> all = gradients(r, 0);
      all[0][100] = r == 2 ? std::nanf("") : all[0][100];
      return all;
    });
    CHECK(std::any_of(got[0].begin(), got[0].end(), [](float x) { return std::isnan(x); }));
  }
}

TEST_CASE("a part that is no message ends who gets it, with a sentence", "[actors][codecs]") {
  Stream stream{Device{}};
  const auto part = [](std::vector<Tensor> tensors) {
    return GradientPart{.stamp = {.replica = 3, .batch = 0, .micro_batch = 0},
                        .segment = 3,
                        .tensors = std::move(tensors)};
  };
  // The segments are of 112 and 6 numbers.
  const auto words = [&](std::int64_t n) {
    return words_tensor(stream, std::vector<std::uint32_t>(static_cast<std::size_t>(n), 1));
  };
  for (const auto& [tensors, sentence] : std::vector<std::pair<std::vector<Tensor>, std::string>>{
           {{words(56)}, "it is of 1 slices where 2 are right"},
           {{words(56), words(4)}, "has sent an unusable part"},
           {{filled(0, 112), words(3)}, "it is of float32 where int32 is right"}}) {
    Circle circle(ReductionKind::ring, "=fp16", true);
    CHECK_THROWS_WITH(circle.hear(part(tensors)), says(sentence));
  }
}

}  // namespace coded_sum_test
