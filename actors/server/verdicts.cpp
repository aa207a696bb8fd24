#include "actors/server/verdicts.hpp"

#include <algorithm>

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
  Found found;
  const auto look_for = [&](const std::vector<Verdict::Push>& pushes,
                            std::vector<std::size_t>& places) {
    for (const Verdict::Push& push : pushes) {
      const auto at = std::find_if(waiting.begin(), waiting.end(), [&](const Upload& m) {
        return m.stamp.replica == push.replica && m.stamp.batch == push.batch;
      });
      if (at != waiting.end()) {
        places.push_back(static_cast<std::size_t>(at - waiting.begin()));
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
