// Addresses of hosts, and connections to them.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/control_stream.hpp"

#include <string>

namespace troupe {

struct HostAddress {
  std::string host;  // a name, or an address as numbers
  int port = 0;

  /// "beta:7000", "[::1]:7000"
  std::string text() const;
};

/// Of "beta:7000", "10.0.0.3:7000" or "[::1]:7000". Error (usage): a sentence that begins with `text`.
Result<HostAddress> parse_address(const std::string& text);
/// Whether it can be the name of a host, or its address as numbers. Nothing else stands in either, so that no
/// such name is taken for an option or for a path.
bool is_host(const std::string& text);
/// Whether it is an address as numbers.
bool is_ip(const std::string& text);

/// Who may be at the other end of a connection.
enum class Nearness {
  this_machine,  // addresses of the loopback device alone
  anywhere,
};

/// A descriptor that is the caller's. Error: (usage) where an address is beyond `reach`, and then nothing has
/// been sent; (lost) where the host is not known or does not answer in time.
Result<int> connect_to(const HostAddress& address, Nearness reach, const Patience& patience);
/// A descriptor that is the caller's, which is being connected to an address as numbers: it can be written to once that
/// is done. Error (lost).
Result<int> begin_to_connect(const HostAddress& address);
/// A descriptor that listens, not waited on. Error as connect_to(). Port 0: any that is free.
Result<int> listen_at(const HostAddress& address, Nearness reach);
/// The next one that has connected, with `who` as "10.0.0.3:4711"; -1 where there is none.
int accept_one(int listening, std::string& who);

/// Who takes nothing for long does not end the connection any more: the caller looks for silence itself.
void bear_silence(int socket);

/// Of the near end of a socket: "10.0.0.2:7000". "" where it is not one of TCP.
std::string near_address(int socket);
/// The same without the port.
std::string near_host(int socket);

}  // namespace troupe
