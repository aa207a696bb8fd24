#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Tensor zeros(Stream& stream, std::int64_t elements) {
  Tensor x = stream.allocate({elements});
  fill(stream, x, 0);
  return x;
}

Tensor sum_of(Stream& stream, const std::vector<Term>& terms) {
  Tensor sum = stream.allocate(terms.front().x.shape());
  auto rest = terms.begin();
  std::vector<Term> some;
  do {
    const auto room = static_cast<std::ptrdiff_t>(kTermsMax - some.size());
    const auto end = rest + std::min(room, terms.end() - rest);
    some.insert(some.end(), rest, end);
    combine(stream, some, sum);
    some = {{1, sum}};
    rest = end;
  } while (rest != terms.end());
  return sum;
}

Tensor successor(Stream& stream, const Tensor& x) {
  const bool in_place = x.device().kind == DeviceKind::cpu && x.exclusive();
  return in_place ? x : stream.allocate(x.shape());
}

Updated moved(Stream& stream, Update update, std::vector<Term> by) {
  update.contributions
      .clear();  // what they have read may be the base; the terms keep their tensors
  const Tensor base = std::exchange(update.base, {});
  Updated out;
  out.next = successor(stream, base);
  by.insert(by.begin(), {1, base});
  combine(stream, by, out.next);
  return out;
}

const Contribution& only(const Update& update) {
  TROUPE_CHECK(update.contributions.size() == 1,
               "a step with state for each gradient takes one at a time, not ",
               update.contributions.size());
  return update.contributions.front();
}

Term decayed_gradient(Stream& stream, const Contribution& push, const Tensor& base, double decay) {
  if (decay == 0) {
    return {push.factor, push.values.front()};
  }
  return {1, sum_of(stream, {{push.factor, push.values.front()}, {decay, base}})};
}

namespace {

double weight_of(const Contribution& c, Mean mean) {
  return mean == Mean::by_mini_batches ? static_cast<double>(c.mini_batches) : 1.0;
}

}  // namespace

double mean_share(const Update& update, Mean mean) {
  double shares = 0;
  double total = 0;
  for (const Contribution& c : update.contributions) {
    shares += weight_of(c, mean) * c.rate_share;
    total += weight_of(c, mean);
  }
  return shares / total;
}

Term mean_of(Stream& stream, const Update& update, Mean mean, std::size_t which) {
  double total = 0;
  std::vector<Term> terms;
  for (const Contribution& c : update.contributions) {
    const double weight = weight_of(c, mean) * c.rate_share;
    total += weight;
    terms.push_back({weight * c.factor, c.values.at(which)});
  }
  for (Term& term : terms) {
    term.factor /= total;
  }
  if (terms.size() == 1) {
    return terms.front();
  }
  return {1, sum_of(stream, terms)};
}

SliceLayout layout_of(const RuleContext& context) {
  SliceLayout layout{.pieces = {}, .slice_sizes = {context.elements}};
  for (const RuleContext::Part& part : context.parts) {
    layout.pieces.push_back({0, part.offset, part.shape, part.matrix, part.table});
  }
  return layout;
}

}  // namespace troupe
