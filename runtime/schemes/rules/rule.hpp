// What becomes of a push at a server. Three independent parts: an Admission says which pushes
// make an update and who waits, a Scale weakens or corrects a late gradient, a Step makes the new
// weights. The names that users know (replicas.rule, replicas.exchange) are presets of the three;
// a scheme of one's own registers whichever part is new (register_rule).
#pragma once

#include "kernels/result.hpp"
#include "kernels/stream.hpp"
#include "messages/proto.hpp"
#include "messages/update.hpp"
#include "runtime/schemes/exchanges/link.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/rules/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class Archive;
class OptimizerStep;

/// A push that has arrived, as an Admission sees it.
struct Arrival {
  std::int32_t replica = 0;
  std::int64_t batch = 0;         // of the replica: the last mini-batch that it stands for
  std::int64_t mini_batches = 1;  // that it stands for
  std::int64_t read_version = 0;  // oldest version that it was computed at
  double time = 0;                // when it arrived, seconds of the run's clock
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
    /// Of an empty choice that may name it: it stays empty until that many more pushes have come, the version is
    /// another one, or somebody has died or come back. So one that needs many is not looked for at each of them.
    std::size_t more = 0;
  };

  /// Which of the waiting pushes (in order of arrival; never empty) make the next update. By default
  /// the first.
  virtual Choice choose(const std::vector<Arrival>& waiting,
                        const Ledger& ledger,
                        double now) const;

  /// Whether `replica`, which has pushed and wants weights for its next mini-batch, gets them now.
  /// By default when none of its pushes waits.
  virtual bool answers(std::int32_t replica, const Ledger& ledger) const;

  /// A number that is another one where answers() may say yes of a replica whose own Standing has not changed since it
  /// said no. By default it is so at each change of the ledger, which is right for every class and makes the server ask
  /// for everybody who waits. A class whose answers rest on the asker's Standing alone says 0, one that also looks at
  /// the slowest clock says that.
  virtual std::int64_t answers_by(const Ledger& ledger) const;

  /// Whether of the same pushes one server may make other updates than another: it drops some, or
  /// takes other sets by when they came. Then one server decides for all of them, so that a gradient is
  /// in the update of each of its parts or of none. Not where each push is of one slice alone and no
  /// replica waits for an answer (mode decoupled of diloco): there is no gradient with parts, and no circle.
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

  /// Contributions are to have their `aim` (Step::aim), which a gap is measured from.
  virtual bool needs_aim() const { return false; }

  /// A number for the whole contribution: its gradient counts so much.
  virtual double weight(const Contribution& /*of*/, const Update& /*update*/) { return 1; }

  /// A share of the learning rate for the whole contribution. The same as weight() for a Step that is
  /// linear in the gradient; others divide a gradient's size out again and are given the share itself.
  virtual double rate_share(const Contribution& /*of*/, const Update& /*update*/) { return 1; }

  /// What takes the place of values[0] (n), which is left as it is: other tensors may share it. Once
  /// for each contribution, before its weight() is multiplied into `factor`, which is clipping's still.
  virtual Tensor correct(Stream& /*stream*/, const Contribution& of, const Update& /*update*/) {
    return of.values.front();
  }

  /// The update has been made. Only where observes().
  virtual void observe(Stream& /*stream*/, const Tensor& /*before*/, const Tensor& /*after*/) {}

  /// Tensors of size n that it keeps, for `plan`; read weights not counted.
  virtual std::int64_t state_tensors() const { return 0; }

  /// Writes what it keeps from one update to the next, or reads it back, for checkpoints. By default
  /// nothing; ArchiveError where state_tensors() tells of something.
  virtual void archive(Archive& a);
};

/// Called in the optimizer's job, one at a time, in the order of versions.
class Step {
 public:
  virtual ~Step() = default;

  /// Contributions have been scaled: values[0] times factor is what counts. `update` may be taken
  /// apart.
  virtual Updated apply(Stream& stream, Update update) = 0;

  /// It is not linear in the gradient, and makes its step at the mean of the contributions' shares of
  /// the rate (Contribution::rate_share). Where it does not, a share is multiplied into `factor`.
  virtual bool takes_rates() const { return false; }

  /// Where the momentum that is the sender's own leads from `base`: the point that it would have
  /// computed at had nobody else pushed since. Empty: `base`. Only asked where Scale::needs_aim().
  virtual Tensor aim(Stream& /*stream*/, const Contribution& /*of*/, const Tensor& /*base*/) {
    return {};
  }

  /// `replica` is gone for good: its share of the state with it.
  virtual void forget(Stream& /*stream*/, std::int32_t /*replica*/) {}

  /// The experiment's optimizer, where it makes the step and its state is all that is kept: a run on another topology
  /// goes on with that. Null: such a run begins with an empty state.
  virtual OptimizerStep* optimizer() { return nullptr; }

  /// Tensors of size n that it keeps, for `plan`.
  virtual std::int64_t state_tensors() const { return 0; }

  /// As Scale::archive.
  virtual void archive(Archive& a);
};

/// Option `key` of replicas.rule.custom.values, or `otherwise`.
double custom_value(const proto::Experiment& experiment, std::string_view key, double otherwise);

/// What the parts of a rule are made from: one set a server.
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
    bool table = false;   // an embedding
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

/// A rule: what it is called, a factory for each part that is its own, and all that the runtime has
/// to know of these parts. An empty factory means: each on arrival; as it comes; by the experiment's
/// optimizer. Built-in rules and those of a program of one's own are registered alike.
struct RuleScheme {
  SchemeInfo info;          // chosen by replicas.rule, or replicas.rule.custom.name
  std::string equations{};  // g the push, w the weights, eta, gamma: as in apps/docs/schemes.md
  std::string memory{};     // what a server keeps besides the weights, in copies of them
  std::function<std::unique_ptr<Admission>(const RuleContext&)> admission{};
  std::function<std::unique_ptr<Scale>(const RuleContext&)> scale{};
  std::function<std::unique_ptr<Step>(const RuleContext&)> step{};

  // -- of its replicas

  /// What travels to the servers and when, where it is not each gradient by itself. Changes the Link
  /// that the exchange has made.
  std::function<void(Link&, const proto::Experiment&)> link{};

  // -- of its Admission

  /// How many pushes its updates have, in the mean: stop.epochs is then as much data as with other
  /// rules. Empty: 1.
  std::function<std::int64_t(const proto::Experiment&)> pushes{};
  /// By how many updates a gradient is late where nothing is done about it; rate_factor is one over
  /// it. Empty: as many as there are replicas, divided by `pushes`.
  std::function<double(const proto::Experiment&)> staleness{};
  /// By how many updates a gradient is late in the mean, of a chunk that is `delay` updates of its own
  /// replica late: affine in `delay`. What predictions look ahead. Empty: every push finds R (delay +
  /// 1) - 1 others before it, `pushes` of which are an update.
  std::function<double(const proto::Experiment&, double delay)> lag{};
  /// Each push makes an update of its own, and none is dropped. An empty factory does so.
  bool applies_each = false;
  /// It gives up pushes (Admission::accepts, Choice::drop).
  bool gives_up = false;

  // -- of its Scale

  /// A gradient is weakened by how late it is, or computed where it will be met: what is a good
  /// learning rate for one replica is one for many. Of a Step, too.
  bool bears_delay = false;
  /// It corrects by the weights that a gradient was computed at (Scale::needs_read).
  bool corrects = false;
  /// It has a number for each push (Scale::weight, rate_share) and asks nothing of what the push consists of, so
  /// that this need not be a gradient.
  bool by_number = false;

  // -- of its Step

  /// It has a momentum of its own (optimizer.momentum) in place of optimizer.rule's.
  bool own_momentum = false;
  /// The values of optimizer.rule that may stand where it makes the step in their place; empty: all.
  std::vector<std::string> optimizers{};
  /// It keeps something for each gradient, so that an update is of one.
  bool one_at_a_time = false;
  /// It answers each replica with weights of its own (Updated::answers), so that no codec can say what has
  /// changed for all of them.
  bool answers_each = false;
  /// It divides a gradient by its own size.
  bool normalises = false;
  /// It counts mini-batch by mini-batch, so that a push stands for one.
  bool counts_each = false;
  /// The weights that it sends lead elsewhere than where pipeline policies predict.
  bool sends_elsewhere = false;
  /// Its changes add up in any order, so that another Admission may decide on them.
  bool any_admission = false;

  /// Each gradient makes a step of the experiment's optimizer, as it would without a server.
  bool adds_nothing() const { return !admission && !scale && !step && !link; }
};

/// Makes a rule known under its name. Before any experiment is checked. Error (usage) where the name
/// is taken or not in snake_case.
Result<void> register_rule(RuleScheme rule);

/// All of them, built in and registered.
const Registry<RuleScheme>& rules();

/// The rules whose parts an experiment takes: of replicas.admit, scale, step where they are chosen,
/// else of replicas.rule. ContractError where there is none.
const RuleScheme& rule_of(const proto::Replicas& replicas);
const RuleScheme& admission_of(const proto::Replicas& replicas);
const RuleScheme& scale_of(const proto::Replicas& replicas);
const RuleScheme& step_of(const proto::Replicas& replicas);

/// Whether replicas.rule is one that adds nothing, and no part is chosen in its place. One that is not registered adds
/// something.
bool adds_nothing(const proto::Replicas& replicas);

/// The parts of a parameter server's rule, with replicas.admit, scale and step in their places.
Rule make_server_rule(const RuleContext& context);

}  // namespace troupe
