#include "apps/topologies/probe.hpp"

#include "actors/pipeline/probe.hpp"
#include "apps/topologies/hogwild.hpp"
#include "experiment/model.pb.h"
#include "experiment/run.pb.h"
#include "messages/sections.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

using E = proto::Experiment;

bool measures_angles(const E& e) {
  return sections::record(e).angle_every() > 0;
}

bool all_on_cpu(const E& e) {
  const auto& names = sections::placement(e).devices();
  return std::ranges::all_of(names, [](const std::string& name) { return name == "cpu"; });
}

}  // namespace

std::unique_ptr<Machine> make_probe(const Blueprint& b, Stream& stream) {
  Probe::Config config{.micro_batches = b.schedule->options.micro_batches,
                       .seed = sections::seed(b.experiment),
                       .chunks = {},
                       .buffers = {}};
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    config.chunks.push_back(std::make_shared<const Chunk>(
        b.network, b.cut, c, slices_wanted(b), c > 0, fragments_of(b), dealing_of(b)));
    config.buffers.push_back(config.chunks.back()->initial_buffers(stream));
  }
  return std::make_unique<Probe>(std::move(config));
}

Constraints<E> probe_checks() {
  return only_where<E>(measures_angles,
                       {
                           {"angle_of_one_replica",
                            [](const E& e) {
                              return sections::replica_count(e) == 1 &&
                                     shared_by(e) != Shared::buffer &&
                                     shared_by(e) != Shared::own && !is_sparse_hogwild(e);
                            },
                            "record.angle_every: angles are measured of one replica that shares "
                            "its weights with nobody; use 0"},
                           {"angle_on_cpu",
                            [](const E& e) { return all_on_cpu(e); },
                            "record.angle_every: angles are measured on cpu only; use 0"},
                           {"angle_of_labels",
                            [](const E& e) { return !sections::model(e).has_quadratic(); },
                            "record.angle_every: the gradient of quadratic is of its weights "
                            "alone, without samples or labels; use 0"},
                       });
}

}  // namespace troupe
