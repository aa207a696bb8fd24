// Whom a server answers, and with what.
#include "actors/server/server_shard.hpp"

#include <array>
#include <utility>

namespace troupe {

/// To everybody alive who has not asked.
void ServerShard::broadcast(double now, Effects& fx) {
  told_clock_ = replicas_.ledger().slowest();
  for (std::int32_t who = replicas_.first(); who < replicas_.end(); ++who) {
    if (replicas_.alive(who) && !replicas_.question(who)) {
      answer(who, 0, now, fx);
    }
  }
}

/// To everybody who has asked and need not wait. Who had to wait when it was looked at last, and has not changed since,
/// still has to, unless by something that concerns everybody.
void ServerShard::serve(double now, Effects& fx) {
  if (halted_ || (above_ && finished_) || (run_.over() && !others_may_lack())) {
    return;
  }
  const std::array<std::int64_t, 3> rests_on{replicas_.ledger().slowest(),
                                             c_.admission->answers_by(replicas_.ledger()),
                                             replicas_.membership()};
  if (served_by_ != rests_on) {
    replicas_.look_at_all();
    served_by_ = rests_on;
  }
  for (const std::int32_t who : replicas_.take_changed()) {
    const auto& question = replicas_.question(who);
    if (question && !pushes_.in_work(who) && replicas_.ledger().slowest() >= question->clock &&
        c_.admission->answers(replicas_.place(who), replicas_.ledger())) {
      answer(who, question->sequence, now, fx);
    }
  }
}

/// Servers may have applied different pushes, so one that is finished must keep answering: the others
/// need more pushes to get to the end, and replicas make these with weights from all servers. It is so
/// where slices take turns, where one server decides for others, where a replica died between two of
/// its pushes, and where a stage that waits for this chunk's weights has yet to push the gradients of
/// others.
bool ServerShard::others_may_lack() const {
  return c_.streams || c_.together || one_decides() || replicas_.lost_some();
}

/// Messages take the place of the weights, which the replica makes of them: of the whole, or from
/// version `has` on, where there is a way from it that is shorter.
void ServerShard::encode(Answer& reply, std::int64_t has) const {
  Slice& slice = reply.weights.front();
  if (c_.down_whole && differences_.newest()) {
    slice.values = differences_.newest();
  } else if (!c_.down_whole) {
    if (auto way = differences_.since(has)) {
      reply.differences = *std::move(way);
      reply.since = has;
      slice.values = {};
    }
  }
}

void ServerShard::answer(std::int32_t who, std::uint64_t request, double now, Effects& fx) {
  Answer reply{.request = request,
               .replica = who,
               .chunk = c_.chunk,
               .slice = c_.slice,
               .weights = weights_.answer(replicas_.take_own(who)),
               .moments = weights_.moments(),
               .clock = replicas_.ledger().slowest(),
               .holds = replicas_.held(who),
               .step = run_.step()};
  if (c_.period > 0) {
    reply.period = c_.never_waits ? replicas_.next_period(who, c_.period, begun_)
                                  : replicas_.agreed_period(who, c_.period);
  }
  const std::int64_t has =
      request > 0 && replicas_.question(who) ? replicas_.question(who)->has : -1;
  replicas_.answered(who, request, reply.weights, now);
  if (c_.down) {
    encode(reply, has);
  }
  account_.travelled(reply.weights);
  account_.travelled(reply.moments);
  account_.travelled(reply.differences);
  hand_over(std::move(reply), fx);
}

}  // namespace troupe
