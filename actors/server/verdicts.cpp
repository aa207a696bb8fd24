#include "actors/server/verdicts.hpp"

namespace troupe {

void VerdictSender::tell(Verdict verdict, Effects& fx) {
  if (followers_.empty()) {
    return;
  }
  verdict.number = ++told_;
  for (const Ref<ServerRole>& follower : followers_) {
    fx.send(follower, verdict);
  }
}

std::optional<Found> find_pushes(const Verdict& verdict,
                                 const std::deque<Upload>& waiting,
                                 const Replicas& replicas) {
  if (!replicas.lost_some() && waiting.size() < verdict.take.size() + verdict.drop.size()) {
    return {};
  }
  std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> places;  // by replica and mini-batch
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    places.try_emplace({waiting[i].stamp.replica, waiting[i].stamp.batch}, i);
  }
  Found found;
  const auto look_for = [&](const std::vector<Verdict::Push>& pushes,
                            std::vector<std::size_t>& at) {
    for (const Verdict::Push& push : pushes) {
      if (const auto here = places.find({push.replica, push.batch}); here != places.end()) {
        at.push_back(here->second);
      } else if (replicas.may_send(push.replica, push.life)) {
        return false;
      }
    }
    return true;
  };
  if (!look_for(verdict.take, found.take) || !look_for(verdict.drop, found.drop)) {
    return {};
  }
  return found;
}

}  // namespace troupe
