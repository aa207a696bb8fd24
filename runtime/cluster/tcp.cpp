#include "runtime/cluster/tcp.hpp"

#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace troupe {
namespace {

constexpr int kPortMax = 65535;
constexpr std::size_t kNameMax = 253;
constexpr int kBacklog = 64;

std::string words_of(int number) {
  return std::system_category().message(number);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> resolve_host(const HostAddress& address, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (failure != 0) {
    return lost_error("{}: the host is not known: {}", address.text(), ::gai_strerror(failure));
  }
  return Addresses(found, &::freeaddrinfo);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(four->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/// All that a name stands for, or an error where one is beyond `reach`.
Result<Addresses> within(const HostAddress& address, Nearness reach, int flags) {
  auto found = resolve_host(address, flags);
  for (const addrinfo* one = found ? found->get() : nullptr; one; one = one->ai_next) {
    if (reach == Nearness::this_machine && !is_loopback(one->ai_addr)) {
      return Error{ErrorKind::usage,
                   concat(address.text(),
                          " is not an address of this machine alone; name --keys DIR, the folder "
                          "that `troupe keys` has made for this host")};
    }
  }
  return found;
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// Small words go at once; a host that has lost its power is noticed within some twenty seconds.
void set_options(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);  // milliseconds
}

Error failed(int number) {
  return {ErrorKind::lost, words_of(number)};
}

Result<int> begin_one(const addrinfo& to) {
  const int socket = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) {
    return failed(errno);
  }
  set_options(socket);
  if (::connect(socket, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int number = errno;
    ::close(socket);
    return failed(number);
  }
  return socket;
}

Result<int> connect_one(const addrinfo& to, const Patience& patience) {
  const auto begun = begin_one(to);
  TROUPE_TRY(begun);
  int number = 0;
  socklen_t size = sizeof number;
  const Talk ready = await(*begun, POLLOUT, patience);
  if (ready != Talk::done) {
    number = ready == Talk::late ? ETIMEDOUT : EINTR;
  } else {
    ::getsockopt(*begun, SOL_SOCKET, SO_ERROR, &number, &size);
  }
  if (number != 0) {
    ::close(*begun);
    return failed(number);
  }
  return *begun;
}

/// An IPv4 address as a socket for both versions tells it ("::ffff:10.0.0.3") is one of IPv4 again.
sockaddr_storage without_mapping(const sockaddr_storage& address) {
  const auto* six = reinterpret_cast<const sockaddr_in6*>(&address);
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
    return address;
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six->sin6_port;
  std::memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, sizeof four.sin_addr);
  sockaddr_storage plain{};
  std::memcpy(&plain, &four, sizeof four);
  return plain;
}

std::string text_of(const sockaddr_storage& told, bool with_port) {
  const sockaddr_storage address = without_mapping(told);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if ((address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address),
                    sizeof address,
                    host.data(),
                    host.size(),
                    port.data(),
                    port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return with_port ? HostAddress{host.data(), std::atoi(port.data())}.text() : host.data();
}

std::string near_text(int socket, bool with_port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool known = ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return known ? text_of(address, with_port) : "";
}

}  // namespace

std::string HostAddress::text() const {
  const bool bare = host.find(':') == std::string::npos;
  return concat(bare ? "" : "[", host, bare ? ":" : "]:", port);
}

bool is_ip(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  // What is behind a zero byte inet_pton() would not see.
  return text.find('\0') == std::string::npos &&
         (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
          ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1);
}

bool is_host(const std::string& text) {
  const auto fine = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  };
  return is_ip(text) || (!text.empty() && text.size() <= kNameMax && text[0] != '-' &&
                         text[0] != '.' && std::all_of(text.begin(), text.end(), fine));
}

Result<HostAddress> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  HostAddress address{.host = text.substr(0, colon)};
  const bool bracketed = address.host.starts_with('[') && address.host.ends_with(']');
  if (bracketed) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  const bool bare_colon = !bracketed && address.host.find(':') != std::string::npos;
  address.port = colon == text.npos ? -1 : numeral<int>(text.substr(colon + 1)).value_or(-1);
  if (address.port < 0 || address.port > kPortMax || bare_colon || !is_host(address.host)) {
    return usage_error("\"{}\" is no HOST:PORT, such as beta:7000, 10.0.0.3:7000 or [::1]:7000",
                       text);
  }
  return address;
}

Result<int> connect_to(const HostAddress& address, Nearness reach, const Patience& patience) {
  const auto all = within(address, reach, 0);
  TROUPE_TRY(all);
  std::string why;
  for (const addrinfo* one = all->get(); one; one = one->ai_next) {
    auto connected = connect_one(*one, patience);
    if (connected) {
      return connected;
    }
    why = connected.error().message;
  }
  return Error{ErrorKind::lost, concat(address.text(), " cannot be reached: ", why)};
}

Result<int> begin_to_connect(const HostAddress& address) {
  const auto found = resolve_host(address, AI_NUMERICHOST);
  TROUPE_TRY(found);
  return begin_one(**found);
}

Result<int> listen_at(const HostAddress& address, Nearness reach) {
  const auto all = within(address, reach, AI_PASSIVE);
  TROUPE_TRY(all);
  const addrinfo& at = **all;
  const int socket = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  const int no = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);  // "::" is IPv4's any, too
  if (socket < 0 || ::bind(socket, at.ai_addr, at.ai_addrlen) != 0 ||
      ::listen(socket, kBacklog) != 0) {
    const int number = errno;
    ::close(socket);
    return lost_error("{} cannot be listened at: {}", address.text(), words_of(number));
  }
  return socket;
}

int accept_one(int listening, std::string& who) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const int socket = ::accept4(
      listening, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) {
    set_options(socket);
    who = text_of(address, true);
  }
  return socket;
}

void bear_silence(int socket) {
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

std::string near_address(int socket) {
  return near_text(socket, true);
}

std::string near_host(int socket) {
  return near_text(socket, false);
}

}  // namespace troupe
