// What becomes of a push at a server shard. Three independent parts: an Admission says which pushes
// make an update and who waits, a Scale weakens or corrects a late gradient, a Step makes the new
// weights. The names that users know (replicas.rule, replicas.exchange) are presets of the three;
// a scheme of one's own registers whichever part is new (register_scheme).
#pragma once

#include "experiment.pb.h"
#include "kernels/result.hpp"
#include "kernels/stream.hpp"
#include "messages/update.hpp"
#include "runtime/schemes/rate.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A push that has arrived, as an Admission sees it.
struct Arrival {
  std::int32_t replica = 0;
  std::int64_t batch = 0;         // of the replica: the last mini-batch that it stands for
  std::int64_t mini_batches = 1;  // that it stands for
  std::int64_t read_version = 0;  // oldest version that it was computed at
  double time = 0;                // when it arrived, seconds of the run's clock
};

/// What a shard knows of one replica.
struct Standing {
  bool alive = true;
  std::int64_t clock = 0;    // mini-batches whose pushes have been applied or dropped
  std::int64_t waiting = 0;  // its pushes that are neither applied nor dropped yet
};

/// What a shard knows; all that a decision may rest on.
struct Ledger {
  std::int64_t version = 0;
  std::vector<Standing> replicas;

  std::int32_t living() const;
  /// Least clock of the living; the greatest number where none lives.
  std::int64_t slowest() const;
};

/// Decisions; asked again after every change of the ledger. Const: a decision depends on nothing but
/// its arguments, so that it can be replayed.
class Admission {
 public:
  virtual ~Admission() = default;

  /// False: the push is dropped, its sender gets the newest weights.
  virtual bool accepts(const Arrival& /*push*/, const Ledger& /*ledger*/) const { return true; }

  struct Choice {
    std::vector<std::size_t> take{};  // of `waiting`; empty: no update yet
    std::vector<std::size_t> drop{};  // of `waiting`: given up, as if they had not been accepted
    double ask_again = std::numeric_limits<double>::infinity();  // at this time, if nothing changes
  };

  /// Which of the waiting pushes (in order of arrival; never empty) make the next update. By default
  /// the first.
  virtual Choice choose(const std::vector<Arrival>& waiting,
                        const Ledger& ledger,
                        double now) const;

  /// Whether `replica`, which has pushed and wants weights for its next mini-batch, gets them now.
  /// By default when none of its pushes waits.
  virtual bool answers(std::int32_t replica, const Ledger& ledger) const;

  /// Whether of the same pushes one server may make other updates than another: it drops some, or
  /// takes other sets by when they came. Then one may be at the end while another needs more pushes.
  virtual bool servers_may_differ() const { return false; }

  /// New weights go to every replica unasked, each time the slowest clock has advanced (ESSP).
  virtual bool broadcasts() const { return false; }
};

/// Called in the optimizer's job: tensors are on the stream's device.
class Scale {
 public:
  virtual ~Scale() = default;

  /// The shard is to hand over the weights that each contribution was computed at.
  virtual bool needs_read() const { return false; }

  /// The shard is to keep the weights before the update for observe().
  virtual bool observes() const { return false; }

  /// A number for the whole contribution.
  virtual double weight(const Contribution& /*of*/, const Update& /*update*/) { return 1; }

  /// What takes the place of values[0] (n), which is left as it is: other tensors may share it. Once
  /// for each contribution, before its weight() is multiplied into `factor`, which is clipping's still.
  virtual Tensor correct(Stream& /*stream*/, const Contribution& of, const Update& /*update*/) {
    return of.values.front();
  }

  /// The update has been made. Only where observes().
  virtual void observe(Stream& /*stream*/, const Tensor& /*before*/, const Tensor& /*after*/) {}

  /// Tensors of size n that it keeps, for `plan`; read weights not counted.
  virtual std::int64_t state_tensors() const { return 0; }
};

/// Called in the optimizer's job, one at a time, in the order of versions.
class Step {
 public:
  virtual ~Step() = default;

  /// Contributions have been scaled: values[0] times factor is what counts. `update` may be taken
  /// apart.
  virtual Updated apply(Stream& stream, Update update) = 0;

  /// `replica` is gone for good: its share of the state with it.
  virtual void forget(Stream& /*stream*/, std::int32_t /*replica*/) {}

  /// Tensors of size n that it keeps, for `plan`.
  virtual std::int64_t state_tensors() const { return 0; }
};

/// Option `key` of replicas.rule.custom.values, or `otherwise`.
double custom_value(const proto::Experiment& experiment, std::string_view key, double otherwise);

/// What the parts of a rule are made from: one set a server shard.
struct RuleContext {
  const proto::Experiment& experiment;  // resolved
  std::int32_t replicas = 1;            // R
  Rate rate;
  std::int64_t delay = 0;  // of the chunk in its pipeline, in updates of one replica

  struct Part {  // a tensor of the shard's slice
    std::string name;
    std::int64_t offset = 0;  // elements
    Shape shape;
    bool matrix = false;  // muon orthogonalises it
  };

  std::vector<Part> parts;     // in layer order
  std::int64_t elements = 0;   // n: of the slice, padding included
  std::int64_t in_flight = 1;  // mini-batches that a replica's pipeline works on at once

  /// As custom_value.
  double custom(std::string_view key, double otherwise) const;
};

struct Rule {
  std::unique_ptr<Admission> admission;
  std::unique_ptr<Scale> scale;
  std::unique_ptr<Step> step;
};

/// A scheme: what it is called, and a factory for each part that is its own. An empty factory means:
/// each on arrival; as it comes; by the experiment's optimizer.
struct Scheme {
  std::string name;         // as in replicas.rule, or replicas.rule.custom.name
  std::string summary;      // what it does, one line
  std::string equations{};  // g the push, w the weights, eta, gamma: as in apps/docs/schemes.md
  std::string memory{};     // what a server keeps besides the weights, in copies of them
  std::string paper{};
  std::function<std::unique_ptr<Admission>(const RuleContext&)> admission{};
  std::function<std::unique_ptr<Scale>(const RuleContext&)> scale{};
  std::function<std::unique_ptr<Step>(const RuleContext&)> step{};
  std::vector<std::string> options{};  // keys that custom.values may have; others are refused
  /// A gradient is weakened by how late it is: what is a good learning rate for one replica is one for
  /// many (rate_factor).
  bool bears_delay = false;
  /// Of a registered scheme whose Admission takes several: how many pushes its updates have, in the
  /// mean, so that stop.epochs is as much data as with others, and rate_factor knows. Empty: 1.
  std::function<std::int64_t(const proto::Experiment&)> pushes{};
};

/// Makes a scheme known under its name. Before any experiment is checked. Error (usage) where the
/// name is taken or not in snake_case.
Result<void> register_scheme(Scheme scheme);

/// All of them, built in and registered, by name.
const std::vector<Scheme>& schemes();
const Scheme* find_scheme(std::string_view name);

/// Whether replicas.rule has that name; what is registered is chosen by replicas.rule.custom.name.
bool is_built_in(std::string_view name);

/// What the other exchanges do, for `explain`.
struct ExchangeScheme {
  std::string_view name;  // as in replicas.exchange
  std::string_view summary;
  std::string_view equations;
  std::string_view memory;
  std::string_view paper;
};

const std::vector<ExchangeScheme>& exchange_schemes();

/// The parts for the experiment's exchange and rule, with replicas.admit, scale and step in their
/// places. Of an exchange that has a server: all but hogwild and synchronous by ring or tree.
Rule make_rule(const RuleContext& context);

/// What the learning rate is multiplied by: replicas.rate_factor, or where that is 0 one over the
/// staleness, in updates, that a rule which takes late gradients as they come will meet. 1/n for
/// n-softsync, of which updates on arrival are the case n = R (Gupta et al. 2015, arXiv:1509.04210,
/// section 3.2); 1/(2R) for ssp, essp and wsp, whose replicas meet what the others did a mini-batch
/// later. 1 where nobody is late or the rule bears it.
double rate_factor(const proto::Experiment& experiment);

/// Error (usage) with key, value and what would be right, where exchange, rule, parts, optimizer and
/// pipeline do not go together.
Result<void> check_replicas(const proto::Experiment& experiment);

}  // namespace troupe
