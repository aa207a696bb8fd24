// How processes are lost: they end, stay silent, or send what cannot be true.
#include "runtime/cluster/lead.hpp"
#include "runtime/system/theatre.hpp"

#include <utility>

namespace troupe {

/// One of the two processes is wrong, and it is not known which: the accused one is given up.
void Lead::take_distrust(int from, Parcel parcel) {
  std::string why;
  Archive a(std::move(parcel.content));
  a(why);
  a.expect_end();
  const auto whom = static_cast<int>(parcel.recipient);
  if (whom == from || !members_.contains(whom)) {
    throw WireError("a process gives up itself, or a process that does not exist");
  }
  lose(whom, concat("was given up by ", name_of(from), ": ", why));
}

/// A machine of this process has got from process `number` what cannot be true.
void Lead::distrust(int number, const std::string& why) {
  const std::lock_guard lock(mutex_);
  accused_.emplace_back(number, why);
}

void Lead::lose_accused() {
  std::vector<std::pair<int, std::string>> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(accused_);
  }
  for (const auto& [number, why] : all) {
    lose(number, "said what cannot be believed: " + why);
  }
}

/// The channel has failed: no process can be heard any more.
void Lead::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, member] : members_) {
      member.gone = true;
    }
  }
  theatre_->lose("the channel to the other processes has failed: " + why, LossKind::process);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  admitting_ = false;  // the channel may have failed in admit()
  changed_.notify_all();
}

/// `why` empty: the way in which the process has ended is the reason.
void Lead::lose(int number, const std::string& why) {
  Member& member = members_.at(number);
  {
    const std::lock_guard lock(mutex_);
    if (member.bye || std::exchange(member.gone, true)) {
      return;
    }
  }
  channel_.drop(number);
  halts_.lost(number);
  channel_.unwatch(member.process.stream->descriptor());
  const std::string how = end_process_of(member);
  const std::string cause = concat(name_of(number), " ", why.empty() ? how : why);
  // The others hear it before the Director does, and so before what follows from that.
  to_all(ParcelKind::gone, static_cast<std::uint32_t>(number));
  tell_director(number, cause);
  if (theatre_->cast.over) {
    theatre_->cast.over();  // no job waits for it: a halt that is under way awaits all jobs
  }
  begin_return(number);
  const std::lock_guard lock(mutex_);
  member.cause = cause;
  changed_.notify_all();
}

/// Ends the process if it has not ended by itself within `seconds`; says how it has ended.
std::string Lead::end_process_of(Member& member, double seconds) const {
  if (member.process.pid > 0) {
    return end_process(std::exchange(member.process.pid, -1), seconds);
  }
  member.process.stream->finish();
  const std::string trouble = member.process.stream->trouble();
  return concat("has closed the connection",
                trouble.empty() ? "" : " (",
                trouble,
                trouble.empty() ? "" : ")");
}

void Lead::tell_director(int number, const std::string& cause) {
  for (std::size_t id = 0; id < process_of_.size(); ++id) {
    if (process_of_[id] == number) {
      theatre_->ports[theatre_->cast.director.id]->send(Down{
          .actor = theatre_->cast.members[id].name,  // from nobody: no handler of it has thrown
          .cause = cause,
          .id = static_cast<ActorId>(id),
          .with_process = true});
    }
  }
}

}  // namespace troupe
