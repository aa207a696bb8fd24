// The experiment for those who only hold it or read some of its sections. experiment.pb.h includes the headers of all
// sections, so whoever includes it is compiled again for each new key. A source that reads `replicas` alone includes
// experiment/replicas.pb.h and this header, and asks for sections::replicas(experiment).
#pragma once

#include "messages/proto.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

namespace sections {

const proto::Model& model(const proto::Experiment& experiment);
const proto::Data& data(const proto::Experiment& experiment);
const proto::Optimizer& optimizer(const proto::Experiment& experiment);
const proto::Pipeline& pipeline(const proto::Experiment& experiment);
const proto::Replicas& replicas(const proto::Experiment& experiment);
const proto::Decoupled& decoupled(const proto::Experiment& experiment);
const proto::Placement& placement(const proto::Experiment& experiment);
const proto::Clock& clock(const proto::Experiment& experiment);
const proto::Stop& stop(const proto::Experiment& experiment);
const proto::Record& record(const proto::Experiment& experiment);
const proto::Extension& extension(const proto::Experiment& experiment);
const proto::Resumed& resumed(const proto::Experiment& experiment);
const std::string& name(const proto::Experiment& experiment);
std::uint64_t seed(const proto::Experiment& experiment);
/// R: what many read of `replicas` who read nothing else of it.
std::int64_t replica_count(const proto::Experiment& experiment);

}  // namespace sections

/// An experiment as a value whose definition only those need who look into it. Assignments change what is in the box, so
/// that references to it stay.
class BoxedExperiment {
 public:
  BoxedExperiment();
  // Not explicit: a box is an experiment, to whoever makes one and to whoever reads one.
  BoxedExperiment(const proto::Experiment& experiment);  // NOLINT(google-explicit-constructor)
  BoxedExperiment(proto::Experiment&& experiment);       // NOLINT(google-explicit-constructor)
  BoxedExperiment(const BoxedExperiment& other);
  BoxedExperiment(BoxedExperiment&& other) noexcept;
  BoxedExperiment& operator=(const BoxedExperiment& other);
  BoxedExperiment& operator=(BoxedExperiment&& other) noexcept;
  ~BoxedExperiment();

  operator const proto::Experiment&() const {
    return *experiment_;
  }  // NOLINT(google-explicit-constructor)

  const proto::Experiment& operator*() const { return *experiment_; }

  proto::Experiment& operator*() { return *experiment_; }

  const proto::Experiment* operator->() const { return experiment_.get(); }

  proto::Experiment* operator->() { return experiment_.get(); }

 private:
  std::unique_ptr<proto::Experiment> experiment_;
};

}  // namespace troupe
