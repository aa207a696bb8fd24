// Machines of a program of one's own that are objects of Python: they hear of losses and of updates, and
// say what the learning rate is multiplied by.
//
//   last stages, shards and servers --Note--> the object's machine --ScaleRate--> shards, servers
#include "runtime/system/extension.hpp"

#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"
#include "messages/archive.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kApplied = "applied";

struct ToldLoss {
  std::int32_t replica;
  std::int64_t batch;
  std::int32_t micro_batch;
  std::int64_t rows;
  double loss;     // mean of the rows
  double correct;  // rows
};

struct ToldApplied {
  std::int32_t replica;
  std::int32_t chunk;
  std::int64_t batch;
  std::int64_t version;
  std::int64_t lag;
  double rate;
};

/// An object with loss(of, now), applied(of, now) or both, which return a factor or None.
class PythonExtension final : public ExtensionMachine<PythonExtension> {
 public:
  PythonExtension(const ExtensionContext& c, nb::handle object, const std::string& name)
      : object_(hold(object)),
        name_(name),
        loss_(object, name, kLoss),
        applied_(object, name, kApplied),
        servers_(c.servers) {
    for (const auto& of_replica : c.shards) {
      shards_.insert(shards_.end(), of_replica.begin(), of_replica.end());
    }
  }

  bool hears_losses() const { return static_cast<bool>(loss_); }

  bool hears_updates() const { return static_cast<bool>(applied_); }

  void archive(Archive& a) override { archive_state(a, object_->get(), name_); }

  using ExtensionMachine::handle;  // of what it is told otherwise: nothing

  void handle(const Note& note, double now, Effects& fx) {
    const std::vector<double>& n = note.numbers;
    const Stamp& at = note.stamp;
    const bool loss = note.what == kLoss;
    const std::vector<double> sums = loss ? to_host(note.tensors[0]) : std::vector<double>{};
    const auto factor = with_python(loss ? loss_.where() : applied_.where(), [&] {
      return loss
                 ? loss_.call<std::optional<double>>(ToldLoss{at.replica,
                                                              at.batch,
                                                              at.micro_batch,
                                                              static_cast<std::int64_t>(n[0]),
                                                              sums[0] / n[0],
                                                              sums[1]},
                                                     now)
                 : applied_.call<std::optional<double>>(ToldApplied{at.replica,
                                                                    at.chunk,
                                                                    at.batch,
                                                                    static_cast<std::int64_t>(n[0]),
                                                                    static_cast<std::int64_t>(n[1]),
                                                                    n[2]},
                                                        now);
    });
    if (factor) {
      for (const auto& shard : shards_) {
        fx.send(shard, ScaleRate{*factor});
      }
      for (const auto& server : servers_) {
        fx.send(server, ScaleRate{*factor});
      }
    }
  }

 private:
  HeldRef object_;
  std::string name_;
  Method loss_;
  Method applied_;
  std::vector<Ref<ShardRole>> shards_;
  std::vector<Ref<ServerRole>> servers_;
};

/// `who` tells `ear` of each record of type R that it makes, by `note`.
template <class R, class F>
void tell_of(Cast& cast, ActorId who, Ref<ExtensionRole> ear, F note) {
  overhear(cast, who, [ear, note](double /*now*/, Effects& done) {
    for (const RecordEntry& record : done.records) {
      if (const auto* one = std::get_if<R>(&record)) {
        done.send(ear, note(*one));
      }
    }
  });
}

Note note_of(const LossRecord& record) {
  return {.stamp = record.stamp,
          .what = kLoss,
          .numbers = {static_cast<double>(record.rows)},
          .tensors = {record.result}};
}

Note note_of(const AppliedRecord& record) {
  std::int64_t read = record.applied_to;
  for (const Read& one : record.reads) {
    read = std::min(read, one.forward_version);
  }
  return {.stamp = record.stamp,
          .what = kApplied,
          .numbers = {static_cast<double>(record.applied_to + 1),
                      static_cast<double>(record.applied_to - read),
                      record.rate}};
}

void join(const ExtensionContext& c, nb::handle object, const std::string& name) {
  auto machine = std::make_unique<PythonExtension>(c, object, name);
  const bool losses = machine->hears_losses();
  const bool updates = machine->hears_updates();
  const Ref<ExtensionRole> own = add_machine(c.cast, name, std::move(machine));
  const auto note = [](const auto& record) {
    return note_of(record);
  };
  if (losses) {
    for (const auto& of_replica : c.stages) {
      tell_of<LossRecord>(c.cast, of_replica.back().id, own, note);
    }
  }
  if (updates) {
    for (const auto& of_replica : c.shards) {
      for (const auto& shard : of_replica) {
        tell_of<AppliedRecord>(c.cast, shard.id, own, note);
      }
    }
    for (const auto& server : c.servers) {
      tell_of<AppliedRecord>(c.cast, server.id, own, note);
    }
  }
}

void register_python_extension(nb::handle extension) {
  const SchemeInfo info = info_of(extension);
  raise_where_refused(register_extension(
      {.info = info, .join = [of = hold(extension), info](const ExtensionContext& c) {
         with_python(info.name, [&] {
           join(c, of->get()(values_of(info.options, c.options), c.stages.size()), info.name);
         });
       }}));
}

}  // namespace

void bind_extensions(nb::module_& m) {
  nb::class_<ToldLoss>(m, "Loss")
      .def_ro("replica", &ToldLoss::replica)
      .def_ro("batch", &ToldLoss::batch)
      .def_ro("micro_batch", &ToldLoss::micro_batch)
      .def_ro("rows", &ToldLoss::rows)
      .def_ro("loss", &ToldLoss::loss)
      .def_ro("correct", &ToldLoss::correct);
  nb::class_<ToldApplied>(m, "Applied")
      .def_ro("replica", &ToldApplied::replica)
      .def_ro("chunk", &ToldApplied::chunk)
      .def_ro("batch", &ToldApplied::batch)
      .def_ro("version", &ToldApplied::version)
      .def_ro("lag", &ToldApplied::lag)
      .def_ro("rate", &ToldApplied::rate);
  m.def("register_extension", &register_python_extension);
}

}  // namespace troupe::python
