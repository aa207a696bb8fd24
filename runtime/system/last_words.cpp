#include "runtime/system/last_words.hpp"

#include "runtime/system/thread_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

namespace troupe {
namespace {

constexpr int kLost = 5;  // ErrorKind::lost

thread_local int may_lack_memory = 0;

void say(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

/// Allocates nothing, and runs nothing that belongs to other threads.
[[noreturn]] void leave() {
  say("\n");
  ::_exit(kLost);
}

void no_memory() {
  if (may_lack_memory > 0) {
    throw std::bad_alloc();
  }
  say("troupe: there is not enough memory (`ulimit -v`, or a container's limit, may be less than "
      "the machine's); `troupe plan` tells what a run needs");
  leave();
}

void nothing_caught() {
  say("troupe: an exception that nobody can deal with has ended the program: ");
  try {
    if (const std::exception_ptr thrown = std::current_exception()) {
      std::rethrow_exception(thrown);
    }
    say("none that is known");
  } catch (const std::system_error& error) {
    say(error.code() == std::errc::resource_unavailable_try_again
            ? no_room_for_thread(error).c_str()
            : error.what());
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("one of an unknown kind");
  }
  leave();
}

bool is_limited(int resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

extern "C" void aborted(int /*signal*/) {
  say("troupe: a library has ended the program, for the reason above if it gave one; most often a "
      "limit is too tight (`ulimit -a`: memory, threads, descriptors)");
  leave();
}

}  // namespace

void install_last_words() {
  std::set_new_handler(no_memory);
  std::set_terminate(nothing_caught);
  std::signal(SIGABRT, aborted);
  // Some libraries do not look at what they get where there is no memory. Without a limit it is a bug like any other.
  if (is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA)) {
    std::signal(SIGSEGV, aborted);
    std::signal(SIGBUS, aborted);
  }
}

MayLackMemory::MayLackMemory() {
  ++may_lack_memory;
}

MayLackMemory::~MayLackMemory() {
  --may_lack_memory;
}

}  // namespace troupe
