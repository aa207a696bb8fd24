// Checks of an Upload that only its server can make: it knows versions, clocks and sizes.
#include "actors/server/server_shard.hpp"
#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

#include <string>

namespace troupe {
namespace {

constexpr std::uint64_t kEarlyMax = 1000;  // Uploads that may overtake one of the same sender

}  // namespace

/// BadSender where the Upload, which may have come from another process, does not fit what this server has.
void ServerShard::check(const Upload& m) const {
  const std::string sender =
      concat(c_.below.empty() ? "replica " : "the server of group ", m.stamp.replica);
  TROUPE_BELIEVE(m.stamp.replica >= replicas_.first() && m.stamp.replica < replicas_.end() &&
                     m.stamp.chunk == c_.chunk && m.slice == c_.slice,
                 fill_in("an Upload of replica {} for slice {} of chunk {}",
                         m.stamp.replica,
                         m.slice,
                         m.stamp.chunk));
  const bool asks_alone = m.contribution.values.empty();  // then it may have read nothing
  TROUPE_BELIEVE((m.read_version >= 0 || asks_alone) && m.read_version <= version() &&
                     m.has <= version() && m.clock >= 0 && m.clock <= m.stamp.batch + 1,
                 sender,
                 " has sent an Upload that names a version or a clock that does not exist yet");
  TROUPE_BELIEVE(m.sequence <= replicas_.next_sequence(m.stamp.replica) + kEarlyMax,
                 fill_in("{} has sent Upload {} where Upload {} is due",
                         sender,
                         m.sequence,
                         replicas_.next_sequence(m.stamp.replica)));
  check_values(m, sender);
}

void ServerShard::check_values(const Upload& m, const std::string& sender) const {
  const Contribution& of = m.contribution;
  TROUPE_BELIEVE(
      of.values.empty() ||
          (of.values.size() >= c_.push_tensors_min && of.values.size() <= c_.push_tensors_max &&
           of.mini_batches > 0 && of.mini_batches <= c_.push_mini_batches_max),
      fill_in("{} has sent an unusable push: {} tensors for {} mini-batches",
              sender,
              of.values.size(),
              of.mini_batches));
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    const Result<void> right = of.values[i] ? check_message(i == 0 ? c_.up.get() : nullptr,
                                                            of.values[i],
                                                            weights_.slice().elements())
                                            : Error{ErrorKind::lost, "a tensor is missing"};
    TROUPE_BELIEVE(
        right, sender, " has sent an unusable push: ", right ? "" : right.error().message);
  }
}

}  // namespace troupe
