#include "apps/python/layer.hpp"

#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"
#include "kernels/elementwise.hpp"
#include "runtime/model/registry.hpp"

#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

/// Of (name, shape, flags) each, with flags out of "one", "uniform", "matrix", "tied", "table".
std::vector<ParameterSpec> specs_of(nb::handle list) {
  std::vector<ParameterSpec> all;
  for (const nb::handle one : list) {
    const auto flags = nb::cast<std::set<std::string>>(one[2]);
    const Shape shape = shape_of(one[1]);
    all.push_back({.name = nb::cast<std::string>(one[0]),
                   .shape = shape,
                   .initial = flags.contains("one")       ? Initial::one
                              : flags.contains("uniform") ? Initial::uniform_fan_in
                                                          : Initial::zero,
                   .fan_in = shape.elements() / shape[0],
                   .matrix = flags.contains("matrix"),
                   .tied = flags.contains("tied"),
                   .table = flags.contains("table")});
  }
  return all;
}

/// A Python object with the facts below, forward(w, buffers, x, training, seed, first_sample, stream) -> (y, kept,
/// buffers), backward(kept, w, dy, want_dx, same_weights, stream) -> (dx, kept), and gradients(kept) -> arrays. `stream`: as
/// native_stream; on a GPU all that is given and taken is used there.
class PythonLayer final : public Layer {
 public:
  explicit PythonLayer(nb::handle object)
      : Layer(nb::cast<std::string>(object.attr("name"))),
        object_(hold(object)),
        parameters_(specs_of(object.attr("parameters"))),
        buffers_(specs_of(object.attr("buffers"))),
        output_(shape_of(object.attr("output"))),
        flops_(nb::cast<double>(object.attr("flops"))),
        saved_bytes_(nb::cast<std::int64_t>(object.attr("saved_bytes"))),
        reads_(nb::cast<bool>(object.attr("reads"))) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_; }

  std::vector<ParameterSpec> buffers() const override { return buffers_; }

  void shapes(BundleShape& bundle) const override { bundle.front().shape = output_; }

  Flops flops() const override { return {flops_, flops_, flops_}; }

  std::int64_t saved_bytes() const override { return saved_bytes_; }

  void forward(const Pass& pass,
               Parameters w,
               LayerBuffers buffers,
               Bundle& bundle,
               Saved& saved) const override {
    const std::string where = name() + ".forward";
    with_python(where, [&] {
      const nb::object made =
          object_->get().attr("forward")(arrays_of(w, pass.stream),
                                         arrays_of(buffers, pass.stream),
                                         array_of(bundle.front().tensor, pass.stream),
                                         pass.training,
                                         pass.seed,
                                         pass.first_sample,
                                         native_stream(pass.stream));
      bundle.front().tensor = tensor_of(made[0], pass.stream, where + ": y");
      if (pass.training) {
        saved = {token(made[1], first(w))};
        const nb::object all = made[2];
        const std::size_t count = nb::len(all);
        if (count != buffers.size()) {
          throw PythonFailed(
              concat(where, " returned ", count, " buffers; expected ", buffers.size()));
        }
        for (std::size_t i = 0; i < count; ++i) {
          buffers[i] = tensor_of(all[i], pass.stream, where + ": a buffer");
        }
      }
    });
  }

  void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const override {
    const std::string where = name() + ".backward";
    with_python(where, [&] {
      const Token kept = token_of(saved.front());
      const bool same = kept.mark == first(w);
      const nb::object made =
          object_->get().attr("backward")(kept.object,
                                          same && !reads_ ? nb::list() : arrays_of(w, pass.stream),
                                          array_of(error.front().tensor, pass.stream),
                                          want_dx,
                                          same,
                                          native_stream(pass.stream));
      error.front().tensor = want_dx ? tensor_of(made[0], pass.stream, where + ": dx") : Tensor{};
      saved = {token(made[1], nullptr)};
    });
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    const std::string where = name() + ".gradients";
    with_python(where, [&] {
      const nb::object made = object_->get().attr("gradients")(token_of(saved.front()).object);
      const std::size_t count = nb::len(made);
      if (count != g.size()) {
        throw PythonFailed(concat(
            where, " returned ", count, " gradients; expected ", g.size(), ", one a parameter"));
      }
      for (std::size_t i = 0; i < count; ++i) {
        add_to(g[i], made[i], stream, where);
      }
    });
  }

 private:
  static std::string no_gradient(const std::string& where, std::int64_t numbers) {
    return concat(where, ": a gradient is no contiguous float32 array of ", numbers, " numbers");
  }

  static const void* first(Parameters w) { return w.empty() ? nullptr : w.front().data<float>(); }

  static void add_to(const Gradient& to,
                     nb::handle gradient,
                     Stream& stream,
                     const std::string& where) {
    if (stream.device().kind == DeviceKind::cuda) {
      const Tensor given = tensor_of(gradient, stream, where + ": a gradient");
      if (given.type() != DType::float32 || given.elements() != to.to.elements()) {
        throw PythonFailed(no_gradient(where, to.to.elements()));
      }
      if (to.accumulate) {
        troupe::add(stream, to.to, given.reshape(to.to.shape()), ActivationKind::none, to.to);
      } else {
        copy(stream, given.reshape(to.to.shape()), to.to);
      }
      return;
    }
    nb::ndarray<const float, nb::c_contig, nb::device::cpu> given;
    const auto out = to.to.span<float>();
    if (!nb::try_cast(gradient, given) || given.size() != out.size()) {
      throw PythonFailed(no_gradient(where, to.to.elements()));
    }
    if (!to.accumulate) {
      std::memcpy(out.data(), given.data(), given.nbytes());
      return;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += given.data()[i];
    }
  }

  HeldRef object_;
  std::vector<ParameterSpec> parameters_;
  std::vector<ParameterSpec> buffers_;
  Shape output_;
  double flops_;
  std::int64_t saved_bytes_;
  bool reads_;  // weights in a backward that are those of its forward
};

/// A Python function judge(outputs, targets, gradient or None, stream) -> (mean, right).
OwnLoss loss_of(nb::handle judge) {
  return [held = hold(judge)](
             Stream& stream, const Tensor& y, const Tensor& target, const Tensor& gradient) {
    return with_python("loss", [&] {
      const nb::object made = held->get()(array_of(y, stream),
                                          array_of(target, stream),
                                          gradient ? array_of(gradient, stream) : nb::none(),
                                          native_stream(stream));
      return Judged{nb::cast<double>(made[0]), nb::cast<std::int64_t>(made[1])};
    });
  };
}

Result<void> build(const HeldRef& builder, Network& network, const NetworkContext& context) {
  try {
    with_python("model", [&] {
      const nb::object made =
          builder->get()(context.values.text("id"), tuple_of(network.input), context.outputs);
      for (const nb::handle layer : made[0]) {
        network.add(std::make_shared<PythonLayer>(layer));
      }
      network.start = nb::cast<std::string>(made[2]);
      if (const nb::object judge = made[1]; !judge.is_none()) {
        network.loss = Loss::own;
        network.own_loss = loss_of(judge);
      }
    });
    return {};
  } catch (const PythonFailed& failed) {
    return Error{ErrorKind::usage, failed.what()};
  }
}

}  // namespace

std::shared_ptr<const Layer> layer_of(nb::handle object) {
  return std::make_shared<PythonLayer>(object);
}

void bind_layers(nb::module_& m) {
  m.def("register_networks", [](nb::handle builder) {
    raise_where_refused(register_network(
        {.info = {.name = "python",
                  .summary = "a network whose layers are Python objects",
                  .options = {{.name = "id",
                               .doc = "which of the process's networks",
                               .kind = Option::Kind::text}},
                  .replaces = true},
         .build = [held = hold(builder)](
                      Network& network,
                      const NetworkContext& context) { return build(held, network, context); },
         .tokens = true}));
  });
}

}  // namespace troupe::python
