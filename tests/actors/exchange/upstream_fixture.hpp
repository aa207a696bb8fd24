// A replica's exchange with servers, without the replica and without the servers.
#pragma once

#include "actors/exchange/upstream.hpp"
#include "tests/actors/exchange/fake_host.hpp"

#include <algorithm>
#include <memory>

namespace troupe::test {

class Replica {
 public:
  static constexpr Ref<ShardRole> kSelf{1};
  static constexpr ActorId kFirstServer = 10;

  explicit Replica(const Link& link, std::size_t slices = 2)
      : exchange(
            host.join(make_upstream(config(link, slices)), std::vector<Tensor>(slices, filled(0)))),
        slices_(slices) {}

  /// The job of the next mini-batch, whose gradient is `value` everywhere; nothing where the exchange
  /// goes on without one.
  std::optional<Apply> prepare(float value, double clipping = 1, TiedGradients tied = {}) {
    host.begin();
    Apply apply;
    apply.gradient = std::vector<Tensor>(slices_, filled(value));
    apply.gradient_scale = clipping;
    apply.tied = std::move(tied);
    REQUIRE(exchange.ready(host.step()));
    fx.clear();
    return exchange.prepare(apply, now, fx) ? std::optional(std::move(apply)) : std::nullopt;
  }

  /// What the optimizer made: the next weights are `next`, what it was asked to send `outgoing`.
  static Applied made_of(const Apply& apply, float next, float outgoing) {
    Applied made;
    const std::size_t slices = apply.gradient.size();
    if (apply.steps) {
      made.next = weights_of(std::vector<Tensor>(slices, filled(next)));
    }
    if (apply.outbound.made) {
      made.outgoing.assign(slices, filled(outgoing));
    }
    return made;
  }

  /// Carries out a job; `outgoing` is 100 times `next`.
  void apply(const Apply& job, float next) {
    exchange.applied(made_of(job, next, 100 * next), now, fx);
  }

  /// A whole mini-batch, up to what is sent of it. Its weights are the number of the mini-batch, from
  /// 1.
  std::optional<Apply> mini_batch() {
    const auto n = static_cast<float>(host.step() + 1);
    std::optional<Apply> job = prepare(-n);
    if (job) {
      apply(*job, n);
    }
    return job;
  }

  /// The only Upload to the server of `slice` since then.
  Upload upload(std::size_t slice) const {
    const auto all = uploads(slice);
    REQUIRE(all.size() == 1);
    return all.front();
  }

  std::vector<Upload> uploads(std::size_t slice) const {
    return sent_to<Upload>(kFirstServer + static_cast<ActorId>(slice), fx);
  }

  /// As a server answers: weights of `value` everywhere, as they are after `version` updates.
  static Answer answer_of(std::uint64_t request,
                          std::size_t slice,
                          std::int64_t version,
                          float value) {
    Answer m{.request = request, .slice = slice, .weights = weights_of({filled(value)})};
    m.weights.front().version = version;
    m.weights.front().rate = 1.0 / static_cast<double>(version + 1);
    m.step = version;
    return m;
  }

  void answer(Answer m) {
    fx.clear();
    exchange.answered(std::move(m), now, fx);
  }

  /// The answers of all servers to the Uploads of number `request`.
  void answer_all(std::uint64_t request, std::int64_t version, float value) {
    for (std::size_t s = 0; s < slices_; ++s) {
      answer(answer_of(request, s, version, value));
    }
  }

  std::int64_t step() const { return host.step(); }

  /// The weights of the newest step, by slice.
  std::vector<float> newest() const {
    std::vector<float> all;
    for (const Slice& slice : host.installed.back().base) {
      all.push_back(first_of(slice.values));
    }
    return all;
  }

  FakeHost host;
  Upstream& exchange;
  Effects fx;
  double now = 0;

 private:
  static Upstream::Config config(const Link& link, std::size_t slices) {
    Upstream::Config c{.self = kSelf,
                       .replica = 3,
                       .chunk = 1,
                       .rule = halving_rule(),
                       .link = link,
                       .servers = {}};
    for (std::size_t s = 0; s < slices; ++s) {
      c.servers.push_back({kFirstServer + static_cast<ActorId>(s)});
    }
    return c;
  }

  std::size_t slices_;
};

using Floats = std::vector<float>;

inline float value_of(const Upload& m, std::size_t which = 0) {
  return first_of(m.contribution.values.at(which));
}

}  // namespace troupe::test
