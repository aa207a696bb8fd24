// Certificates of a cluster: how they are made, what is wrong with a folder of them, and who is believed.
#include "runtime/cluster/keys.hpp"

#include "runtime/cluster/tls.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "wire.pb.h"

#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace keys_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::time_t kDay = 24 * 60 * 60;

std::string refusal(const Result<void>& made) {
  return made ? "none" : made.error().message;
}

std::string why_not_loaded(const std::string& folder) {
  const auto loaded = Credentials::load(folder);
  return loaded ? "none" : loaded.error().message;
}

int mode_of(const std::string& path) {
  struct stat status {};

  return ::stat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 07777) : -1;
}

Credentials credentials(const std::string& folder) {
  auto loaded = Credentials::load(folder);
  INFO(why_not_loaded(folder));
  REQUIRE(loaded);
  return *std::move(loaded);
}

Patience soon(std::chrono::milliseconds time = 5s) {
  return {.until = std::chrono::steady_clock::now() + time};
}

using Ends = std::array<int, 2>;

Ends sockets() {
  Ends ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return ends;
}

struct Greeting {
  std::string lead;  // what it says of the node, or "believed"
  std::string node;
};

/// A lead, which wants `host`, and a node greet each other; a word goes to the lead, which only then knows.
Greeting greeting(const Credentials& lead, const Credentials& node, const std::string& host) {
  const Ends ends = sockets();
  Greeting said;
  std::thread other([&] {
    auto stream = node.welcome(ends[1], soon());
    said.node = stream ? "believed" : stream.error().message;
    if (stream) {
      proto::Join word;
      write_message(**stream, word, soon());
    }
  });
  auto stream = lead.greet(ends[0], host, soon());
  said.lead = stream ? "believed" : stream.error().message;
  if (stream) {
    proto::Join word;
    if (read_message(**stream, word, soon()) != Talk::done) {
      said.lead = (*stream)->trouble();
    }
  }
  stream = Error{};
  other.join();
  return said;
}

/// A client of TLS that has no certificate, or one that no Credentials would show.
std::string tls_client(int socket, const std::string& certificate, const std::string& key) {
  const OpensslContext context(SSL_CTX_new(TLS_client_method()));
  if (!certificate.empty()) {
    REQUIRE(SSL_CTX_use_certificate_file(context.get(), certificate.c_str(), SSL_FILETYPE_PEM) ==
            1);
    REQUIRE(SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) == 1);
  }
  const OpensslSession session(SSL_new(context.get()));
  SSL_set_fd(session.get(), socket);
  std::array<char, 1> byte{};
  while (SSL_connect(session.get()) != 1) {
    pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
    if (SSL_want(session.get()) != SSL_READING || ::poll(&one, 1, 5000) <= 0) {
      return "refused";
    }
  }
  pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
  ::poll(&one, 1, 5000);
  return SSL_read(session.get(), byte.data(), 1) == 1 ? "let in" : "refused";
}

/// What a node says of a client that does `act` at its end of the connection.
template <class Act>
std::string seen_by(const Credentials& node, Act act, std::chrono::milliseconds time = 5s) {
  const Ends ends = sockets();
  std::thread other([&] {
    act(ends[0]);
    ::close(ends[0]);
  });
  auto stream = node.welcome(ends[1], soon(time));
  const std::string said = stream ? "believed" : stream.error().message;
  stream = Error{};
  other.join();
  return said;
}

}  // namespace

TEST_CASE("keys are the user's alone, and those of all hosts believe each other") {
  std::signal(SIGPIPE, SIG_IGN);
  const Folder folder;
  const std::string keys = folder / "keys";
  REQUIRE(make_keys(keys, {"alpha", "10.0.0.3"}));
  REQUIRE(make_keys(keys, {"::1"}));  // a host that comes later
  CHECK(mode_of(keys) == 0700);
  CHECK(mode_of(keys + "/alpha") == 0700);
  for (const char* file :
       {"/ca.key", "/ca.pem", "/alpha/alpha.key", "/alpha/alpha.pem", "/alpha/ca.pem"}) {
    CHECK(mode_of(keys + file) == 0600);
  }
  CHECK(!fs::exists(keys + "/alpha/ca.key"));
  const Credentials alpha = credentials(keys + "/alpha");
  const Credentials three = credentials(keys + "/10.0.0.3");
  const Credentials later = credentials(keys + "/::1");
  CHECK(alpha.name() == "alpha");
  for (const auto& [lead, node, host] : {std::tuple(&three, &alpha, "alpha"),
                                         std::tuple(&alpha, &three, "10.0.0.3"),
                                         std::tuple(&alpha, &later, "::1")}) {
    const Greeting said = greeting(*lead, *node, host);
    CHECK(said.lead == "believed");
    CHECK(said.node == "believed");
  }
}

TEST_CASE("keys are not made over others, nor for what is no host") {
  const Folder folder;
  const std::string keys = folder / "keys";
  REQUIRE(make_keys(keys, {"alpha"}));
  const std::string before = contents(keys + "/alpha/alpha.key");
  CHECK_THAT(refusal(make_keys(keys, {"beta", "alpha"})), says("nothing is overwritten"));
  CHECK(!fs::exists(keys + "/beta"));
  CHECK(contents(keys + "/alpha/alpha.key") == before);
  CHECK_THAT(refusal(make_keys(folder / "none", {})), says("at least one host"));
  for (const char* host : {"", "../alpha", "-alpha", "a b", "ca", "a/b"}) {
    CHECK_THAT(refusal(make_keys(folder / "none", {host})), says("no name or address of a host"));
  }
  CHECK_THAT(refusal(make_keys(folder / "none", {"a", "a"})), says("named twice"));
  CHECK_THAT(refusal(make_keys(folder / "none", {"a"}, {.days = 0})), says("--days"));
  CHECK(!fs::exists(folder / "none"));
  fs::create_directory(folder / "full");
  CHECK_THAT(refusal(make_keys(folder / "full", {"a"})), says("has no ca.pem and ca.key"));
  CHECK_THAT(refusal(make_keys(folder / "no/such", {"a"})), says("could not be written"));
  // Nothing is left of keys that cannot be written whole: here the last host's name is too long for a file.
  std::string host(60, 'x');
  for (int i = 0; i < 3; ++i) {
    host += '.' + std::string(63, 'x');
  }
  CHECK_THAT(refusal(make_keys(folder / "new", {"a", host})), says("could not be written"));
  CHECK(!fs::exists(folder / "new"));
  CHECK_THAT(refusal(make_keys(keys, {"beta", host})), says("could not be written"));
  CHECK(!fs::exists(keys + "/beta"));
  CHECK(make_keys(keys, {"beta"}));
  // The authority is for ten years.
  CHECK_THAT(
      refusal(make_keys(keys, {"late"}, {.days = 30, .from = std::time(nullptr) + 3640 * kDay})),
      says("ends before 30 days are over"));
}

TEST_CASE("what is wrong with a folder of keys is told before anything begins") {
  const Folder folder;
  const std::string keys = folder / "keys";
  const std::string other = folder / "other";
  REQUIRE(make_keys(keys, {"alpha", "beta"}));
  REQUIRE(make_keys(other, {"alpha"}));
  const std::string alpha = keys + "/alpha/";
  const auto copy = [](const std::string& from, const std::string& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  };
  CHECK_THAT(why_not_loaded(folder / "none"), says("cannot be read"));
  CHECK_THAT(why_not_loaded(keys), says("name the folder of this host"));
  SECTION("the key is missing") {
    fs::remove(alpha + "alpha.key");
    CHECK_THAT(why_not_loaded(alpha), says("alpha.key is missing"));
  }
  SECTION("the authority is missing") {
    fs::remove(alpha + "ca.pem");
    CHECK_THAT(why_not_loaded(alpha), says("ca.pem is missing"));
  }
  SECTION("the certificate is missing") {
    fs::remove(alpha + "alpha.pem");
    CHECK_THAT(why_not_loaded(alpha), says("has 0 certificates"));
  }
  SECTION("there are two") {
    copy(keys + "/beta/beta.pem", alpha + "beta.pem");
    CHECK_THAT(why_not_loaded(alpha), says("has 2 certificates"));
  }
  SECTION("others can read the key") {
    ::chmod((alpha + "alpha.key").c_str(), 0640);
    CHECK_THAT(why_not_loaded(alpha), says("can be read by others"));
  }
  SECTION("the key is another's") {
    copy(keys + "/beta/beta.key", alpha + "alpha.key");
    CHECK_THAT(why_not_loaded(alpha), says("is not the key of the certificate"));
  }
  SECTION("the authority is another's") {
    copy(other + "/alpha/ca.pem", alpha + "ca.pem");
    CHECK_THAT(why_not_loaded(alpha), says("is not of the authority"));
  }
  SECTION("something else stands in the files") {
    std::ofstream(alpha + "alpha.pem") << "hello";
    CHECK_THAT(why_not_loaded(alpha), says("is no certificate"));
    copy(keys + "/beta/beta.pem", alpha + "alpha.pem");
    std::ofstream(alpha + "alpha.key") << "hello";
    CHECK_THAT(why_not_loaded(alpha), says("is no private key"));
  }
  SECTION("it has expired, or is not good yet") {
    const std::time_t now = std::time(nullptr);
    REQUIRE(make_keys(folder / "old", {"alpha"}, {.days = 3, .from = now - 4 * kDay}));
    CHECK_THAT(why_not_loaded(folder / "old/alpha"), says("alpha.pem has expired"));
    REQUIRE(make_keys(folder / "new", {"alpha"}, {.days = 3, .from = now + kDay}));
    CHECK_THAT(why_not_loaded(folder / "new/alpha"), says("is not good yet"));
  }
}

TEST_CASE("whoever does not show what he should is not believed, and it is said why") {
  std::signal(SIGPIPE, SIG_IGN);
  const Folder folder;
  const std::string keys = folder / "keys";
  REQUIRE(make_keys(keys, {"alpha", "beta"}));
  REQUIRE(make_keys(folder / "other", {"alpha", "beta"}));
  const Credentials alpha = credentials(keys + "/alpha");
  const Credentials beta = credentials(keys + "/beta");
  const Credentials rogue = credentials(folder / "other/alpha");
  SECTION("another host than the one that was called") {
    CHECK_THAT(greeting(alpha, beta, "gamma").lead, says("hostname mismatch"));
    CHECK_THAT(greeting(alpha, beta, "10.0.0.9").lead, says("IP address mismatch"));
  }
  SECTION("a node of another authority") {
    CHECK_THAT(greeting(alpha, rogue, "alpha").lead, says("its certificate is not believed"));
  }
  SECTION("a lead of another authority") {
    const Greeting said = greeting(rogue, alpha, "alpha");
    CHECK(said.lead != "believed");
    CHECK(said.node != "believed");
  }
  const auto client = [&](const std::string& certificate, const std::string& key) {
    return seen_by(alpha,
                   [&](int socket) { CHECK(tls_client(socket, certificate, key) == "refused"); });
  };
  SECTION("no certificate at all") {
    CHECK_THAT(client("", ""), says("peer did not return a certificate"));
  }
  SECTION("one of another authority") {
    CHECK_THAT(client(folder / "other/beta/beta.pem", folder / "other/beta/beta.key"),
               says("its certificate is not believed"));
  }
  SECTION("one that has expired") {
    REQUIRE(make_keys(keys, {"old"}, {.days = 3, .from = std::time(nullptr) - 4 * kDay}));
    CHECK_THAT(client(keys + "/old/old.pem", keys + "/old/old.key"),
               says("certificate has expired"));
  }
  SECTION("something else than TLS") {
    const std::string http = "GET / HTTP/1.0\r\n\r\n";
    CHECK_THAT(seen_by(alpha, [&](int socket) { ::send(socket, http.data(), http.size(), 0); }),
               says("does not speak TLS"));
  }
  SECTION("nothing, or a byte now and then") {
    const auto trickle = [](int socket) {
      for (int i = 0; i < 30; ++i) {
        const char byte = i == 0 ? 0x16 : 3;
        ::send(socket, &byte, 1, MSG_NOSIGNAL);
        std::this_thread::sleep_for(20ms);
      }
    };
    const auto begin = std::chrono::steady_clock::now();
    CHECK(seen_by(alpha, trickle, 300ms) != "believed");
    CHECK(std::chrono::steady_clock::now() - begin < 3s);
    const auto wait = [](int) {
      std::this_thread::sleep_for(400ms);
    };
    CHECK_THAT(seen_by(alpha, wait, 300ms), says("not shown in time"));
  }
}

TEST_CASE("a word is bounded, in size and in time") {
  const Ends ends = sockets();
  DescriptorStream stream(ends[0], ends[0]);
  proto::Join word;
  SECTION("4 GiB are announced") {
    REQUIRE(::send(ends[1], "\xff\xff\xff\xff", 4, 0) == 4);
    CHECK(read_message(stream, word, soon()) == Talk::gone);
  }
  SECTION("a byte now and then") {
    std::thread other([&] {
      for (int i = 0; i < 40; ++i) {
        ::send(ends[1], "\x10\0\0\0\0\0", static_cast<std::size_t>(i == 0 ? 4 : 1), MSG_NOSIGNAL);
        std::this_thread::sleep_for(20ms);
      }
    });
    CHECK(read_message(stream, word, soon(150ms)) == Talk::late);
    other.join();
  }
  SECTION("what is written and not taken") {
    word.set_experiment(std::string(16 << 20, 'x'));
    CHECK(write_message(stream, word, soon(150ms)) == Talk::late);
  }
  ::close(ends[1]);
}

TEST_CASE("the end of a stream is seen through TLS") {
  std::signal(SIGPIPE, SIG_IGN);
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"alpha", "beta"}));
  const Credentials alpha = credentials(folder / "keys/alpha");
  const Credentials beta = credentials(folder / "keys/beta");
  const Ends ends = sockets();
  Result<std::unique_ptr<TlsStream>> node = Error{};
  std::thread other([&] { node = beta.welcome(ends[1], soon()); });
  auto lead = alpha.greet(ends[0], "beta", soon());
  other.join();
  REQUIRE(lead);
  REQUIRE(node);
  CHECK((*node)->peer() == "alpha");
  CHECK(!(*lead)->at_end());
  CHECK(!(*node)->at_end());
  (*lead)->finish();
  CHECK((*node)->at_end());
  proto::Join word;
  word.set_version("last");
  CHECK(write_message(**node, word, soon()) == Talk::done);  // its own half stays open
  proto::Join heard;
  CHECK(read_message(**lead, heard, soon()) == Talk::done);
  CHECK(heard.version() == "last");
  node = Error{};
  CHECK((*lead)->at_end());
}

}  // namespace keys_test
