#include "runtime/schemes/exchanges/exchange.hpp"

#include "actors/exchange/peers.hpp"
#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"
#include "kernels/random.hpp"
#include "messages/archive.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

nb::list arrays_of(const std::vector<Tensor>& tensors) {
  nb::list all;
  for (const Tensor& tensor : tensors) {
    all.append(array_of(tensor));
  }
  return all;
}

std::vector<Tensor> tensors_of(nb::handle arrays, Stream& stream, const std::string& what) {
  std::vector<Tensor> all;
  for (const nb::handle array : arrays) {
    all.push_back(tensor_of(array, stream, what));
  }
  return all;
}

/// An object with heard(what, numbers, arrays), mix(own) -> a job that makes the next weights, or None, and
/// settled(step, weights, tell). Arrays that have been told are not written to any more.
class PythonPeers final : public PeerExchange {
 public:
  PythonPeers(const ExchangeSeat& seat, HeldRef object, std::string name)
      : PeerExchange(seat),
        object_(std::move(object)),
        name_(std::move(name)),
        keeps_(nb::hasattr(object_->get(), "state")) {}

  /// By state() -> (numbers, arrays) and restore(numbers, arrays) of the object.
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    if (!keeps_) {
      throw ArchiveError(name_ +
                         " has no checkpoints: it lacks state() and restore(numbers, arrays)");
    }
    std::vector<double> numbers;
    std::vector<Tensor> tensors;
    if (!a.reading()) {
      with_python(name_ + ".state", [&] {
        const nb::object kept = object_->get().attr("state")();
        Stream stream{Device{}};
        numbers = nb::cast<std::vector<double>>(kept[0]);
        tensors = tensors_of(kept[1], stream, name_ + ".state: an array");
      });
    }
    a(numbers, tensors);
    if (a.reading()) {
      with_python(name_ + ".restore",
                  [&] { object_->get().attr("restore")(numbers, arrays_of(tensors)); });
    }
  }

 protected:
  void heard(Note note, Effects&) override {
    with_python(name_ + ".heard", [&] {
      object_->get().attr("heard")(note.what, note.numbers, arrays_of(note.tensors));
    });
  }

  Mix mix(const Weights& own) override {
    return with_python(name_ + ".mix", [&]() -> Mix {
      const nb::object job = object_->get().attr("mix")(arrays_of(PeerExchange::values_of(own)));
      if (job.is_none()) {
        return {};
      }
      return [job = hold(job), where = name_ + ".mix: the job"](Stream& stream) {
        return with_python(
            where, [&] { return Computed{.tensors = tensors_of(job->get()(), stream, where)}; });
      };
    });
  }

  void settled(const Weights& weights, Effects& fx) override {
    const auto tell_peer = [this, &fx, &weights](
                               std::int32_t to, std::string what, std::vector<double> numbers) {
      const bool there = makes(to, step());
      if (there) {
        tell(to, std::move(what), std::move(numbers), values_of(weights), fx);
      }
      return there;
    };
    with_python(name_ + ".settled", [&] {
      object_->get().attr("settled")(
          step(), arrays_of(PeerExchange::values_of(weights)), nb::cpp_function(tell_peer));
    });
  }

 private:
  HeldRef object_;
  std::string name_;
  bool keeps_;
};

void register_python_exchange(nb::handle exchange) {
  const SchemeInfo info = info_of(exchange);
  raise_where_refused(register_exchange(
      {.info = info,
       .equations = nb::cast<std::string>(exchange.attr("equations")),
       .memory = nb::cast<std::string>(exchange.attr("memory")),
       .peer = [of = hold(exchange),
                info](const ExchangeSeat& seat) -> std::unique_ptr<PeerExchange> {
         return with_python(info.name, [&] {
           const nb::dict values = values_of(info.options, [&](const Option& option) {
             return seat.options.number(option.name);
           });
           return std::make_unique<PythonPeers>(
               seat,
               hold(of->get()(values, seat.replica, seat.peers.size(), seat.seed)),
               info.name);
         });
       },
       .evaluated = Evaluated::mean}));
}

}  // namespace

void bind_exchanges(nb::module_& m) {
  nb::class_<RandomStream>(
      m, "RandomStream")  // numbers by (seed, purpose, index), as the runtime's own
      .def("__init__",
           [](RandomStream* self, std::uint64_t seed, std::uint64_t name) {
             new (self) RandomStream(seed, Purpose::sample, name);
           })
      .def("uniform", &RandomStream::uniform)
      .def("below", &RandomStream::below);
  m.def("register_exchange", &register_python_exchange);
}

}  // namespace troupe::python
