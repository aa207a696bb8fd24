#include "runtime/serve/http.hpp"

#include "kernels/wording.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/tcp.hpp"

#include <httplib.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

namespace troupe {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kConnectionsMax = 2 * kThreads;
constexpr std::chrono::seconds kSilence{2};
constexpr std::chrono::seconds kAnswer{30};     // for all of one that is sent
constexpr int kAnswerSeconds = 5;               // between two pieces of one that is read
constexpr std::size_t kRequestMax = 64 * 1024;  // bytes
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

/// A connection while it is served. The library reads a header to its end, however long it is and however slowly it comes, so
/// both have their bounds here.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, std::chrono::milliseconds patience)
      : socket_(socket), until_(Clock::now() + patience) {}

  bool is_readable() const override { return begin_ < end_ || comes(POLLIN); }

  bool is_writable() const override { return comes(POLLOUT); }

  ssize_t read(char* to, std::size_t most) override {
    if (begin_ == end_) {
      const std::size_t room = std::min(buffer_.size(), left_);
      const ssize_t come =
          room > 0 && comes(POLLIN) ? ::recv(socket_, buffer_.data(), room, MSG_DONTWAIT) : -1;
      if (come <= 0) {
        return come;
      }
      begin_ = 0;
      end_ = static_cast<std::size_t>(come);
      left_ -= end_;
    }
    const std::size_t count = std::min(most, end_ - begin_);
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), count, to);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, std::size_t count) override {
    until_ = answers_ ? until_ : Clock::now() + kAnswer;
    answers_ = true;
    ssize_t sent = -1;
    do {
      sent = comes(POLLOUT) ? ::send(socket_, from, count, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    } while (sent < 0 && (errno == EAGAIN || errno == EINTR) && Clock::now() < until_);
    return sent;
  }

  void get_remote_ip_and_port(std::string&, int&) const override {}

  void get_local_ip_and_port(std::string&, int&) const override {}

  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Whether it does, before the connection has been silent for too long and before the end of its time.
  bool comes(short what) const {
    const auto most = answers_ ? kAnswer : kSilence;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - Clock::now());
    pollfd one{.fd = socket_, .events = what, .revents = 0};
    return left.count() > 0 &&
           ::poll(&one,
                  1,
                  static_cast<int>(std::min<std::chrono::milliseconds>(most, left).count())) > 0;
  }

  int socket_;
  Clock::time_point until_;
  bool answers_ = false;
  std::size_t left_ = kRequestMax;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Serves one request a connection, and lets go of all of them when it is told to.
class Serving final : public httplib::Server {
 public:
  std::chrono::milliseconds patience{};  // with a request; set before it listens

  /// What has come is answered, where that does not take long. To be called when no more connections are accepted.
  void let_go() {
    std::unique_lock lock(mutex_);
    how_ = SHUT_RD;
    for (const int socket : open_) {
      ::shutdown(socket, SHUT_RD);
    }
    closed_.wait_for(lock, kSilence, [&] { return open_.empty(); });
    how_ = SHUT_RDWR;
    for (const int socket : open_) {
      ::shutdown(socket, SHUT_RDWR);
    }
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    {
      const std::lock_guard lock(mutex_);
      open_.insert(socket);
      if (how_) {
        ::shutdown(socket, *how_);
      }
    }
    try {
      Connection connection(socket, patience);
      bool closed = false;
      // Of an answer whole pages are sent: ranges of it, of which a request can ask for thousands, could be larger.
      process_request(
          connection, true, closed, [](httplib::Request& request) { request.ranges.clear(); });
    } catch (const std::exception&) {  // memory may be scarce; whoever asked asks again
    }
    const std::lock_guard lock(mutex_);
    open_.erase(socket);
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    closed_.notify_all();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable closed_;
  std::set<int> open_;
  std::optional<int> how_;  // new connections are shut down
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
  Serving server{};
  std::thread serving{};
  std::atomic<bool> ended = false;

  ~State() {
    server.stop();
    server.let_go();
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
  TROUPE_TRY(address);
  const bool near = is_loopback_host(address->host);
  auto state = std::make_unique<State>();
  state->address = *address;
  state->token = near || !options.token.empty() ? options.token : new_token();
  state->pages = std::move(pages);
  state->server.patience = options.patience;
  httplib::Server& server = state->server;
  server.new_task_queue = [] {
    return new Connections;
  };
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
  state->serving = std::thread([of = state.get()] {
    of->server.listen_after_bind();
    of->ended = true;
  });
  while (!server.is_running()) {  // what is stopped before would begin afterwards
    if (state->ended) {
      return Error{ErrorKind::lost, concat("nothing can be served at ", options.address)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return HttpServer(std::move(state));
}

std::string HttpServer::url() const {
  const HostAddress& at = state_->address;
  std::array<char, 256> name{};  // of this machine, all of whose addresses these two stand for
  const bool all =
      (at.host == "0.0.0.0" || at.host == "::") && ::gethostname(name.data(), name.size() - 1) == 0;
  return "http://" + (all ? HostAddress{name.data(), at.port} : at).text();
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
  TROUPE_TRY(at);
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
    return Error{ErrorKind::lost,
                 fill_in("{} answers {}: {}",
                         address,
                         answered->status,
                         printable(body.substr(0, body.find('\n')), kStrangersSentenceMax))};
  }
  return body;
}

}  // namespace troupe
