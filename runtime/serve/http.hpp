// HTTP/1.1 for pages and numbers that a program tells about itself: a small server, and the client that reads one. http.cpp alone
// includes cpp-httplib.
#pragma once

#include "kernels/result.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace troupe {

/// A GET (or HEAD), decoded.
struct HttpRequest {
  std::string path;                            // "/metrics"
  std::map<std::string, std::string> query{};  // of several values of a name the last
  /// Of a header, whatever its name's case; "" where it was not sent.
  std::function<std::string(const std::string& name)> header{};
};

struct HttpReply {
  std::string body;
  std::string type = "text/plain; charset=utf-8";
  int status = 200;
};

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

/// Serves until it is destroyed; requests that have come are answered before, where that takes no more than 2 seconds. At most 4
/// requests are answered at a time and as many wait, further connections where the kernel keeps them; a request line and a
/// header line may have 8 KiB, all of a request 64 KiB; a connection serves one request, and is closed where nothing comes for 2
/// seconds, the request takes longer than `patience`, or its answer is not taken within 30 seconds.
class HttpServer {
 public:
  struct Options {
    std::string address = "127.0.0.1:0";  // HOST:PORT; port 0: any that is free
    std::string token{};  // that requests have to bring; "": made where the address is not loopback
    std::chrono::milliseconds patience{10'000};  // for all of a request
  };

  /// `pages` by path; each is called from several threads at a time, and what it throws is answered with status 500. Without a
  /// token, who asks by the name of another host is refused, as a browser does that a foreign page has led here.
  /// Error (usage) where there is no such address, or its port is taken.
  static Result<HttpServer> start(const Options& options, std::map<std::string, HttpHandler> pages);
  HttpServer(HttpServer&&) noexcept;
  ~HttpServer();

  /// "http://127.0.0.1:8080", of this server; at all addresses of the machine, with the machine's name.
  std::string url() const;
  /// The same with what leads in: "http://10.0.0.3:8080/?token=...".
  std::string url_with_token() const;
  int port() const;
  const std::string& token() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether only this machine reaches HOST:PORT.
bool is_loopback(const std::string& address);

/// The body of GET `target`, "/data?from=0", at HOST:PORT. `token`: sent as `Authorization: Bearer`; "": none. Error: (usage) an
/// address that is none, (lost) nobody answers within 5 seconds, or with another status than 200; the sentence has the answer's
/// first line, or it is larger than 256 MiB.
Result<std::string> http_get(const std::string& address,
                             const std::string& target,
                             const std::string& token = "");

}  // namespace troupe
