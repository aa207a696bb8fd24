#include "runtime/serve/http.hpp"

#include "runtime/cluster/tcp.hpp"

#include <httplib.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace troupe {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kConnectionsMax = 2 * kThreads;
constexpr int kSilenceSeconds = 2;
constexpr int kAnswerSeconds = 5;
constexpr std::size_t kAnswerMax = std::size_t{1} << 28;
constexpr std::size_t kTokenBytes = 16;

enum Status : int {
  kOk = 200,
  kUnauthorized = 401,
  kForbidden = 403,
  kNotFound = 404,
  kNotAllowed = 405,
  kFailed = 500
};

/// Threads that take connections one by one. The one that accepts waits where they have enough to do.
class Connections final : public httplib::ThreadPool {
 public:
  Connections() : ThreadPool(kThreads) {}

  /// Returns what this release of the library wants to have returned.
  auto enqueue(std::function<void()> serve)
      -> decltype(std::declval<httplib::ThreadPool&>().enqueue(serve)) override {
    {
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [&] { return count_ < kConnectionsMax; });
      ++count_;
    }
    return ThreadPool::enqueue([this, serve = std::move(serve)] {
      serve();
      const std::lock_guard lock(mutex_);
      --count_;
      ended_.notify_one();
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t count_ = 0;
};

std::string new_token() {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    throw std::runtime_error("the system gives no random bytes");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += {kDigits[byte / kDigits.size()], kDigits[byte % kDigits.size()]};
  }
  return token;
}

/// How long it takes says nothing of where they differ.
bool are_equal(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_ip(host));
}

/// Of the header Host, which may lack the port.
bool names_this_machine(const std::string& host) {
  const auto address = parse_address(host);
  return host.empty() || is_loopback_host(address ? address->host : host) || host == "[::1]";
}

HttpReply answer(const httplib::Request& request,
                 const std::string& token,
                 const std::map<std::string, HttpHandler>& pages) {
  if (request.method != "GET" && request.method != "HEAD") {
    return {.body = "there is only GET here\n", .status = kNotAllowed};
  }
  if (token.empty() && !names_this_machine(request.get_header_value("Host"))) {
    return {.body = "this is for the machine itself; ask for 127.0.0.1 or localhost\n",
            .status = kForbidden};
  }
  if (!token.empty() && !are_equal(request.get_param_value("token"), token) &&
      !are_equal(request.get_header_value("Authorization"), "Bearer " + token)) {
    return {.body = "the token is missing or wrong: ?token=TOKEN, as the program has printed it\n",
            .status = kUnauthorized};
  }
  const auto page = pages.find(request.path);
  if (page == pages.end()) {
    std::string paths;
    for (const auto& [path, _] : pages) {
      paths += " " + path;
    }
    return {.body = concat("there is no such page; there is", paths, "\n"), .status = kNotFound};
  }
  HttpRequest of{.path = request.path, .header = [&](const std::string& name) {
                   return request.get_header_value(name);
                 }};
  for (const auto& [name, value] : request.params) {
    of.query[name] = value;
  }
  try {
    return page->second(of);
  } catch (const std::exception& error) {
    return {.body = concat(error.what(), "\n"), .status = kFailed};
  }
}

}  // namespace

struct HttpServer::State {
  HostAddress address;
  std::string token;
  std::map<std::string, HttpHandler> pages;
  httplib::Server server{};
  std::thread serving{};

  ~State() {
    server.stop();
    if (serving.joinable()) {
      serving.join();
    }
  }
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;

Result<HttpServer> HttpServer::start(const Options& options,
                                     std::map<std::string, HttpHandler> pages) {
  const auto address = parse_address(options.address);
  if (!address) {
    return address.error();
  }
  const bool near = is_loopback_host(address->host);
  auto state = std::make_unique<State>();
  state->address = *address;
  state->token = near || !options.token.empty() ? options.token : new_token();
  state->pages = std::move(pages);
  httplib::Server& server = state->server;
  server.new_task_queue = [] {
    return new Connections;
  };
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(kSilenceSeconds);
  server.set_read_timeout(kSilenceSeconds);
  server.set_write_timeout(kAnswerSeconds);
  server.set_payload_max_length(0);
  server.set_default_headers(
      {{"Cache-Control", "no-store"},
       {"Referrer-Policy", "no-referrer"},
       {"X-Content-Type-Options", "nosniff"},
       {"Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
        "'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}});
  // The library's own lets a second program take the same port, and half of the requests.
  server.set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_pre_routing_handler(
      [of = state.get()](const httplib::Request& request, httplib::Response& response) {
        const HttpReply reply = answer(request, of->token, of->pages);
        response.status = reply.status;
        response.set_content(reply.body, reply.type);
        return httplib::Server::HandlerResponse::Handled;
      });
  errno = 0;
  const int port = address->port == 0 ? server.bind_to_any_port(address->host)
                   : server.bind_to_port(address->host, address->port) ? address->port
                                                                       : -1;
  if (port <= 0) {
    const bool taken = errno == EADDRINUSE;
    return Error{
        ErrorKind::usage,
        concat("nothing can be served at ",
               options.address,
               taken ? ": another program has that port; port 0 takes any that is free"
                     : ": this machine has no such address, or the port is not for everybody")};
  }
  state->address.port = port;
  state->serving = std::thread([&server] { server.listen_after_bind(); });
  while (!server.is_running()) {  // what is stopped before would begin afterwards
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return HttpServer(std::move(state));
}

std::string HttpServer::url() const {
  return "http://" + state_->address.text();
}

std::string HttpServer::url_with_token() const {
  return url() + (token().empty() ? "/" : "/?token=" + token());
}

int HttpServer::port() const {
  return state_->address.port;
}

const std::string& HttpServer::token() const {
  return state_->token;
}

bool is_loopback(const std::string& address) {
  const auto parsed = parse_address(address);
  return parsed && is_loopback_host(parsed->host);
}

Result<std::string> http_get(const std::string& address,
                             const std::string& target,
                             const std::string& token) {
  const auto at = parse_address(address);
  if (!at) {
    return at.error();
  }
  httplib::Client client(at->host, at->port);
  client.set_connection_timeout(kAnswerSeconds);
  client.set_read_timeout(kAnswerSeconds);
  httplib::Headers headers;
  if (!token.empty()) {
    headers.emplace("Authorization", "Bearer " + token);
  }
  std::string body;
  const auto answered =
      client.Get(target.c_str(), headers, [&](const char* data, std::size_t count) {
        body.append(data, count);
        return body.size() <= kAnswerMax;
      });
  if (!answered) {
    const bool large = body.size() > kAnswerMax;
    return Error{ErrorKind::lost,
                 concat(address,
                        large ? " answers with more than 256 MiB" : " does not answer: ",
                        large ? "" : httplib::to_string(answered.error()))};
  }
  if (answered->status != kOk) {
    return Error{
        ErrorKind::lost,
        concat(address, " answers ", answered->status, ": ", body.substr(0, body.find('\n')))};
  }
  return body;
}

}  // namespace troupe
