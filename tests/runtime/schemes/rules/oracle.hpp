// Rules once more, as plain loops in double, written from the papers' equations: fed with what the
// server took, in its order.
#pragma once

#include "tests/runtime/schemes/rules/served.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace troupe::test {

struct Oracle {
  Values w;
  Values sent;
  double gamma = 0.9;
  std::int64_t R = kReplicas;

  using Update = std::function<void(Oracle&, const Taken&, const std::vector<Values>& g)>;
  Update update;
  std::map<int, Values> kept{};   // by replica, or whatever the rule keeps
  std::map<int, double> rates{};  // by replica
  std::vector<Values> history{};  // sent, by version

  Values& state(int which) {
    Values& found = kept[which];
    found.resize(w.size());
    return found;
  }

  /// What contribution i had read.
  const Values& read(const Taken& event, std::size_t i = 0) const {
    return history.at(static_cast<std::size_t>(event.pushes[i].read_version));
  }
};

inline void check_against(const Served& got,
                          Oracle::Update update,
                          Tolerance tolerance = {1e-5, 1e-5}) {
  const std::vector<float> start = initial();
  Oracle o{.w = Values(start.begin(), start.end()), .sent = {}, .update = std::move(update)};
  o.sent = o.w;
  o.history = {o.w};
  REQUIRE(got.events.size() >= 10);
  for (std::size_t i = 0; i < got.events.size(); ++i) {
    const Taken& event = got.events[i];
    std::vector<Values> g;
    for (std::size_t c = 0; c < event.pushes.size(); ++c) {
      g.push_back(gradient(o.read(event, c), event.pushes[c].replica, event.pushes[c].batch));
    }
    o.sent.clear();
    o.update(o, event, g);
    if (o.sent.empty()) {
      o.sent = o.w;
    }
    o.history.push_back(o.sent);
    INFO("update " << i);
    check_close("next", got.next[i], o.w, tolerance);
    check_close("sent", got.sent[i], o.sent, tolerance);
  }
}

template <class F>
void each(const Values& x, F&& f) {
  for (std::size_t j = 0; j < x.size(); ++j) {
    f(j);
  }
}

/// v = gamma v + g; w -= eta v.
inline void heavy_ball(Oracle& o, double rate, const Values& g) {
  Values& v = o.state(0);
  each(g, [&](std::size_t j) {
    v[j] = o.gamma * v[j] + g[j];
    o.w[j] -= rate * v[j];
  });
}

inline Values mean(const std::vector<Values>& g) {
  Values sum(g.front().size());
  for (const Values& x : g) {
    each(x, [&](std::size_t j) { sum[j] += x[j] / static_cast<double>(g.size()); });
  }
  return sum;
}

inline std::vector<std::string> four(std::vector<std::string> assignments) {
  assignments.push_back("replicas.count=4");
  return assignments;
}

inline std::int64_t lag(const Taken& event, std::size_t i = 0) {
  return event.version - event.pushes[i].read_version;
}

/// PyTorch's, from nothing: v = gamma v + g; w -= eta (g + gamma v).
struct NesterovLoop {
  Values w;
  Values v;

  void step(double rate, double gamma, const Values& g) {
    v.resize(w.size());
    each(w, [&](std::size_t j) {
      v[j] = gamma * v[j] + g[j];
      w[j] -= rate * (g[j] + gamma * v[j]);
    });
  }
};

}  // namespace troupe::test
