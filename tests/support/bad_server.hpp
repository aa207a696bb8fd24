// A web server on this machine that misbehaves as it is asked to (bad_server.py).
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace troupe::test {

class BadServer {
 public:
  /// Serves the files of `folder` until this is gone; requests are logged in `log`.
  BadServer(const std::string& folder, std::string log);
  ~BadServer();
  BadServer(const BadServer&) = delete;
  BadServer& operator=(const BadServer&) = delete;

  /// Of the folder, served as `behaviour` says (the list is in bad_server.py).
  std::string url(const std::string& behaviour) const;

  /// "path range" of each request so far.
  std::vector<std::string> requests() const;

 private:
  std::string log_;
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace troupe::test
