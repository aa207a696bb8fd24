// What gives modules their error signals, by classes of Python (troupe/modules.py).
#include "runtime/schemes/decoupled/decoupled.hpp"

#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

/// The facts of ModuleContext, which may be kept, and what makes constants.
struct ToldModule {
  explicit ToldModule(const ModuleContext& c)
      : seed(c.seed), chunk(c.chunk), width(c.width), outputs(c.outputs), classes(c.classes) {}

  /// Each is made once: a function that is asked for an error asks for it each time.
  nb::object matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    Tensor& kept = matrices[{name, rows, columns}];
    if (!kept) {
      Stream stream{Device{}};  // decoupled modules are the CPU's
      kept = feedback_matrix(stream, seed, name, rows, columns);
    }
    return array_of(kept);
  }

  std::uint64_t seed;
  std::int32_t chunk;
  std::int64_t width;
  std::int64_t outputs;
  std::int64_t classes;
  std::vector<std::tuple<std::size_t, std::int64_t, std::int64_t>> weights{};
  std::function<std::vector<Tensor>(std::uint64_t)> initial_slices{};  // empty when it is made
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, Tensor> matrices{};
};

nb::object array_or_none(const Tensor& tensor) {
  return tensor ? array_of(tensor) : nb::none();
}

/// An object with error(inputs) -> array, backward(read) -> arrays, or both.
class PythonSignal final : public ModuleSignal {
 public:
  PythonSignal(nb::handle object, const std::string& name)
      : error_(object, name, "error"), backward_(object, name, "backward") {}

  Weights backward(Weights read) const override {
    return backward_ ? with_python(backward_.where(), [&] { return moved(read); }) : read;
  }

  Tensor error(Stream& stream, const SignalInputs& in) const override {
    if (!error_) {
      return in.sent;
    }
    return with_python(error_.where(), [&] {
      const auto made = error_.call<nb::object>(in);
      const Tensor error = tensor_of(made, stream, error_.where() + ": what it returns");
      if (error.type() != DType::float32 || error.elements() != in.output.elements()) {
        throw PythonFailed(concat(error_.where(),
                                  " returned an array of ",
                                  error.elements(),
                                  " numbers; right are float32 of the output's shape, ",
                                  in.output.elements()));
      }
      return error.reshape(in.output.shape());
    });
  }

 private:
  Weights moved(Weights read) const {
    nb::list slices;
    for (const Slice& slice : read) {
      slices.append(array_of(slice.values));
    }
    Stream stream{Device{}};
    const auto made = backward_.call<nb::object>(slices);
    const std::vector<Tensor> all = tensors_of(made, stream, backward_.where() + ": an array");
    if (all.size() != read.size()) {
      throw PythonFailed(
          concat(backward_.where(), " returned ", all.size(), " slices; right are ", read.size()));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].type() != DType::float32 || all[i].shape() != read[i].values.shape()) {
        throw PythonFailed(
            concat(backward_.where(), ": slice ", i, " is no float32 array of the shape it was"));
      }
      read[i].values = all[i];
    }
    return read;
  }

  Method error_;
  Method backward_;
};

SignalFrom from_of(const std::string& text) {
  static const std::map<std::string, SignalFrom> all{{"next", SignalFrom::next},
                                                     {"head", SignalFrom::head},
                                                     {"nobody", SignalFrom::nobody},
                                                     {"predictor", SignalFrom::predictor}};
  const auto found = all.find(text);
  if (found == all.end()) {
    throw nb::value_error("signal_from is next, head, nobody or predictor");
  }
  return found->second;
}

/// Of a dictionary with PredictorPlan's members; others are refused.
PredictorPlan plan_of(const nb::dict& told, const std::string& where) {
  PredictorPlan plan;
  const std::map<std::string, std::function<void(nb::handle)>> members{
      {"hidden",
       [&](nb::handle v) {
         plan.hidden = nb::cast<std::vector<std::int64_t>>(v);
       }},
      {"kernel",
       [&](nb::handle v) {
         plan.kernel = nb::cast<std::int64_t>(v);
       }},
      {"conditioned",
       [&](nb::handle v) {
         plan.conditioned = nb::cast<bool>(v);
       }},
      {"head",
       [&](nb::handle v) {
         plan.head = nb::cast<bool>(v);
       }},
      {"pool",
       [&](nb::handle v) {
         plan.pool = nb::cast<std::int64_t>(v);
       }},
      {"similarity",
       [&](nb::handle v) {
         plan.similarity = nb::cast<double>(v);
       }},
      {"buffer", [&](nb::handle v) {
         plan.buffer = nb::cast<std::int64_t>(v);
       }}};
  for (const auto& [key, value] : told) {
    const auto member = members.find(nb::cast<std::string>(key));
    if (member == members.end()) {
      throw PythonFailed(concat(where, ": a predictor has no ", nb::str(key).c_str()));
    }
    member->second(value);
  }
  return plan;
}

void register_python_decoupled(nb::handle decoupled) {
  const SchemeInfo info = info_of(decoupled);
  DecoupledScheme scheme{.info = info,
                         .from = from_of(nb::cast<std::string>(decoupled.attr("signal_from"))),
                         .signal = nb::cast<std::string>(decoupled.attr("equations")),
                         .locks = nb::cast<std::string>(decoupled.attr("locks")),
                         .influence = nb::cast<bool>(decoupled.attr("influence"))};
  if (scheme.from == SignalFrom::predictor) {
    scheme.predictor = [of = hold(decoupled), info](const proto::Experiment&,
                                                    const OptionValues& values) {
      const std::string where = info.name + ".predictor";
      return with_python(where, [&] {
        const nb::object made =
            of->get()(values_of(info.options, values), nb::none()).attr("predictor")();
        return plan_of(nb::cast<nb::dict>(made), where);
      });
    };
  } else {
    scheme.module = [of = hold(decoupled),
                     info](const ModuleContext& c) -> std::shared_ptr<const ModuleSignal> {
      return with_python(info.name, [&] {
        const nb::object told = nb::cast(ToldModule(c));
        auto& module = nb::cast<ToldModule&>(told);
        for (const SlicePart& part : c.weights) {
          module.weights.emplace_back(part.slice, part.offset, part.elements);
        }
        module.initial_slices = c.initial_slices;
        const nb::object object = of->get()(values_of(info.options, c.values), told);
        module.initial_slices = {};  // of what lives no longer than this
        return std::make_shared<const PythonSignal>(object, info.name);
      });
    };
  }
  raise_where_refused(register_decoupled(std::move(scheme)));
}

}  // namespace

void bind_decoupled(nb::module_& m) {
  nb::class_<SignalInputs>(m, "SignalInputs")
      .def_prop_ro("output", [](const SignalInputs& in) { return array_or_none(in.output); })
      .def_prop_ro("labels", [](const SignalInputs& in) { return array_or_none(in.labels); })
      .def_prop_ro("sent", [](const SignalInputs& in) { return array_or_none(in.sent); })
      .def_prop_ro("influence", [](const SignalInputs& in) { return array_or_none(in.influence); });
  nb::class_<ToldModule>(m, "Module")
      .def_ro("seed", &ToldModule::seed)
      .def_ro("chunk", &ToldModule::chunk)
      .def_ro("width", &ToldModule::width)
      .def_ro("outputs", &ToldModule::outputs)
      .def_ro("classes", &ToldModule::classes)
      .def_ro("weights", &ToldModule::weights)
      .def("matrix", &ToldModule::matrix)
      .def("initial", [](const ToldModule& module, std::uint64_t seed) {
        if (!module.initial_slices) {
          throw nb::value_error("initial() is for __init__ alone");
        }
        return arrays_of(module.initial_slices(seed));
      });
  m.def("register_decoupled", &register_python_decoupled);
}

}  // namespace troupe::python
