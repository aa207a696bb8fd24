// Sockets between processes of one host, in Linux's abstract name space: no file is made, and none is left.
#pragma once

#include <sys/types.h>

#include <string>

namespace troupe {

/// Whether it can be such a name: '@' and some letters.
bool is_local_endpoint(const std::string& name);
/// A descriptor that listens, not waited on. Throws std::runtime_error.
int listen_here(const std::string& name);
/// A descriptor that is connected to process `pid`, or to whoever listens where that is 0; -1 where none does, or too
/// many wait there.
int connect_here(const std::string& name, pid_t pid = 0);
/// The next one that has connected, where it is process `pid`; others are hung up on. -1: there is none now, as errno
/// says, where EAGAIN may mean that others come after many that were hung up on.
int accept_here(int listening, pid_t pid);

}  // namespace troupe
