#include "runtime/cluster/local_socket.hpp"

#include "kernels/wording.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <system_error>

namespace troupe {
namespace {

constexpr int kWaitingMax = 64;
constexpr int kStrangersAtOnce = 64;

/// Calls `use(address, size)`, which returns as the system's calls do, and so does this where there is no such name.
template <class Use>
int with_address(const std::string& name, Use use) {
  if (!name.starts_with('@') || name.size() > sizeof(sockaddr_un::sun_path)) {
    errno = EINVAL;
    return -1;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin() + 1, name.end(), address.sun_path + 1);  // a zero stands for '@'
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return use(reinterpret_cast<const sockaddr*>(&address), size);
}

int new_socket() {
  return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/// Whether the kernel says that the other end is process `pid`.
bool is_process(int socket, pid_t pid) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == pid;
}

}  // namespace

bool is_local_endpoint(const std::string& name) {
  return name.starts_with("@troupe-") && name.size() < sizeof(sockaddr_un::sun_path) &&
         name.find('\0') == std::string::npos;
}

int listen_here(const std::string& name) {
  const int socket = new_socket();
  const int bound =
      with_address(name, [&](const auto* to, auto size) { return ::bind(socket, to, size); });
  if (socket < 0 || bound != 0 || ::listen(socket, kWaitingMax) != 0) {
    const std::error_code code(errno, std::system_category());
    ::close(socket);
    throw std::runtime_error(concat("a socket for another process failed: ", code.message()));
  }
  return socket;
}

int connect_here(const std::string& name, pid_t pid) {
  const int socket = new_socket();
  const int connected =
      with_address(name, [&](const auto* to, auto size) { return ::connect(socket, to, size); });
  if (connected != 0 || (pid != 0 && !is_process(socket, pid))) {
    ::close(socket);
    return -1;
  }
  return socket;
}

int accept_here(int listening, pid_t pid) {
  for (int i = 0; i < kStrangersAtOnce; ++i) {
    const int socket = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      return -1;
    }
    if (is_process(socket, pid)) {
      return socket;
    }
    ::close(socket);
  }
  errno = EAGAIN;
  return -1;
}

}  // namespace troupe
