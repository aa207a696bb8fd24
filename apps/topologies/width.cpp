#include "apps/topologies/width.hpp"

#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/sections.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <string>

namespace troupe {
namespace {

using E = proto::Experiment;

/// Why an experiment is not cut in width, or "".
std::string obstacle(const E& e) {
  const proto::Pipeline& p = e.pipeline();
  if (decoupled_of(e)) {
    return "a decoupled module is on one stage; use 1, or decoupled=none";
  }
  if (shared_by(e) == Shared::own || shared_by(e) == Shared::buffer) {
    return fill_in("it does not go with replicas.exchange {}, which has no pipeline",
                   exchange_of(e).info.name);
  }
  if (!p.copies().empty()) {
    return "stages that take turns are not cut; use pipeline.copies=[]";
  }
  if (e.record().angle_every() > 0) {
    return "angles are measured between whole modules; use record.angle_every=0";
  }
  if (optimizer_scheme(e.optimizer()).matrices) {
    return fill_in(
        "optimizer.rule {} needs a layer's whole matrix, of which a part has a share; use a "
        "rule that moves each number by itself, such as adamw",
        optimizer_scheme(e.optimizer()).info.name);
  }
  if (reduces(e) && e.replicas().count() > 1 && !(*chosen_schedule(e))->flushed) {
    return fill_in(
        "replicas.exchange.synchronous.reduction ring and tree go with a flushed schedule; {} is "
        "not; use server",
        (*chosen_schedule(e))->info.name);
  }
  const std::int64_t rows = e.data().batch_size() / p.micro_batches();
  return rows >= p.width()
             ? ""
             : fill_in("each part has samples of its own, and a micro-batch has {}", rows);
}

}  // namespace

Constraints<E> width_checks() {
  return {{"what_is_cut_in_width", [](const E& e) {
             const std::string why = e.pipeline().width() > 1 ? obstacle(e) : "";
             return why.empty()
                        ? ""
                        : fill_in("pipeline.width: {} parts: {}", e.pipeline().width(), why);
           }}};
}

Result<void> widen(Blueprint& b) {
  const proto::Pipeline& pipeline = b.experiment->pipeline();
  b.grid.reset();
  if (pipeline.width() <= 1) {
    return {};
  }
  if (b.experiment->record().evaluate() && b.data->size(Split::test) < pipeline.width()) {
    return usage_error(
        "pipeline.width: {} parts have samples of their own each, and the test data has {}",
        pipeline.width(),
        b.data->size(Split::test));
  }
  if (fragments_of(b) > 0) {
    return usage_error(
        "pipeline.width: fragments that replicas exchange in turn are of whole layers; use 1, "
        "or a replicas.exchange without fragments");
  }
  auto first_layers =
      cut_network(b.network, b.schedule->chunks, {pipeline.cut().begin(), pipeline.cut().end()});
  TROUPE_TRY(first_layers);
  auto grid = cut_in_width(b.network, *first_layers, static_cast<std::int32_t>(pipeline.width()));
  TROUPE_TRY(grid);
  const std::int32_t width = grid->network.width;
  b.schedule = std::make_shared<const Schedule>(cut_in_width(*b.schedule, grid->sections, width));
  b.view = cut_in_width(b.view, grid->sections, width);
  b.grid = *std::move(grid);
  return {};
}

}  // namespace troupe
