#include "runtime/schemes/exchanges/exchange.hpp"

#include "actors/exchange/peers.hpp"
#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"
#include "kernels/random.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

/// An object with heard(what, numbers, arrays), stepped(step, before, own, tell), complete(step, living), mix(own) -> a job that
/// makes the next weights, or None, and settled(step, weights, tell). Arrays that have been told are not written to any more.
class PythonPeers final : public PeerExchange {
 public:
  PythonPeers(const ExchangeSeat& seat, HeldRef object, std::string name)
      : PeerExchange(seat),
        object_(std::move(object)),
        name_(std::move(name)),
        steps_(nb::hasattr(object_->get(), "stepped")),
        waits_(nb::hasattr(object_->get(), "complete")) {}

  void archive(Archive& a) override {
    PeerExchange::archive(a);
    archive_state(a, object_->get(), name_);
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

  void stepped(const Weights& own, Effects& fx) override {
    if (steps_) {
      call("stepped", own, fx, now_at());
    }
  }

  bool complete() const override {
    return !waits_ || with_python(name_ + ".complete", [&] {
      std::vector<std::int32_t> living;
      for (std::size_t r = 0; r < seat().peers.size(); ++r) {
        if (makes(static_cast<std::int32_t>(r), step())) {
          living.push_back(static_cast<std::int32_t>(r));
        }
      }
      return nb::cast<bool>(object_->get().attr("complete")(step(), living));
    });
  }

  void settled(const Weights& weights, Effects& fx) override { call("settled", weights, fx); }

 private:
  /// `what`(step, more..., weights, tell).
  template <class... More>
  void call(const char* what, const Weights& weights, Effects& fx, const More&... more) {
    const std::string where = name_ + "." + what;
    const auto open = std::make_shared<bool>(true);  // until the call is over
    const auto tell_peer =
        [&, open](
            std::int32_t to, std::string note, std::vector<double> numbers, nb::handle arrays) {
          if (!*open) {
            throw nb::value_error("tell() is for the call alone that it was given to");
          }
          const bool there = makes(to, step());
          if (there) {
            Stream stream{Device{}};
            tell(to,
                 std::move(note),
                 std::move(numbers),
                 arrays.is_none() ? values_of(weights)
                                  : tensors_of(arrays, stream, where + ": an array"),
                 fx);
          }
          return there;
        };
    with_python(where, [&] {
      const std::unique_ptr<bool, void (*)(bool*)> closes(open.get(),
                                                          [](bool* is) { *is = false; });
      object_->get().attr(what)(step(),
                                arrays_of(PeerExchange::values_of(more))...,
                                arrays_of(PeerExchange::values_of(weights)),
                                nb::cpp_function(tell_peer,
                                                 nb::arg("replica"),
                                                 nb::arg("what"),
                                                 nb::arg("numbers"),
                                                 nb::arg("arrays").none() = nb::none()));
    });
  }

  HeldRef object_;
  std::string name_;
  bool steps_;
  bool waits_;
};

void register_python_exchange(nb::handle exchange) {
  const SchemeInfo info = info_of(exchange);
  raise_where_refused(
      register_exchange({.info = info,
                         .equations = nb::cast<std::string>(exchange.attr("equations")),
                         .memory = nb::cast<std::string>(exchange.attr("memory")),
                         .peer = [of = hold(exchange),
                                  info](const ExchangeSeat& seat) -> std::unique_ptr<PeerExchange> {
                           return with_python(info.name, [&] {
                             return std::make_unique<PythonPeers>(
                                 seat,
                                 hold(of->get()(values_of(info.options, seat.options),
                                                seat.replica,
                                                seat.peers.size(),
                                                seat.seed)),
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
