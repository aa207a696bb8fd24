// Schedules that are classes of Python (troupe/schemes.py).
#include "apps/python/schemes.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

/// What Python says that a stage does; it is said to the builder when Python has returned.
struct ToldStage {
  struct Line {
    Act act = Act::forward;
    std::int64_t chunk = 0;
    std::int64_t n = 0;
    bool begins_period = false;
  };

  void say(SequenceBuilder& s) const {
    for (const Line& line : lines) {
      line.begins_period ? s.begin_period() : s.add(line.act, line.chunk, line.n);
    }
  }

  std::int32_t stage;
  std::int64_t K;
  std::int64_t M;
  std::int64_t v;
  std::int64_t to_loss;
  std::vector<Line> lines{};
};

template <Act act>
void line(ToldStage& stage, std::int64_t n, std::optional<std::int64_t> chunk) {
  stage.lines.push_back({act, chunk.value_or(stage.stage), act == Act::update ? n * stage.M : n});
}

void register_python_schedule(nb::handle schedule) {
  const SchemeInfo info = info_of(schedule);
  const auto make = [of = hold(schedule), info](const OptionValues& values) {
    return nb::object(of->get()(values_of(info.options, values)));
  };
  ScheduleScheme scheme{.info = info,
                        .flushed = nb::cast<bool>(schedule.attr("flushed")),
                        .fills = nb::cast<bool>(schedule.attr("fills")),
                        .staleness = nb::cast<std::string>(schedule.attr("staleness")),
                        .bubble = nb::cast<std::string>(schedule.attr("bubble"))};
  scheme.write = [make, where = info.name + ".write"](SequenceBuilder& s) {
    with_python(where, [&] {
      const nb::object told =
          nb::cast(ToldStage{s.stage(), s.K(), s.M(), s.chunks_per_stage(), s.to_loss()});
      make(s.values()).attr("write")(told);
      nb::cast<ToldStage&>(told).say(s);
    });
  };
  if (nb::hasattr(schedule, "chunks")) {
    scheme.chunks = [make, where = info.name + ".chunks"](const proto::Experiment&,
                                                          const OptionValues& values) {
      return with_python(where, [&] {
        const auto chunks = nb::cast<std::int32_t>(make(values).attr("chunks")());
        if (chunks < 1) {
          throw PythonFailed(concat(where, ": ", chunks, " chunks a stage; use 1 or more"));
        }
        return chunks;
      });
    };
  }
  if (nb::hasattr(schedule, "place")) {
    scheme.place = [make, where = info.name + ".place"](const ScheduleOptions& options) {
      return with_python(where, [&] {
        auto stages =
            nb::cast<std::vector<std::int32_t>>(make(options.values).attr("place")(options.stages));
        for (const std::int32_t stage : stages) {
          if (stage < 0 || stage >= options.stages) {
            throw PythonFailed(
                concat(where, ": there is no stage ", stage, " of ", options.stages));
          }
        }
        return stages;
      });
    };
  }
  if (nb::hasattr(schedule, "fits")) {
    scheme.fits = [make, where = info.name + ".fits"](const ScheduleOptions& o) -> Result<void> {
      const std::string why = with_python(where, [&] {
        return nb::cast<std::string>(make(o.values).attr("fits")(o.stages, o.micro_batches));
      });
      return why.empty() ? Result<void>{}
                         : Error{ErrorKind::usage, concat("pipeline.schedule: ", why)};
    };
  }
  raise_where_refused(register_schedule(std::move(scheme)));
}

}  // namespace

void bind_schedules(nb::module_& m) {
  const auto of_chunk = nb::arg("chunk").none() = nb::none();
  nb::class_<ToldStage>(m, "Stage")
      .def_ro("stage", &ToldStage::stage)
      .def_ro("K", &ToldStage::K)
      .def_ro("M", &ToldStage::M)
      .def_ro("v", &ToldStage::v)
      .def_ro("to_loss", &ToldStage::to_loss)
      .def("forward", &line<Act::forward>, nb::arg("n"), of_chunk)
      .def("backward", &line<Act::backward>, nb::arg("n"), of_chunk)
      .def("input_gradient", &line<Act::input_gradient>, nb::arg("n"), of_chunk)
      .def("weight_gradient", &line<Act::weight_gradient>, nb::arg("n"), of_chunk)
      .def("update", &line<Act::update>, nb::arg("batch"), of_chunk)
      .def("begin_period",
           [](ToldStage& stage) { stage.lines.push_back({.begins_period = true}); });
  m.def("register_schedule", &register_python_schedule);
}

}  // namespace troupe::python
