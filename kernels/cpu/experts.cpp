#include "kernels/experts.hpp"

#include "kernels/cpu/ids.hpp"
#include "kernels/functors/experts.hpp"
#include "kernels/functors/math.hpp"

#include <algorithm>
#include <array>

namespace troupe::cpu::TROUPE_ISA {

namespace {

/// The first candidate behind `last`.
Candidate best_behind(const Candidate& last, const float* logits, std::int64_t E) {
  Candidate best = behind_all();
  for (std::int64_t e = 0; e < E; ++e) {
    const Candidate c = Candidate::of(logits[e], static_cast<std::int32_t>(e));
    if (last.is_before(c) && c.is_before(best)) {
      best = c;
    }
  }
  return best;
}

/// In eight sums, so that additions need not wait for one another.
double dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) {
      sums[static_cast<std::size_t>(lane)] +=
          static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = 0;
  for (; i < n; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  for (const double lane : sums) {
    sum += lane;
  }
  return sum;
}

/// E and k of a row.
struct Row {
  const float* shares;
  const std::int32_t* choices;
  const float* gates;
  const float* by_gates;
  std::int64_t k;

  GateGradient gate_gradient() const {
    GateGradient g;
    if (k > 1) {
      g.sum = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        g.mean += static_cast<double>(gates[j]) * static_cast<double>(by_gates[j]);
        g.sum += static_cast<double>(shares[choices[j]]);
      }
    }
    return g;
  }
};

}  // namespace

void choose_experts(Stream& /*stream*/,
                    const Tensor& logits,
                    const Tensor& shares,
                    const Tensor& choices,
                    const Tensor& gates) {
  const std::int64_t E = logits.shape()[1];
  const std::int64_t k = choices.shape()[1];
  for (std::int64_t r = 0; r < logits.shape()[0]; ++r) {
    const float* x = logits.data<float>() + r * E;
    float* const share = shares.data<float>() + r * E;
    std::int32_t* const chosen = choices.data<std::int32_t>() + r * k;
    float* const gate = gates.data<float>() + r * k;
    Candidate last = before_all();
    float largest = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      last = best_behind(last, x, E);
      largest = j == 0 ? last.logit : largest;
      chosen[j] = last.expert;
    }
    double sum = 0;
    for (std::int64_t e = 0; e < E; ++e) {
      share[e] = exp_float(x[e] - largest);
      sum += static_cast<double>(share[e]);
    }
    for (std::int64_t e = 0; e < E; ++e) {
      share[e] = static_cast<float>(static_cast<double>(share[e]) / sum);
    }
    double of_chosen = k > 1 ? 0 : 1;
    for (std::int64_t j = 0; k > 1 && j < k; ++j) {
      of_chosen += static_cast<double>(share[chosen[j]]);
    }
    for (std::int64_t j = 0; j < k; ++j) {
      gate[j] = static_cast<float>(static_cast<double>(share[chosen[j]]) / of_chosen);
    }
  }
}

void choose_experts_gradient(Stream& /*stream*/, const ExpertChoices& c) {
  const std::int64_t R = c.shares.shape()[0];
  const std::int64_t E = c.shares.shape()[1];
  const std::int64_t k = c.choices.shape()[1];
  const std::int32_t* firsts = c.firsts.data<std::int32_t>();
  const double balance =
      c.balance * static_cast<double>(E) / (static_cast<double>(R) * static_cast<double>(R));
  for (std::int64_t r = 0; r < R; ++r) {
    const Row row{.shares = c.shares.data<float>() + r * E,
                  .choices = c.choices.data<std::int32_t>() + r * k,
                  .gates = c.gates.data<float>() + r * k,
                  .by_gates = c.by_gates.data<float>() + r * k,
                  .k = k};
    float* const to = c.by_logits.data<float>() + r * E;
    const GateGradient gate = row.gate_gradient();
    double along = 0;
    for (std::int64_t e = 0; e < E; ++e) {
      along += balance * firsts[e] * static_cast<double>(row.shares[e]);
    }
    for (std::int64_t j = 0; j < k; ++j) {
      along += gate.by_share(row.by_gates[j]) * static_cast<double>(row.shares[row.choices[j]]);
    }
    for (std::int64_t e = 0; e < E; ++e) {
      to[e] = by_logit(row.shares[e], balance * firsts[e], along);
    }
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t e = row.choices[j];
      to[e] = by_logit(row.shares[e], balance * firsts[e] + gate.by_share(row.by_gates[j]), along);
    }
  }
}

void seat_choices(Stream& /*stream*/, const ExpertSeats& s) {
  const std::int64_t R = s.choices.shape()[0];
  const std::int64_t k = s.choices.shape()[1];
  const std::int32_t* choices = s.choices.data<std::int32_t>();
  std::int32_t* const seats = s.seats.data<std::int32_t>();
  std::int32_t* const taken = s.begins.data<std::int32_t>() + 1;  // by expert, then their ends
  std::int32_t* const firsts = s.firsts.data<std::int32_t>();
  std::fill_n(taken - 1, s.count + 1, 0);
  std::fill_n(firsts, s.experts, 0);
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t i = j; i < R * k; i += k) {
      check_id("seat_choices", "choice", choices[i], i, s.experts);
      firsts[choices[i]] += j == 0 ? 1 : 0;
      const std::int64_t own = choices[i] - s.first;
      seats[i] = own >= 0 && own < s.count && taken[own] < s.room ? taken[own]++ : -1;
    }
  }
  std::int64_t end = 0;
  for (std::int64_t own = 0; own < s.count; ++own) {
    const std::int64_t rows = s.whole_rooms ? s.room : taken[own];
    end += (rows + s.multiple - 1) / s.multiple * s.multiple;
    taken[own] = static_cast<std::int32_t>(end);
  }
  for (std::int64_t i = 0; i < R * k; ++i) {
    seats[i] += seats[i] < 0 ? 0 : taken[choices[i] - s.first - 1];
  }
}

void gather_rows(Stream& /*stream*/,
                 const Tensor& x,
                 const Tensor& seats,
                 const Tensor& taken,
                 const Tensor& rows) {
  const std::int64_t k = seats.shape()[1];
  const std::int64_t C = x.shape()[1];
  std::int32_t* const who = taken.data<std::int32_t>();
  std::fill_n(who, taken.elements(), -1);
  for (std::int64_t i = 0; i < seats.elements(); ++i) {
    if (const std::int32_t seat = seats.data<std::int32_t>()[i]; seat >= 0) {
      who[seat] = static_cast<std::int32_t>(i);
    }
  }
  for (std::int64_t n = 0; n < rows.shape()[0]; ++n) {
    float* const to = rows.data<float>() + n * C;
    if (who[n] >= 0) {
      std::copy_n(x.data<float>() + who[n] / k * C, C, to);
    } else {
      std::fill_n(to, C, 0.0f);
    }
  }
}

void add_rows(Stream& /*stream*/,
              const Tensor& rows,
              const Tensor& seats,
              const Tensor& gates,
              const Tensor& y) {
  const std::int64_t k = seats.shape()[1];
  const std::int64_t C = y.shape()[1];
  for (std::int64_t r = 0; r < y.shape()[0]; ++r) {
    float* const to = y.data<float>() + r * C;
    std::fill_n(to, C, 0.0f);
    for (std::int64_t i = r * k; i < (r + 1) * k; ++i) {
      const std::int32_t seat = seats.data<std::int32_t>()[i];
      if (seat < 0) {
        continue;
      }
      const float* from = rows.data<float>() + seat * C;
      const float gate = gates ? gates.data<float>()[i] : 1.0f;
      for (std::int64_t c = 0; c < C; ++c) {
        to[c] += gate * from[c];
      }
    }
  }
}

void add_rows_gradient(Stream& /*stream*/,
                       const Tensor& dy,
                       const Tensor& seats,
                       const Tensor& gates,
                       const Tensor& rows,
                       const Tensor& by_gates) {
  const std::int64_t k = seats.shape()[1];
  const std::int64_t C = dy.shape()[1];
  for (std::int64_t i = 0; i < seats.elements(); ++i) {
    const std::int32_t seat = seats.data<std::int32_t>()[i];
    float& by_gate = by_gates.data<float>()[i];
    by_gate = 0;
    if (seat >= 0) {
      const float* d = dy.data<float>() + i / k * C;
      float* const row = rows.data<float>() + seat * C;
      const float gate = gates.data<float>()[i];
      by_gate = static_cast<float>(dot(d, row, C));
      for (std::int64_t c = 0; c < C; ++c) {
        row[c] = gate * d[c];
      }
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
