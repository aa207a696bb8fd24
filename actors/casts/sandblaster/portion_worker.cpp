#include "actors/casts/sandblaster/portion_worker.hpp"

#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/data/batch.hpp"

#include <numeric>
#include <utility>

namespace troupe {

void PortionWorker::handle(Portion m, double, Effects& fx) {
  TROUPE_BELIEVE(!portion_, "worker ", c_.replica, ": a portion before the last was done");
  portion_ = m;
  if (point_version_ == m.version) {
    forward(fx);
    return;
  }
  got_.clear();
  for (const auto& shard : c_.shards) {
    fx.send(shard, PointPull{c_.self, m.version});
  }
}

void PortionWorker::handle(PointReply m, double, Effects& fx) {
  if (!portion_ || point_version_ == portion_->version) {
    return;
  }
  if (m.version != portion_->version) {
    done({}, fx);  // others have finished this portion's batch
    return;
  }
  got_[m.shard] = std::move(m.values);
  if (got_.size() < c_.shards.size()) {
    return;
  }
  point_.clear();
  for (auto& [slice, values] : got_) {
    point_.push_back({.values = std::move(values), .version = portion_->version});
  }
  got_.clear();
  point_version_ = portion_->version;
  forward(fx);
}

void PortionWorker::forward(Effects& fx) {
  const Portion& p = *portion_;
  Stamp stamp = p.stamp;
  run(fx,
      {.lane = p.test ? Lane::mark : Lane::sequence,
       .work = p.test ? Work::unmodelled : Work::forward,
       .stamp = stamp},
      [chunk = c_.chunk, data = c_.data, point = point_, seed = c_.seed, p](Stream& stream) {
        std::vector<std::int64_t> samples(static_cast<std::size_t>(p.last - p.first));
        std::iota(samples.begin(), samples.end(), p.first);
        Batch batch = gather_batch(stream, *data, p.test ? Split::test : Split::train, samples, 0);
        return chunk->forward(
            {.stream = stream, .training = !p.test, .seed = seed, .first_sample = p.first},
            point,
            {},
            {{"x", std::move(batch.x)}},
            batch.target,
            !p.test);
      });
}

void PortionWorker::backward(Stash stash, Effects& fx) {
  run(fx,
      {.work = Work::backward, .stamp = portion_->stamp},
      [chunk = c_.chunk,
       point = point_,
       seed = c_.seed,
       first_sample = portion_->first,
       stash = std::move(stash)](Stream& stream) mutable {
        const Pass pass{.stream = stream, .seed = seed, .first_sample = first_sample};
        const InputGradient made = chunk->input_gradient(pass, point, std::move(stash), {});
        return chunk->weight_gradient(stream, made.deltas, {}, 1);
      });
}

void PortionWorker::handle(Ran<ForwardPass> m, double, Effects& fx) {
  if (portion_->test) {
    done(std::move(m.made.result), fx);
    return;
  }
  result_ = std::move(m.made.result);
  backward(std::move(m.made.stash), fx);
}

void PortionWorker::handle(Ran<WeightGradient> m, double, Effects& fx) {
  for (std::size_t slice = 0; slice < c_.shards.size(); ++slice) {
    fx.send(c_.shards[slice],
            PartialGradient{.version = portion_->version,
                            .portion = portion_->stamp.micro_batch,
                            .share = portion_->share,
                            .gradient = std::move(m.made.gradient[slice])});
  }
  done(std::exchange(result_, {}), fx);
}

void PortionWorker::done(Tensor result, Effects& fx) {
  const Portion portion = *std::exchange(portion_, {});
  fx.send(c_.coordinator, PortionDone{portion.stamp, portion.version, std::move(result)});
}

std::string PortionWorker::waits_for() const {
  if (!portion_) {
    return "";
  }
  return point_version_ == portion_->version
             ? "its own kernels"
             : "the point of version " + std::to_string(portion_->version);
}

void PortionWorker::archive(Archive& a) {
  a(portion_, point_, point_version_, got_, result_);
}

}  // namespace troupe
