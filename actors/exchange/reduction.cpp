#include "actors/exchange/reduction.hpp"

#include "actors/exchange/link_states.hpp"
#include "actors/pipeline/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "messages/archive.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// Jobs of a linear code.
constexpr const char* kBegin = "begin";
constexpr const char* kNumbers = "numbers";
constexpr const char* kEnd = "end";

}  // namespace

Reduction::Reduction(ChunkOptimizer rule, GradientSum::Config how, std::vector<SummedLink> links)
    : Alone(std::move(rule)),
      mini_batches_(how.replica == 0 ? static_cast<std::int64_t>(how.peers.size()) : 0),
      sum_(std::move(how)),
      links_(std::move(links)),
      states_(links_.size()),
      means_(links_.size()) {
  for (const SummedLink& link : links_) {
    TROUPE_CHECK(link.code->rounds() == rounds(), "a codec has different rounds of sums");
  }
}

void Reduction::sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) {
  if (links_.empty()) {
    sum_.begin(host().push().stamp, std::move(gradient), std::move(tied), fx);
    return;
  }
  run_computed(fx,
               host().push().stamp,
               kBegin,
               [links = links_,
                states = std::exchange(states_, {}),
                gradient = std::move(gradient),
                tied = std::move(tied)](Stream& stream) mutable {
                 add_tied(stream, tied, gradient);
                 Computed made;
                 for (std::size_t s = 0; s < links.size(); ++s) {
                   made.tensors.push_back(links[s].begin(stream, gradient[s], states[s]));
                 }
                 for (LinkState& state : states) {
                   pack(std::move(state), made);
                 }
                 return made;
               });
}

/// The numbers of the next round, twice: a sum writes to what it gets.
void Reduction::code_next(Effects& fx) {
  run_computed(
      fx,
      host().push().stamp,
      kNumbers,
      [links = links_, updates = updates_, means = means_, states = states_](Stream& stream) {
        Computed made;
        for (std::size_t s = 0; s < links.size(); ++s) {
          made.tensors.push_back(links[s].numbers(stream, updates[s], means[s], states[s]));
        }
        for (std::size_t s = 0; s < links.size(); ++s) {
          const Tensor& own = made.tensors[s];
          Tensor copied = stream.allocate(own.shape());
          if (own.elements() > 0) {
            copy(stream, own, copied);
          }
          made.tensors.push_back(std::move(copied));
        }
        return made;
      });
}

void Reduction::read_sum(Effects& fx) {
  run_computed(
      fx,
      host().push().stamp,
      kEnd,
      [links = links_,
       states = std::exchange(states_, {}),
       updates = std::exchange(updates_, {}),
       own = std::exchange(own_, {}),
       means = std::exchange(means_, {})](Stream& stream) mutable {
        Computed made;
        for (std::size_t s = 0; s < links.size(); ++s) {
          made.tensors.push_back(links[s].end(stream, updates[s], own[s], means[s], states[s]));
        }
        for (LinkState& state : states) {
          pack(std::move(state), made);
        }
        return made;
      });
}

void Reduction::came(GradientPart m, double /*now*/, Effects& fx) {
  sum_.came(std::move(m), fx);
}

void Reduction::job_done(Computed m, double now, Effects& fx) {
  const auto slices = static_cast<std::ptrdiff_t>(links_.size());
  if (m.what == kBegin) {
    states_ = unpack(m, links_.size());
    updates_.assign(m.tensors.begin(), m.tensors.begin() + slices);
    means_.assign(links_.size(), {});
    code_next(fx);
  } else if (m.what == kNumbers) {
    own_.assign(m.tensors.begin() + slices, m.tensors.end());
    m.tensors.resize(links_.size());
    sum_.begin(host().push().stamp,
               std::move(m.tensors),
               {},
               fx,
               static_cast<std::int32_t>(means_.front().size()));
  } else if (m.what == kEnd) {
    states_ = unpack(m, links_.size());
    m.tensors.resize(links_.size());
    host().summed(std::move(m.tensors), now, fx);
  } else if (sum_.job_done(m, fx)) {
    summed(std::move(m.tensors), now, fx);
  }
}

/// `mean`: of gradients, or of a round's numbers.
void Reduction::summed(std::vector<Tensor> mean, double now, Effects& fx) {
  if (links_.empty()) {
    host().summed(std::move(mean), now, fx);
    return;
  }
  for (std::size_t s = 0; s < links_.size(); ++s) {
    means_[s].push_back(std::move(mean[s]));
  }
  if (means_.front().size() < rounds()) {
    code_next(fx);
  } else {
    read_sum(fx);
  }
}

std::string Reduction::waits_for() const {
  return sum_.active() ? sum_.waits_for() : "";
}

void Reduction::archive(Archive& a) {
  Alone::archive(a);
  a(sum_, states_, updates_, own_, means_);
}

}  // namespace troupe
