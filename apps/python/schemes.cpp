#include "apps/python/schemes.hpp"

#include "apps/python/arrays.hpp"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>

namespace troupe::python {
namespace {

// -- what Python is told: copies, so that they may be kept ----------------------------------------

struct ToldContribution {
  std::int32_t replica;
  std::int64_t mini_batches;
  std::int64_t steps;
  std::int64_t lag;
  double rate;
};

ToldContribution told(const Contribution& c) {
  return {c.replica, c.mini_batches, c.steps, c.lag, c.rate};
}

struct ToldUpdate {
  std::int64_t version;
  double rate;
  double next_rate;
  std::size_t contributions;
};

ToldUpdate told(const Update& u) {
  return {u.version, u.rate, u.next_rate, u.contributions.size()};
}

struct ToldLedger {
  std::int64_t version;
  std::int32_t living;
  std::int64_t slowest;
};

ToldLedger told(const Ledger& ledger) {
  return {ledger.version, ledger.living(), ledger.slowest()};
}

// -- rules ------------------------------------------------------------------------------------------

class PythonScale final : public Scale {
 public:
  PythonScale(nb::handle object, const std::string& name)
      : weight_(object, name, "weight"),
        share_(object, name, "rate_share"),
        correct_(object, name, "correct") {}

  double weight(const Contribution& of, const Update& update) override {
    return weight_ ? weight_.call<double>(told(of), told(update)) : 1;
  }

  double rate_share(const Contribution& of, const Update& update) override {
    return share_ ? share_.call<double>(told(of), told(update)) : 1;
  }

  Tensor correct(Stream& stream, const Contribution& of, const Update& update) override {
    if (!correct_) {
      return of.values.front();
    }
    return with_python(correct_.where(), [&] {
      const auto made = correct_.call<nb::object>(
          array_of(of.values.front()), array_of(update.base), told(of), told(update));
      return tensor_of(made, stream, correct_.where() + ": what it returns");
    });
  }

 private:
  Method weight_;
  Method share_;
  Method correct_;
};

class PythonAdmission final : public Admission {
 public:
  PythonAdmission(nb::handle object, const std::string& name)
      : accepts_(object, name, "accepts"), choose_(object, name, "choose") {}

  bool accepts(const Arrival& push, const Ledger& ledger) const override {
    return !accepts_ || accepts_.call<bool>(push, told(ledger));
  }

  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double now) const override {
    if (!choose_) {
      return Admission::choose(waiting, ledger, now);
    }
    return with_python(choose_.where(), [&] {
      const auto made = choose_.call<nb::object>(waiting, told(ledger), now);
      return Choice{.take = nb::cast<std::vector<std::size_t>>(made[0]),
                    .drop = nb::cast<std::vector<std::size_t>>(made[1])};
    });
  }

  bool servers_may_differ() const override { return true; }

 private:
  Method accepts_;
  Method choose_;
};

void register_python_rule(nb::handle rule) {
  const SchemeInfo info = info_of(rule);
  const auto make = [of = hold(rule), info](const RuleContext& c) {
    return hold(of->get()(
        values_of(info.options,
                  [&](const Option& option) { return c.custom(option.name, option.number); }),
        c.replicas));
  };
  RuleScheme scheme{.info = info,
                    .equations = nb::cast<std::string>(rule.attr("equations")),
                    .memory = nb::cast<std::string>(rule.attr("memory")),
                    .gives_up = nb::cast<bool>(rule.attr("gives_up")),
                    .bears_delay = nb::cast<bool>(rule.attr("bears_delay"))};
  scheme.scale = [make, name = info.name](const RuleContext& c) -> std::unique_ptr<Scale> {
    return with_python(name, [&] { return std::make_unique<PythonScale>(make(c)->get(), name); });
  };
  if (nb::hasattr(rule, "accepts") || nb::hasattr(rule, "choose")) {
    scheme.admission = [make,
                        name = info.name](const RuleContext& c) -> std::unique_ptr<Admission> {
      return with_python(name,
                         [&] { return std::make_unique<PythonAdmission>(make(c)->get(), name); });
    };
  }
  if (nb::hasattr(rule, "pushes")) {
    scheme.pushes = [of = hold(rule), info](const proto::Experiment& experiment) {
      return with_python(info.name + ".pushes", [&] {
        const nb::dict values = values_of(info.options, [&](const Option& option) {
          return custom_value(experiment, option.name, option.number);
        });
        return nb::cast<std::int64_t>(
            of->get()(values, sections::replica_count(experiment)).attr("pushes")());
      });
    };
  }
  raise_where_refused(register_rule(std::move(scheme)));
}

// -- weight policies ----------------------------------------------------------------------------------

View view_of(nb::handle made, const std::string& name) {
  static const std::map<std::string, ReachKind> kinds{{"none", ReachKind::none},
                                                      {"linear", ReachKind::linear},
                                                      {"geometric", ReachKind::geometric},
                                                      {"displacement", ReachKind::displacement}};
  const auto kind = kinds.find(nb::cast<std::string>(made[1]));
  if (kind == kinds.end()) {
    throw PythonFailed(name + ": a reach is none, linear, geometric or displacement");
  }
  return {nb::cast<std::int64_t>(made[0]), reach_of(kind->second, nb::cast<std::int64_t>(made[2]))};
}

class PythonPolicy final : public ViewPolicy {
 public:
  PythonPolicy(nb::handle object, const std::string& name)
      : forward_(object, name, "forward"), backward_(object, name, "backward") {}

  View forward(const Action& action) const override { return view(forward_, action); }

  bool stashes() const override { return !backward_; }

 private:
  View unstashed(const Action& action, std::int64_t /*forward_natural*/) const override {
    return view(backward_, action);
  }

  static View view(const Method& method, const Action& action) {
    return with_python(method.where(),
                       [&] { return view_of(method.call<nb::object>(action), method.where()); });
  }

  Method forward_;
  Method backward_;
};

void register_python_policy(nb::handle policy) {
  const SchemeInfo info = info_of(policy);
  const auto make = [of = hold(policy), info](const OptionValues& values) {
    return hold(of->get()(values_of(info.options, values)));
  };
  PolicyScheme scheme{.info = info,
                      .reads = nb::cast<std::string>(policy.attr("reads")),
                      .newest_only = nb::cast<bool>(policy.attr("newest_only")),
                      .predicts = nb::cast<bool>(policy.attr("predicts"))};
  scheme.view = [make, name = info.name](const WeightContext& c, const Schedule&) {
    return with_python(
        name, [&] { return std::make_shared<const PythonPolicy>(make(c.values)->get(), name); });
  };
  if (nb::hasattr(policy, "length")) {
    scheme.length = [make, name = info.name](const OptionValues& values, std::int64_t horizon) {
      return with_python(name + ".length", [&] {
        return nb::cast<double>(make(values)->get().attr("length")(horizon));
      });
    };
  }
  raise_where_refused(register_policy(std::move(scheme)));
}

}  // namespace

SchemeInfo info_of(nb::handle of) {
  SchemeInfo info{.name = nb::cast<std::string>(of.attr("name")),
                  .summary = nb::cast<std::string>(of.attr("summary")),
                  .paper = nb::cast<std::string>(of.attr("paper")),
                  .replaces = true};
  for (const nb::handle one : of.attr("options")) {
    info.options.push_back({.name = nb::cast<std::string>(one.attr("name")),
                            .doc = nb::cast<std::string>(one.attr("doc")),
                            .number = nb::cast<double>(one.attr("default")),
                            .at_least = nb::cast<double>(one.attr("at_least")),
                            .at_most = nb::cast<double>(one.attr("at_most"))});
  }
  return info;
}

void archive_state(Archive& a, nb::handle object, const std::string& name) {
  std::vector<double> numbers;
  std::vector<Tensor> tensors;
  with_python(name + ".state", [&] {
    if (!nb::hasattr(object, "state")) {
      throw ArchiveError(name +
                         " has no checkpoints: it lacks state() and restore(numbers, arrays)");
    }
    if (!a.reading()) {
      const nb::object kept = object.attr("state")();
      Stream stream{Device{}};
      numbers = nb::cast<std::vector<double>>(kept[0]);
      tensors = tensors_of(kept[1], stream, name + ".state: an array");
    }
  });
  a(numbers, tensors);
  if (a.reading()) {
    with_python(name + ".restore", [&] { object.attr("restore")(numbers, arrays_of(tensors)); });
  }
}

void raise_where_refused(const Result<void>& made) {
  if (!made) {
    throw nb::value_error(made.error().message.c_str());
  }
}

void bind_schemes(nb::module_& m) {
  nb::class_<ToldContribution>(m, "Contribution")
      .def_ro("replica", &ToldContribution::replica)
      .def_ro("mini_batches", &ToldContribution::mini_batches)
      .def_ro("steps", &ToldContribution::steps)
      .def_ro("lag", &ToldContribution::lag)
      .def_ro("rate", &ToldContribution::rate);
  nb::class_<ToldUpdate>(m, "Update")
      .def_ro("version", &ToldUpdate::version)
      .def_ro("rate", &ToldUpdate::rate)
      .def_ro("next_rate", &ToldUpdate::next_rate)
      .def_ro("contributions", &ToldUpdate::contributions);
  nb::class_<ToldLedger>(m, "Ledger")
      .def_ro("version", &ToldLedger::version)
      .def_ro("living", &ToldLedger::living)
      .def_ro("slowest", &ToldLedger::slowest);
  nb::class_<Arrival>(m, "Arrival")
      .def_ro("replica", &Arrival::replica)
      .def_ro("batch", &Arrival::batch)
      .def_ro("mini_batches", &Arrival::mini_batches)
      .def_ro("read_version", &Arrival::read_version)
      .def_ro("time", &Arrival::time);
  nb::class_<Action>(m, "Action")
      .def_ro("chunk", &Action::chunk)
      .def_ro("batch", &Action::batch)
      .def_ro("micro_batch", &Action::micro_batch)
      .def_ro("natural", &Action::natural)
      .def_prop_ro("distance", &Action::distance);
  m.def("register_rule", &register_python_rule);
  m.def("register_policy", &register_python_policy);
}

}  // namespace troupe::python
