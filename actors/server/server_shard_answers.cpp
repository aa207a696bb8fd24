// Whom a server answers, and with what.
#include "actors/server/server_shard.hpp"

#include <array>
#include <utility>

namespace troupe {

/// Sends the newest weights to every living replica that has no open question.
void ServerShard::broadcast(double now, Effects& fx) {
  broadcast_clock_ = replicas_.ledger().slowest();
  for (std::int32_t who = replicas_.first(); who < replicas_.end(); ++who) {
    if (replicas_.alive(who) && !replicas_.question(who)) {
      answer(who, 0, now, fx);
    }
  }
}

/// Answers every replica that has asked and need not wait. Looks only at those that have changed since the last time,
/// unless something has changed on which all answers rest.
void ServerShard::answer_waiting(double now, Effects& fx) {
  if (halted_ || (above_ && finished_) || (run_.over() && !others_may_need_pushes())) {
    return;
  }
  const std::array<std::int64_t, 3> rest_on{replicas_.ledger().slowest(),
                                            c_.admission->answers_by(replicas_.ledger()),
                                            replicas_.membership()};
  if (answers_rest_on_ != rest_on) {
    replicas_.look_at_all();
    answers_rest_on_ = rest_on;
  }
  for (const std::int32_t who : replicas_.take_changed()) {
    const auto& question = replicas_.question(who);
    if (question && !pushes_.in_work(who) && replicas_.ledger().slowest() >= question->clock &&
        c_.admission->answers(replicas_.place(who), replicas_.ledger())) {
      answer(who, question->sequence, now, fx);
    }
  }
}

/// Servers may have applied different pushes. Then one that is finished must keep answering: the others need more pushes
/// to get to the end, and replicas make these with weights from all servers. This is so where slices take turns, where
/// one server decides for others, where a replica died between two of its pushes, and where a stage that waits for this
/// chunk's weights has yet to push the gradients of other chunks.
bool ServerShard::others_may_need_pushes() const {
  return c_.slices_take_turns || c_.shares_stage || one_decides() || replicas_.lost_some();
}

/// Puts the codec's messages in the place of the weights: one of the whole weights, or those since version `has`, which
/// the replica has, where these are shorter.
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
    reply.period = c_.never_waits ? replicas_.next_period(who, c_.period, update_begun_)
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
  send_answer(std::move(reply), fx);
}

}  // namespace troupe
