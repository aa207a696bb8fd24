#include "messages/sections.hpp"

#include "experiment.pb.h"

#include <utility>

namespace troupe {

namespace sections {

const proto::Model& model(const proto::Experiment& experiment) {
  return experiment.model();
}

const proto::Data& data(const proto::Experiment& experiment) {
  return experiment.data();
}

const proto::Optimizer& optimizer(const proto::Experiment& experiment) {
  return experiment.optimizer();
}

const proto::Pipeline& pipeline(const proto::Experiment& experiment) {
  return experiment.pipeline();
}

const proto::Replicas& replicas(const proto::Experiment& experiment) {
  return experiment.replicas();
}

const proto::Decoupled& decoupled(const proto::Experiment& experiment) {
  return experiment.decoupled();
}

const proto::Placement& placement(const proto::Experiment& experiment) {
  return experiment.placement();
}

const proto::Clock& clock(const proto::Experiment& experiment) {
  return experiment.clock();
}

const proto::Stop& stop(const proto::Experiment& experiment) {
  return experiment.stop();
}

const proto::Record& record(const proto::Experiment& experiment) {
  return experiment.record();
}

const proto::Extension& extension(const proto::Experiment& experiment) {
  return experiment.extension();
}

const proto::Resumed& resumed(const proto::Experiment& experiment) {
  return experiment.resumed();
}

const std::string& name(const proto::Experiment& experiment) {
  return experiment.name();
}

std::uint64_t seed(const proto::Experiment& experiment) {
  return experiment.seed();
}

std::int64_t replica_count(const proto::Experiment& experiment) {
  return experiment.replicas().count();
}

}  // namespace sections

BoxedExperiment::BoxedExperiment() : experiment_(std::make_unique<proto::Experiment>()) {}

BoxedExperiment::BoxedExperiment(const proto::Experiment& experiment)
    : experiment_(std::make_unique<proto::Experiment>(experiment)) {}

BoxedExperiment::BoxedExperiment(proto::Experiment&& experiment)
    : experiment_(std::make_unique<proto::Experiment>(std::move(experiment))) {}

BoxedExperiment::BoxedExperiment(const BoxedExperiment& other) : BoxedExperiment(*other) {}

BoxedExperiment::BoxedExperiment(BoxedExperiment&& other) noexcept
    : BoxedExperiment(std::move(*other)) {}

BoxedExperiment& BoxedExperiment::operator=(const BoxedExperiment& other) {
  *experiment_ = *other;
  return *this;
}

BoxedExperiment& BoxedExperiment::operator=(BoxedExperiment&& other) noexcept {
  *experiment_ = std::move(*other);
  return *this;
}

BoxedExperiment::~BoxedExperiment() = default;

}  // namespace troupe
