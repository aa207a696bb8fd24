#include "actors/casts/sandblaster/vector_shard.hpp"

#include "kernels/combine.hpp"
#include "kernels/dot.hpp"
#include "kernels/stream.hpp"
#include "messages/archive.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr VectorName kPoint{.kind = VectorKind::point};
constexpr VectorName kSum{.kind = VectorKind::sum};

Tensor duplicate(Stream& stream, const Tensor& x) {
  Tensor same = stream.allocate(x.shape());
  copy(stream, x, same);
  return same;
}

/// Where `name` stands in `names`, put there if need be.
std::size_t index_of(std::vector<VectorName>& names, const VectorName& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  const auto index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end()) {
    names.push_back(name);
  }
  return index;
}

}  // namespace

VectorShard::VectorShard(Config config) : c_(std::move(config)) {
  vectors_[{.kind = VectorKind::weights}] = c_.initial;
  vectors_[kPoint] = std::move(c_.initial);
}

void VectorShard::handle(PointPull m, double, Effects& fx) {
  // An older version is gone; the worker sees that its portion is void.
  fx.send(m.from, PointReply{c_.shard, version_, vectors_.at(kPoint)});
}

void VectorShard::handle(PartialGradient m, double, Effects& fx) {
  if (m.version != version_ || m.portion < added_ || early_.contains(m.portion)) {
    return;
  }
  const std::int32_t portion = m.portion;
  early_[portion] = std::move(m);
  work(fx);
}

void VectorShard::handle(VectorCommands m, double, Effects& fx) {
  commands_.push_back(std::move(m));
  work(fx);
}

void VectorShard::work(Effects& fx) {
  if (adding_ || commanded_) {
    return;
  }
  if (early_.contains(added_)) {
    add_portions(fx);
  } else if (!commands_.empty()) {
    carry_out(fx);
  }
}

/// All that are next in order, in one job.
void VectorShard::add_portions(Effects& fx) {
  std::vector<PartialGradient> next;
  for (auto found = early_.find(added_); found != early_.end(); found = early_.find(added_)) {
    next.push_back(std::move(found->second));
    early_.erase(found);
    ++added_;
  }
  adding_ = true;
  Tensor before = next.front().portion == 0 ? Tensor{} : vectors_.at(kSum);
  run(fx,
      {.stamp = {.chunk = 0, .batch = version_, .micro_batch = added_ - 1}},
      [sum = std::move(before), next = std::move(next)](Stream& stream) {
        Tensor to = sum;
        for (const PartialGradient& part : next) {
          if (!to) {
            to = stream.allocate(part.gradient.shape());
            fill(stream, to, 0);
          }
          combine(stream, {{1, to}, {part.share, part.gradient}}, to);
        }
        return PortionsAdded{std::move(to)};
      });
}

void VectorShard::carry_out(Effects& fx) {
  struct Operation {
    VectorCommand::Kind kind;
    std::size_t to;
    std::size_t a;
    float factor;
  };

  std::vector<Operation> operations;
  at_work_.clear();
  for (const VectorCommand& command : commands_.front().commands) {
    const std::size_t to = index_of(at_work_, command.to);
    // scale has no second vector.
    const std::size_t a =
        command.kind == VectorCommand::Kind::scale ? to : index_of(at_work_, command.a);
    operations.push_back({command.kind, to, a, command.factor});
  }
  std::vector<Tensor> tensors;
  for (const VectorName& name : at_work_) {
    const auto found = vectors_.find(name);
    tensors.push_back(found == vectors_.end() ? Tensor{} : found->second);
  }
  commanded_ = true;
  run(fx,
      {.stamp = {.batch = version_}},
      [operations = std::move(operations), tensors = std::move(tensors)](Stream& stream) mutable {
        std::vector<double> dots;
        for (const Operation& op : operations) {
          switch (op.kind) {
            case VectorCommand::Kind::copy:
              // Into new memory: what stood there may be somebody's point.
              tensors[op.to] = duplicate(stream, tensors[op.a]);
              break;
            case VectorCommand::Kind::scale:
              scale(stream, tensors[op.to], op.factor);
              break;
            case VectorCommand::Kind::add_scaled:
              combine(stream, {{1, tensors[op.to]}, {op.factor, tensors[op.a]}}, tensors[op.to]);
              break;
            case VectorCommand::Kind::dot:
              dots.push_back(dot(stream, tensors[op.to], tensors[op.a]));
              break;
          }
        }
        return VectorsDone{std::move(tensors), std::move(dots)};
      });
}

void VectorShard::handle(Ran<PortionsAdded> m, double, Effects& fx) {
  adding_ = false;
  vectors_[kSum] = std::move(m.made.sum);
  if (added_ == c_.portions) {
    fx.send(c_.coordinator, GradientReady{c_.shard, version_});
  }
  work(fx);
}

void VectorShard::handle(Ran<VectorsDone> m, double, Effects& fx) {
  commanded_ = false;
  const VectorCommands done = std::move(commands_.front());
  commands_.pop_front();
  for (std::size_t i = 0; i < at_work_.size(); ++i) {
    vectors_[at_work_[i]] = std::move(m.made.vectors[i]);
  }
  if (done.version != version_) {
    version_ = done.version;
    added_ = 0;
    early_.clear();
  }
  fx.send(c_.coordinator, VectorReply{done.request, c_.shard, std::move(m.made.dots)});
  work(fx);
}

void VectorShard::handle(Release, double, Effects& fx) {
  fx.send(c_.coordinator,
          PointReply{c_.shard, version_, vectors_.at({.kind = VectorKind::weights})});
}

Remains VectorShard::remains() const {
  const auto weights = vectors_.find({.kind = VectorKind::weights});
  return weights == vectors_.end() ? Remains{}
                                   : Remains{.weights = {{0,
                                                          static_cast<std::size_t>(c_.shard),
                                                          {{.values = weights->second}}}},
                                             .buffers = {}};
}

std::string VectorShard::waits_for() const {
  if (adding_ || commanded_) {
    return "its own sums";
  }
  return added_ > 0 && added_ < c_.portions
             ? "portion " + std::to_string(added_) + " at version " + std::to_string(version_)
             : "";
}

void VectorShard::archive(Archive& a) {
  a(vectors_, version_, added_, early_, commands_, adding_, commanded_, at_work_);
}

}  // namespace troupe
