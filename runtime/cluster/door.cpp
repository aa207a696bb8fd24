#include "runtime/cluster/door.hpp"

#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/tcp.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <ostream>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookOut = 1000;  // milliseconds
constexpr std::chrono::seconds kMoment{3};

/// A descriptor that can be read once the process has ended.
int watch(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));  // glibc 2.36 declares it for C alone
}

/// A process that talks to a visitor.
struct Guest {
  pid_t pid;
  int ended;  // a descriptor that can be read once it has
  std::string who;
  Clock::time_point until;
  bool seated =
      false;  // has had the seat, which is free again a little before the process can be seen to have ended
};

class Porter {
 public:
  Porter(const Door& door, std::ostream& told) : door_(door), told_(told) {}

  int work() {
    for (;;) {
      std::vector<pollfd> all{{door_.listening, POLLIN, 0}};
      for (const Guest& guest : guests_) {
        all.push_back({guest.ended, POLLIN, 0});
      }
      ::poll(all.data(), all.size(), kLookOut);
      if (const auto code = see_off()) {
        return *code;
      }
      if (all[0].revents != 0) {
        let_in();
      }
      hurry_strangers();
    }
  }

 private:
  void let_in() {
    Visit visit;
    visit.socket = accept_one(door_.listening, visit.who);
    if (visit.socket < 0) {
      return;
    }
    visit.until = Clock::now() + door_.stranger;
    make_room();
    const pid_t pid = ::fork();
    if (pid == 0) {
      leave_to(visit);
    }
    ::close(visit.socket);
    if (pid < 0) {
      told_ << concat("troupe: refused ", visit.who, ": this host starts no more processes\n")
            << std::flush;
      return;
    }
    guests_.push_back({.pid = pid, .ended = watch(pid), .who = visit.who, .until = visit.until});
  }

  /// In the new process.
  [[noreturn]] void leave_to(const Visit& visit) {
    ::close(door_.listening);
    for (const Guest& guest : guests_) {
      ::close(guest.ended);
    }
    int code = static_cast<int>(ErrorKind::lost);
    try {
      code = door_.play(visit, seat_);
    } catch (const std::exception& error) {
      told_ << concat("troupe: ", visit.who, ": ", error.what(), '\n') << std::flush;
    }
    ::_exit(code);
  }

  void note_the_seated() {
    const pid_t seated = seat_.taken_by();
    for (Guest& guest : guests_) {
      guest.seated = guest.seated || guest.pid == seated;
    }
  }

  /// The stranger who has been here longest gives way.
  void make_room() {
    note_the_seated();
    const auto is_stranger = [](const Guest& g) {
      return !g.seated;
    };
    const auto strangers =
        static_cast<std::size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger));
    const auto oldest = std::find_if(guests_.begin(), guests_.end(), is_stranger);
    if (strangers >= door_.strangers_max) {
      turn_out(*oldest, "others wait, and it has not shown who it is");
    }
  }

  void hurry_strangers() {
    // They keep the time themselves; who does not, cannot.
    constexpr std::chrono::seconds kGrace{5};
    note_the_seated();
    const auto late = std::find_if(guests_.begin(), guests_.end(), [&](const Guest& g) {
      return !g.seated && Clock::now() > g.until + kGrace;
    });
    if (late != guests_.end()) {
      turn_out(*late, "it has not shown in time who it is");
    }
  }

  void turn_out(const Guest& guest, const char* why) {
    told_ << concat("troupe: refused ", guest.who, ": ", why, '\n') << std::flush;
    end_process(guest.pid);
    ::close(guest.ended);
    const pid_t pid = guest.pid;
    std::erase_if(guests_, [pid](const Guest& g) { return g.pid == pid; });
  }

  /// Those whose processes have ended. The exit code of a run that was the only one.
  std::optional<int> see_off() {
    std::optional<int> over;
    std::erase_if(guests_, [&](const Guest& guest) {
      int status = 0;
      if (::waitpid(guest.pid, &status, WNOHANG) == 0) {
        return false;
      }
      ::close(guest.ended);
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code == kMayBeginAgain) {
        told_ << concat("troupe: the run of ", guest.who, " was lost, and may begin again\n")
              << std::flush;
      } else if (code != kTurnedAway) {
        told_ << concat("troupe: the run of ", guest.who, ' ', words_of_end(status), '\n')
              << std::flush;
        over = door_.once ? std::optional(code) : over;
      }
      return true;
    });
    return over;
  }

  const Door& door_;
  std::ostream& told_;
  Seat seat_;
  std::vector<Guest> guests_{};  // the one who came first stands first
};

struct flock whole_file() {
  struct flock lock {};

  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Seat::Seat() : file_(::memfd_create("troupe-seat", MFD_CLOEXEC)) {
  if (file_ < 0) {
    throw std::system_error(errno, std::system_category(), "a seat for the lead of a run");
  }
}

Seat::~Seat() {
  ::close(file_);
}

bool Seat::take() const {
  struct flock lock = whole_file();
  const auto until = Clock::now() + kMoment;
  while (::fcntl(file_, F_SETLK, &lock) != 0) {
    if (Clock::now() >= until) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  return true;
}

int Seat::taken_by() const {
  struct flock lock = whole_file();
  return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

int receive(const Door& door, std::ostream& told) {
  return Porter(door, told).work();
}

}  // namespace troupe
