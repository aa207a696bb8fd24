// What a node hears first.
#include "kernels/group_mean.hpp"
#include "kernels/wording.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/cluster/ucx_plane.hpp"
#include "wire.pb.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::uint32_t kProcessesOfJoinMax = 1 << 16;

}  // namespace

std::optional<Invitation> read_invitation(ControlStream& lead, const Patience& patience) {
  proto::Join join;
  if (read_message(lead, join, patience) != Talk::done) {
    return std::nullopt;
  }
  if (join.exit_code() != 0) {
    return Invitation{.refusal =
                          Error{ErrorKind::lost, printable(join.refusal(), kStrangersSentenceMax)}};
  }
  if (join.process() >= join.processes() || join.processes() > kProcessesOfJoinMax ||
      (join.pids_size() > 0 && join.pids_size() != static_cast<int>(join.processes()))) {
    return std::nullopt;
  }
  std::vector<int> partners(join.partners().begin(), join.partners().end());
  std::ranges::sort(partners);
  if (std::ranges::adjacent_find(partners) != partners.end() ||
      !std::ranges::all_of(join.partners(),
                           [&](std::uint32_t other) { return other < join.process(); })) {
    return std::nullopt;
  }
  if (!std::ranges::all_of(join.groups(), [](const std::string& group) {
        return group.empty() || group.size() == kGroupIdBytes;
      })) {
    return std::nullopt;
  }
  return Invitation{.process = static_cast<int>(join.process()),
                    .processes = static_cast<int>(join.processes()),
                    .token = join.token(),
                    .version = join.version(),
                    .experiment = join.experiment(),
                    .resumes = join.resumes(),
                    .pids = {join.pids().begin(), join.pids().end()},
                    .partners = std::move(partners),
                    .protocol = join.protocol(),
                    .ucx = printable(join.ucx()),
                    .life = join.life(),
                    .again = join.again(),
                    .groups = {join.groups().begin(), join.groups().end()}};
}

Result<void> check_invitation(const Invitation& invitation, const std::string& version) {
  if (invitation.refusal) {
    return *invitation.refusal;
  }
  if (invitation.version == version && invitation.protocol == kWireProtocol) {
    return invitation.ucx.empty() ? Result<void>() : check_ucx(invitation.ucx);
  }
  return Error{ErrorKind::lost,
               fill_in("the lead is of version {} with protocol {}, this node of version {} with "
                       "protocol {}; all processes of a run must be of one",
                       printable(invitation.version),
                       invitation.protocol,
                       version,
                       kWireProtocol)};
}

void refuse_invitation(ControlStream& lead, const Error& why, const Patience& patience) {
  proto::Joined refused;
  refused.set_exit_code(static_cast<std::uint32_t>(why.kind));
  refused.set_refusal(why.message);
  write_message(lead, refused, patience);  // where the lead is gone, nobody asks
}

}  // namespace troupe
