// Optimizers, codecs and layers that are classes of Python (troupe/schemes.py).
#include "apps/python/arrays.hpp"
#include "apps/python/layer.hpp"
#include "apps/python/schemes.hpp"
#include "experiment/codecs.pb.h"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

bool flag_of(nb::handle of, const char* name) {
  return nb::cast<bool>(of.attr(name));
}

std::string text_of(nb::handle of, const char* name) {
  return nb::cast<std::string>(of.attr(name));
}

/// Numbers that an array has to be, as many as `size`. Nothing is converted: what that made would live no longer than this.
template <class T>
const T* numbers_of(nb::handle array, std::size_t size, const std::string& what) {
  nb::ndarray<const T, nb::c_contig, nb::device::cpu> given;
  if (!nb::try_cast(array, given, false) || given.size() != size) {
    throw PythonFailed(concat(what, " is no contiguous array of ", size, " float32 numbers"));
  }
  return given.data();
}

// -- optimizers -------------------------------------------------------------------------------------

void register_python_optimizer(nb::handle optimizer) {
  const SchemeInfo info = info_of(optimizer);
  const auto make = [of = hold(optimizer), info](const OptionValues& values) {
    return of->get()(values_of(info.options, values));
  };
  OptimizerScheme scheme{.info = info,
                         .equations = text_of(optimizer, "equations"),
                         .heavy_ball = flag_of(optimizer, "heavy_ball"),
                         .plain = flag_of(optimizer, "plain"),
                         .decays_gradient = flag_of(optimizer, "decays_gradient"),
                         .discounts_gradient = flag_of(optimizer, "discounts_gradient")};
  scheme.method.moments = nb::cast<int>(optimizer.attr("moments"));
  scheme.method.update = [make, where = info.name + ".update"](Stream& stream,
                                                               const UpdateNumbers& numbers,
                                                               const OptionValues& values,
                                                               const UpdateTensors& t) {
    return with_python(where, [&] {
      const nb::object direction = make(values).attr("update")(
          numbers, array_of(t.w), array_of(t.g), array_of(t.w_new), arrays_of(t.moments));
      return tensor_of(direction, stream, where + ": the direction");
    });
  };
  raise_where_refused(register_optimizer(std::move(scheme)));
}

// -- codecs -----------------------------------------------------------------------------------------

/// An object with encode(x, random, number) -> words and decode(words, n) -> x; one that `keeps` has
/// prepare(x, kept) -> x and sent(decoded, kept), too.
class PythonCodec final : public Codec {
 public:
  PythonCodec(HeldRef object, std::string name, std::int64_t kept)
      : object_(std::move(object)), name_(std::move(name)), kept_(kept) {}

  void prepare(std::span<float> update, LinkState& state) const override {
    if (kept_ > 0) {
      const std::string where = name_ + ".prepare";
      with_python(where, [&] {
        const nb::object made = object_->get().attr("prepare")(copy_of<const float>(update),
                                                               array_of(state.tensors.at(1)));
        std::copy_n(
            numbers_of<float>(made, update.size(), where + ": x"), update.size(), update.data());
      });
    }
  }

  void encode(std::span<const float> x,
              LinkState& state,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    with_python(name_ + ".encode", [&] {
      const nb::object made = object_->get().attr("encode")(copy_of(x), random, state.messages);
      nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> words;
      if (!nb::try_cast(made, words, false)) {  // or other numbers would be cut to whole ones
        throw PythonFailed(name_ + ".encode: a message is a contiguous array of uint32");
      }
      message.insert(message.end(), words.data(), words.data() + words.size());
    });
  }

  void sent(std::span<const float> decoded, LinkState& state) const override {
    if (kept_ > 0) {
      with_python(name_ + ".sent", [&] {
        object_->get().attr("sent")(copy_of(decoded), array_of(state.tensors.at(1)));
      });
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    const std::string where = name_ + ".decode";
    try {
      with_python(where, [&] {
        const nb::object made = object_->get().attr("decode")(copy_of(message), n);
        const auto size = static_cast<std::size_t>(n);
        const float* const x = numbers_of<float>(made, size, where + ": x");
        if (out) {
          std::copy_n(x, size, out);
        }
      });
      return {};
    } catch (const PythonFailed& failed) {
      return Error{ErrorKind::lost, failed.what()};
    }
  }

  std::int64_t kept() const override { return kept_; }

 private:
  /// What is lent for a call alone is copied, so that Python may keep it.
  template <class T>
  static nb::object copy_of(std::span<T> numbers) {
    return array_of(std::vector<std::remove_const_t<T>>(numbers.begin(), numbers.end()));
  }

  HeldRef object_;
  std::string name_;
  std::int64_t kept_;
};

void register_python_codec(nb::handle codec) {
  const SchemeInfo info = info_of(codec);
  const bool keeps = flag_of(codec, "keeps");
  const bool feedback = flag_of(codec, "feedback");
  CodecScheme scheme{.info = info,
                     .equations = text_of(codec, "equations"),
                     .bytes = text_of(codec, "bytes"),
                     .forgets = text_of(codec, "forgets")};
  scheme.codec = [of = hold(codec), info, keeps](const CodecContext& c) {
    return with_python(info.name, [&] {
      nb::list parts;
      for (const RuleContext::Part& part : c.parts) {
        parts.append(nb::make_tuple(part.name, part.offset, tuple_of(part.shape)));
      }
      const OptionValues values(info.options, c.chosen.custom());
      return std::make_unique<PythonCodec>(
          hold(of->get()(values_of(info.options, values), c.elements, c.replicas, parts)),
          info.name,
          keeps ? c.elements : 0);
    });
  };
  scheme.keeps = [feedback](const proto::Codec&) {
    return feedback;
  };
  scheme.remembers = [keeps](const proto::Codec&) {
    return keeps;
  };
  scheme.whole = flag_of(codec, "whole");
  scheme.velocity = flag_of(codec, "velocity");
  raise_where_refused(register_codec(std::move(scheme)));
}

// -- layers -----------------------------------------------------------------------------------------

/// `bind`: (options, name, shape of a sample) -> the object that layer_of() takes.
void register_python_layer(nb::handle layer, nb::handle bind) {
  const SchemeInfo info = info_of(layer);
  raise_where_refused(register_layer(
      {.info = info,
       .make = [of = hold(bind), info](
                   const std::string& name, const BundleShape& input, const OptionValues& values)
           -> Result<std::shared_ptr<const Layer>> {
         try {
           return with_python(info.name, [&] {
             return layer_of(
                 of->get()(values_of(info.options, values), name, tuple_of(input.front().shape)));
           });
         } catch (const PythonFailed& failed) {
           return Error{ErrorKind::usage, failed.what()};
         }
       },
       .tokens = flag_of(layer, "tokens")}));
}

}  // namespace

void bind_parts(nb::module_& m) {
  nb::class_<UpdateNumbers>(m, "UpdateNumbers")
      .def_ro("update", &UpdateNumbers::update)
      .def_ro("rate", &UpdateNumbers::rate)
      .def_ro("gradient_scale", &UpdateNumbers::gradient_scale)
      .def_ro("delay", &UpdateNumbers::delay)
      .def_ro("momentum", &UpdateNumbers::momentum)
      .def_ro("beta2", &UpdateNumbers::beta2)
      .def_ro("epsilon", &UpdateNumbers::epsilon)
      .def_ro("weight_decay", &UpdateNumbers::weight_decay);
  m.def("register_optimizer", &register_python_optimizer);
  m.def("register_codec", &register_python_codec);
  m.def("register_layer", &register_python_layer);
}

}  // namespace troupe::python
