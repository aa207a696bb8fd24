#include "runtime/cluster/meeting.hpp"

#include "wire.pb.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPause = 50;                     // milliseconds
constexpr std::ptrdiff_t kStrangersMax = 8;    // beside those that are waited for
constexpr std::ptrdiff_t kLeavingMax = 64;     // who have been told to go
constexpr std::chrono::seconds kStranger{10};  // what one has to show who he is
constexpr std::chrono::milliseconds kAgain{200};
constexpr std::chrono::seconds kOneTry{2};
constexpr std::chrono::seconds kLossMax{5};  // until the lead has noticed that a process is lost

Error not_met(const std::string& why) {
  return {ErrorKind::lost, why};
}

}  // namespace

Result<std::unique_ptr<Meeting>> Meeting::open(const HostAddress& at,
                                               int processes,
                                               std::shared_ptr<const Credentials> credentials,
                                               std::function<void(const std::string&)> tell) {
  // A host's own name may mean the loopback device to itself, and not to others.
  auto listening = credentials ? listen_at({"::", at.port}, Nearness::anywhere)
                               : listen_at(at, Nearness::this_machine);
  if (!listening && credentials) {  // a host without IPv6
    listening = listen_at({"0.0.0.0", at.port}, Nearness::anywhere);
  }
  TROUPE_TRY(listening);
  return std::unique_ptr<Meeting>(
      new Meeting(*listening, processes, std::move(credentials), std::move(tell)));
}

Meeting::Meeting(int listening,
                 int processes,
                 std::shared_ptr<const Credentials> credentials,
                 std::function<void(const std::string&)> tell)
    : listening_(listening),
      processes_(processes),
      credentials_(std::move(credentials)),
      tell_(std::move(tell)),
      porter_([this] { receive(); }) {}

Meeting::~Meeting() {
  close();
}

bool Meeting::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Meeting::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) {
      return;
    }
    changed_.notify_all();
  }
  porter_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return strangers_.empty(); });  // each looks ten times a second
  ::close(listening_);
}

void Meeting::receive() {
  while (!closed()) {
    pollfd one{.fd = listening_, .events = POLLIN, .revents = 0};
    ::poll(&one, 1, kPause);
    std::string who;
    const int socket = accept_one(listening_, who);
    if (socket < 0) {
      continue;
    }
    make_room();
    std::unique_lock lock(mutex_);
    const std::uint64_t number = ++came_;
    try {
      std::thread([this, socket, who, number] { talk_to(socket, who, number); }).detach();
      strangers_[number] = false;  // it has not begun to count itself out: that takes the lock
    } catch (const std::system_error&) {
      lock.unlock();
      ::close(socket);
      tell_(concat("refused ", who, ": this host starts no more threads"));
    }
  }
}

/// The stranger who has been here longest gives way.
void Meeting::make_room() {
  std::unique_lock lock(mutex_);
  const auto stays = [](const auto& stranger) {
    return !stranger.second;
  };
  const auto most = static_cast<std::ptrdiff_t>(processes_) + kStrangersMax;
  if (std::count_if(strangers_.begin(), strangers_.end(), stays) >= most) {
    std::find_if(strangers_.begin(), strangers_.end(), stays)->second = true;
    changed_.notify_all();
  }
  // Each looks ten times a second whether he has to go.
  changed_.wait(lock, [&] { return std::ssize(strangers_) < most + kLeavingMax; });
}

void Meeting::talk_to(int socket, const std::string& who, std::uint64_t number) {
  if (const std::string why = let_in(socket, who, number); !why.empty() && !closed()) {
    tell_(concat("refused ", who, ": ", why));
  }
  const std::lock_guard lock(mutex_);
  strangers_.erase(number);
  changed_.notify_all();  // under the lock: the next moment there may be no meeting
}

/// Why not, or "".
std::string Meeting::let_in(int socket, const std::string& who, std::uint64_t number) {
  const auto has_to_go = [this, number] {
    const std::lock_guard lock(mutex_);
    return closed_ || strangers_.at(number);
  };
  const Patience patience{.until = Clock::now() + kStranger, .given_up = has_to_go};
  Arrived one{.where = who};
  if (credentials_) {
    auto stream = credentials_->welcome(socket, patience);
    if (!stream) {
      return stream.error().message;
    }
    one.stream = *std::move(stream);
  } else {
    one.stream = std::make_unique<DescriptorStream>(socket, socket);
  }
  proto::Arrival arrival;
  if (read_message(*one.stream, arrival, patience) != Talk::done) {
    return has_to_go() ? "others wait, and it has not shown who it is"
                       : "it has not sent the first message of a process of a run in time";
  }
  const auto process = static_cast<int>(arrival.process());
  if (arrival.processes() != static_cast<std::uint32_t>(processes_) || process < 1 ||
      process >= processes_) {
    return concat("it is process ", process, " of ", arrival.processes(), " of another run");
  }
  const std::string why = take_place(process, one, number);
  if (!why.empty()) {
    proto::Join refused;
    refused.set_exit_code(static_cast<std::uint32_t>(ErrorKind::lost));
    refused.set_refusal(why);
    write_message(*one.stream, refused, patience);  // where it is gone, nobody asks
  }
  return why;
}

/// Why not, or "".
std::string Meeting::take_place(int number, Arrived& one, std::uint64_t stranger) {
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + kLossMax;
  const auto free = [&] {
    return closed_ || strangers_.at(stranger) || turned_away_.contains(number) ||
           !arrived_.contains(number);
  };
  if (begun_) {
    changed_.wait_until(lock, until, free);
  }
  if (closed_) {
    return "the run is over";
  }
  if (const auto found = turned_away_.find(number); found != turned_away_.end()) {
    return found->second;
  }
  if (arrived_.contains(number)) {
    return concat("there is a process ", number, " already");
  }
  arrived_[number] = std::move(one);
  changed_.notify_all();
  return "";
}

void Meeting::begin() {
  const std::lock_guard lock(mutex_);
  begun_ = true;
}

void Meeting::begin_again() {
  const std::lock_guard lock(mutex_);
  begun_ = false;
  turned_away_.clear();
  // Whose stream is still here has come already, and waits to be awaited.
  std::erase_if(arrived_, [](const auto& entry) { return !entry.second.stream; });
  changed_.notify_all();
}

void Meeting::let_again(int number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = arrived_.find(number); found != arrived_.end() && !found->second.stream) {
    arrived_.erase(found);  // whose stream is still here waits to be awaited
  }
  changed_.notify_all();
}

void Meeting::turn_away(int number, const std::string& why) {
  const std::lock_guard lock(mutex_);
  turned_away_[number] = why;
  changed_.notify_all();
}

Result<Arrived> Meeting::await(int number, const Patience& patience) {
  std::unique_lock lock(mutex_);
  while (!arrived_.contains(number)) {
    if (patience.given_up && patience.given_up()) {
      return not_met("interrupted before the run began");
    }
    if (Clock::now() >= patience.until) {
      return not_met(concat("process ", number, " has not come"));
    }
    changed_.wait_for(lock, std::chrono::milliseconds{kPause});
  }
  Arrived& one = arrived_.at(number);
  return Arrived{.stream = std::move(one.stream), .where = one.where};
}

Result<std::unique_ptr<ControlStream>> come_to(
    const HostAddress& lead,
    int number,
    int processes,
    const Credentials* credentials,
    const Patience& patience,
    const std::function<void(const std::string&)>& waiting) {
  const Nearness within = credentials ? Nearness::anywhere : Nearness::this_machine;
  const auto since = Clock::now();
  const auto reached = [&] {  // one that does not answer is asked again, so that it is told of
    Patience once = patience;
    once.until = std::min(patience.until, Clock::now() + kOneTry);
    return connect_to(lead, within, once);
  };
  auto socket = reached();
  while (!socket && socket.error().kind == ErrorKind::lost && Clock::now() < patience.until) {
    if (waiting && Clock::now() - since >= kWaitsUntold) {
      waiting(concat("waiting for process 0: ", socket.error().message));
    }
    std::this_thread::sleep_for(kAgain);
    socket = reached();
  }
  TROUPE_TRY(socket);
  std::unique_ptr<ControlStream> stream;
  if (credentials) {
    auto greeted = credentials->greet(*socket, lead.host, patience);
    if (!greeted) {
      return not_met(concat(lead.text(), " is not believed: ", greeted.error().message));
    }
    stream = *std::move(greeted);
  } else {
    stream = std::make_unique<DescriptorStream>(*socket, *socket);
  }
  proto::Arrival arrival;
  arrival.set_process(static_cast<std::uint32_t>(number));
  arrival.set_processes(static_cast<std::uint32_t>(processes));
  if (write_message(*stream, arrival, patience) != Talk::done) {
    return not_met(concat(lead.text(), " has closed the connection"));
  }
  return stream;
}

}  // namespace troupe
