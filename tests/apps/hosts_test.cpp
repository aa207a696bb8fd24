// Runs on several hosts as users start them, all of them this machine: the weights of one process, who is refused
// and how that is told, and what becomes of a run when a host is lost. Two machines, with a network between them:
// tests/tools/two_hosts.py.
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "wire.pb.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace hosts_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// A pipeline of three stages, small, so that it takes some tenths of a second.
Words training(const std::string& stop = "stop.updates=120", const Words& more = {}) {
  Words all{"run", "teacher-mlp", "--quiet"};
  for (const char* setting : {"data.teacher.train=1000",
                              "data.teacher.test=100",
                              "stop.epochs=0",
                              "record.every=1",
                              "clock.modelled=false",
                              "pipeline.stages=3",
                              "pipeline.schedule=async_one_f_one_b",
                              "pipeline.weights=stash"}) {
    all = with(all, {"--set", setting});
  }
  return with(with(all, {"--set", stop}), more);
}

const std::string kEndless = "stop.updates=1000000000";

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// `troupe node` on a port of its own.
class Node {
 public:
  explicit Node(const Words& more = {}, const std::string& host = "127.0.0.1")
      : program_(with({"node", "--listen", host + ":0"}, more)) {
    const std::string word = "listening at ";
    wait_until([&] { return count(err(), "\n") > 0; });
    const std::string said = err();
    INFO(said);
    const std::size_t at = said.find(word);
    REQUIRE(at != std::string::npos);
    const std::string address = said.substr(at + word.size());
    const std::size_t colon = address.find(':');
    port = std::stoi(address.substr(colon + 1));
    line = host + ":" + std::to_string(port) + "\n";
  }

  std::string err() const { return program_.err(); }

  Program& program() { return program_; }

  /// Until it has said it so often.
  void await(const std::string& what, std::size_t times = 1) {
    wait_until([&] { return count(err(), what) >= times; });
  }

  /// A connection, without a word.
  int connect() const {
    const auto connected =
        connect_to({"127.0.0.1", port}, Nearness::this_machine, {.until = soon()});
    REQUIRE(connected);
    return *connected;
  }

  static std::chrono::steady_clock::time_point soon() {
    return std::chrono::steady_clock::now() + 20s;
  }

  int port = 0;
  std::string line;  // of a hosts file

 private:
  Program program_;
};

std::string file(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

Words on(const std::string& hosts, const std::string& keys = "") {
  Words words{"--hosts", hosts};
  return keys.empty() ? words : with(words, {"--keys", keys});
}

std::string digest_of_one() {
  static const std::string digest = digest_of(run_program(training()));
  return digest;
}

/// Until the run in `out` trains.
void await_training(const fs::path& out) {
  wait_until([&] {
    return contents(out / "metrics.jsonl").find("\"kind\":\"train\"") != std::string::npos;
  });
}

/// Stands for ssh, which must not be asked for a password here. It knows beta alone.
class StandInForSsh {
 public:
  explicit StandInForSsh(const Folder& folder)
      : path_(std::getenv("PATH")), started_(folder / "started") {
    const std::string ssh =
        file(folder / "ssh",
             "#!/bin/sh\n"
             "while [ \"$1\" != -- ]; do shift; done\n"
             "echo \"$2: $3\" >>" +
                 folder / "asked" +
                 "\n"
                 "[ \"$2\" = me@beta ] || { echo \"ssh: no route\" >&2; exit 255; }\n"
                 "echo $$ >>" +
                 started_ +
                 "\n"
                 "SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22' exec sh -c \"exec $3\"\n");
    fs::permissions(ssh, fs::perms::owner_all);
    ::setenv("PATH", (folder.path().string() + ":" + path_).c_str(), 1);
  }

  ~StandInForSsh() { ::setenv("PATH", path_.c_str(), 1); }

  StandInForSsh(const StandInForSsh&) = delete;
  StandInForSsh& operator=(const StandInForSsh&) = delete;

  /// The processes that it has become.
  std::vector<pid_t> started() const {
    std::istringstream text(contents(started_));
    return {std::istream_iterator<pid_t>(text), {}};
  }

 private:
  std::string path_;
  std::string started_;
};

}  // namespace

TEST_CASE("a run on nodes ends with the weights of one process, run after run", "[apps]") {
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1", "localhost", "lead"}));
  Node first({"--keys", folder / "keys/127.0.0.1"});
  Node second({"--keys", folder / "keys/localhost"}, "localhost");
  const std::string hosts = file(folder / "hosts", "# two\n" + first.line + "\n" + second.line);
  for (std::size_t i = 1; i <= 2; ++i) {
    const Said said = run_program(training("stop.updates=120", on(hosts, folder / "keys/lead")));
    INFO(said.err << first.err() << second.err());
    CHECK(said.code == 0);
    CHECK(digest_of(said) == digest_of_one());
    first.await("ended with exit code 0", i);
    second.await("ended with exit code 0", i);
    CHECK(count(first.err(), "(lead) has begun, as process 1 of 3") == i);
  }
  CHECK(count(first.err() + second.err(), "refused") == 0);
}

TEST_CASE("on this machine a node needs no keys, and may end after one run", "[apps]") {
  const Folder folder;
  Node node({"--once"});
  const Said said =
      run_program(training("stop.updates=120", on(file(folder / "hosts", node.line))));
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_of_one());
  const Said ended = node.program().wait();
  CHECK(ended.code == 0);
}

TEST_CASE("a node whose part of a run is killed is reached again, and plays it on", "[apps]") {
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1"}));
  const std::string keys = folder / "keys/127.0.0.1";
  Node node({"--keys", keys});
  const std::string out = folder / "run";
  Words replicas = with(on(file(folder / "hosts", node.line), keys), {"--out", out});
  for (const char* setting : {"pipeline.stages=1", "replicas.count=2"}) {
    replicas = with(replicas, {"--set", setting});
  }
  Program run(training(kEndless, replicas));
  await_training(out);
  const std::string task = "/proc/" + std::to_string(node.program().pid()) + "/task/" +
                           std::to_string(node.program().pid());
  ::kill(std::stoi(contents(task + "/children")), SIGKILL);
  wait_until([&] { return count(contents(out + "/metrics.jsonl"), "returned") > 0; });
  run.signal(SIGINT);
  const Said said = run.wait();
  INFO(said.err << node.err());
  CHECK(said.code == 130);
  CHECK_THAT(said.out, says("was killed") || says("has closed the connection"));
  CHECK_THAT(said.out, says("returned"));
  CHECK(count(node.err(), "has begun, as process 1 of 2") >=
        2);  // more where it was silent for long
}

namespace {}  // namespace

TEST_CASE("ssh starts a process where none listens", "[apps]") {
  const Folder folder;
  const StandInForSsh ssh(folder);
  const std::string line = "me@beta " + program_path() + "\n";
  const Said said =
      run_program(training("stop.updates=120", on(file(folder / "hosts", line + line))));
  const Said lost = run_program(training("stop.updates=120", on(file(folder / "gone", "gamma\n"))));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_of_one());
  CHECK(contents(folder / "asked") == concat("me@beta: ",
                                             program_path(),
                                             " node --stdio\n",
                                             "me@beta: ",
                                             program_path(),
                                             " node --stdio\n",
                                             "gamma: troupe node --stdio\n"));
  CHECK(lost.code == 5);
  CHECK_THAT(lost.err, says("no route") && says("process 1 on gamma ended with exit code 255"));
}

TEST_CASE("a process that ssh has started is killed, and comes back by ssh", "[apps]") {
  const Folder folder;
  const StandInForSsh ssh(folder);
  const std::string hosts = file(folder / "hosts", "me@beta " + program_path() + "\n");
  const std::string out = folder / "run";
  Words replicas = with(on(hosts), {"--out", out, "--back", "2"});
  for (const char* setting : {"pipeline.stages=1", "replicas.count=2"}) {
    replicas = with(replicas, {"--set", setting});
  }
  Program run(training(kEndless, replicas));
  await_training(out);
  for (std::size_t times = 1; times <= 2; ++times) {
    const std::vector<pid_t> started = ssh.started();
    REQUIRE(started.size() == times);
    REQUIRE(::kill(started.back(), SIGKILL) == 0);
    wait_until([&] { return count(contents(out + "/metrics.jsonl"), "\"returned\"") == times; });
  }
  CHECK(ssh.started().size() == 3);
  run.signal(SIGINT);
  const Said said = run.wait();
  INFO(said.err << said.out);
  CHECK(said.code == 130);
  CHECK(count(said.out, "process 1 on me@beta was killed by signal 9") == 2);
  CHECK(count(said.out, "returned") == 2);
  CHECK(::kill(ssh.started().back(), 0) != 0);  // it has ended with the run
}

TEST_CASE("hosts that cannot be reached, and words that are wrong, are told of", "[apps]") {
  const Folder folder;
  const std::string hosts = folder / "hosts";
  const auto said = [&](const std::string& text, const Words& more = {}) {
    file(hosts, text);
    return run_program(training("stop.updates=120", with(on(hosts), more)));
  };
  const std::vector<std::tuple<std::string, int, std::string>> cases{
      {"127.0.0.1:1\n", 5, "127.0.0.1:1 cannot be reached: Connection refused"},
      {"no-such-host.invalid:7000\n", 5, "no-such-host.invalid:7000: the host is not known"},
      {"10.1.2.3:7000\n", 2, "10.1.2.3:7000 is not an address of this machine alone; name --keys"},
      {"\n# nobody\n", 2, "names no host"},
      {"\nbeta:70000\n", 2, "hosts:2: \"beta:70000\" is neither HOST:PORT"},
      {"beta:0\n", 2, "is neither HOST:PORT"},
      {"-oProxyCommand=sh\n", 2, "hosts:1: \"-oProxyCommand=sh\" is neither"},
      {"beta troupe;ls\n", 2, "is no host and a program on it"},
      {"beta troupe node\n", 2, "is one word too many"},
      {"127.0.0.1:1\n127.0.0.1:1\n127.0.0.1:1\n", 2, "name at most 3"},
  };
  for (const auto& [text, code, why] : cases) {
    const Said told = said(text);
    INFO(text);
    CHECK(told.code == code);
    CHECK_THAT(told.err, says(why));
  }
  CHECK_THAT(said("127.0.0.1:1\n", {"--processes", "2"}).err, says("name one"));
  CHECK_THAT(run_program(training("stop.updates=120", {"--keys", "k"})).err,
             says("--keys goes with --hosts"));
  CHECK_THAT(said("127.0.0.1:1\n", {"--keys", folder / "none"}).err, says("cannot be read"));
  REQUIRE(make_keys(folder / "keys", {"lead"}));
  CHECK_THAT(said("127.0.0.1:1\n", {"--keys", folder / "keys/lead", "--transport", "ucx"}).err,
             says("say so by --trusted-network"));
  CHECK_THAT(said("beta\n", {"--transport", "ucx"}).err, says("say so by --trusted-network"));
  CHECK_THAT(run_program(training("stop.updates=120", on(folder / "missing"))).err,
             says("missing: it cannot be opened: No such file"));
}

TEST_CASE("a node is not begun where it could not be reached safely", "[apps]") {
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"alpha"}));
  fs::permissions(folder / "keys/alpha/alpha.key", fs::perms::others_read, fs::perm_options::add);
  const std::vector<std::tuple<Words, std::string>> cases{
      {{"--listen", "0.0.0.0:0"}, "is not an address of this machine alone; name --keys"},
      {{"--listen", "127.0.0.1:0", "--keys", folder / "keys"}, "name the folder of this host"},
      {{"--listen", "127.0.0.1:0", "--keys", folder / "keys/alpha"}, "can be read by others"},
      {{"--listen", "7000"}, "is no HOST:PORT"},
      {{"--listen", "127.0.0.1:0", "--address", "beta"}, "is no address as numbers"},
      {{"--listen", "127.0.0.1:0", "--stdio"}, "exclude each other"},
      {{"--once"}, "go with --listen"},
      {{"--transport", "ucx"}, "go with --listen"},
      {{"--stdio"}, "is for ssh"},
  };
  for (const auto& [words, why] : cases) {
    const Said said = run_program(with({"node"}, words));
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says(why));
  }
}

TEST_CASE("who may not lead is refused, and the node goes on", "[apps]") {
  std::signal(SIGPIPE, SIG_IGN);
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1", "localhost", "lead"}));
  REQUIRE(make_keys(folder / "other", {"lead"}));
  Node node({"--keys", folder / "keys/127.0.0.1"});
  const std::string hosts = file(folder / "hosts", node.line);
  const auto lead = [&](const std::string& at, const std::string& keys) {
    return run_program(training("stop.updates=120", on(at, keys)));
  };
  const Said stranger = lead(hosts, folder / "other/lead");
  CHECK(stranger.code == 5);
  CHECK_THAT(stranger.err, says("is not believed: its certificate is not believed"));
  const Said misnamed = lead(file(folder / "other_name", "localhost:" + std::to_string(node.port)),
                             folder / "keys/lead");
  CHECK(misnamed.code == 5);
  CHECK_THAT(misnamed.err, says("hostname mismatch"));
  const Said plain = lead(hosts, "");
  CHECK(plain.code == 5);
  CHECK_THAT(plain.err, says("where that node has --keys, name --keys here, too"));
  node.await("it does not speak TLS");
  const int http = node.connect();
  REQUIRE(::send(http, "GET / HTTP/1.0\r\n\r\n", 18, 0) == 18);
  node.await("it does not speak TLS", 2);
  ::close(http);
  std::deque<int> silent;
  for (int i = 0; i < 12; ++i) {  // more than a node listens to
    silent.push_back(node.connect());
  }
  const Said good = lead(hosts, folder / "keys/lead");
  INFO(good.err << node.err());
  CHECK(good.code == 0);
  CHECK(digest_of(good) == digest_of_one());
  node.await("others wait, and it has not shown who it is", 4);
  node.await("it has not shown in time who it is");
  for (const int socket : silent) {
    ::close(socket);
  }
  for (const char* secret : {"PRIVATE", "token"}) {
    CHECK(count(node.err() + good.err + good.out, secret) == 0);
  }
}

TEST_CASE("on a plain connection, too, nothing but a lead is listened to", "[apps]") {
  std::signal(SIGPIPE, SIG_IGN);
  const Folder folder;
  Node node;
  const auto stream = [&] {
    const int socket = node.connect();
    return std::make_unique<DescriptorStream>(socket, socket);
  };
  {
    const auto huge = stream();
    REQUIRE(huge->write(std::string("\xff\xff\xff\xff", 4)).bytes == 4);
    node.await("it has not sent the first message of a lead");
    wait_until([&] { return huge->at_end(); });  // it says why, then it hangs up
  }
  for (const std::uint32_t protocol : {1U, 77U}) {
    const auto old = stream();
    proto::Join join;
    join.set_version("0.0.9\x1b[2J");
    join.set_process(1);
    join.set_processes(2);
    join.set_protocol(protocol);
    REQUIRE(write_message(*old, join) == Talk::done);
    proto::Joined answer;
    REQUIRE(read_message(*old, answer) == Talk::done);
    CHECK(answer.exit_code() == 5);
    CHECK_THAT(answer.refusal(), says("the lead is of version 0.0.9?[2J with protocol"));
  }
  const Said said =
      run_program(training("stop.updates=120", on(file(folder / "hosts", node.line))));
  CHECK(digest_of(said) == digest_of_one());
}

TEST_CASE("a node of another version is told of", "[apps]") {
  const Folder folder;
  const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
  REQUIRE(listening);
  std::thread other([&] {
    pollfd one{.fd = *listening, .events = POLLIN, .revents = 0};
    ::poll(&one, 1, 30'000);
    std::string who;
    const int socket = accept_one(*listening, who);
    DescriptorStream lead(socket, socket);
    proto::Join join;
    read_message(lead, join);
    proto::Joined joined;
    joined.set_version("9.9.9");
    write_message(lead, joined);
    await_silence(lead);
  });
  const std::string hosts = file(folder / "hosts", near_address(*listening) + "\n");
  const Said said = run_program(training("stop.updates=120", on(hosts)));
  other.join();
  ::close(*listening);
  CHECK(said.code == 5);
  CHECK_THAT(said.err, says("is of version 9.9.9"));
}

TEST_CASE("a node that plays refuses a second lead and is not disturbed by it", "[apps]") {
  const Folder folder;
  Node node;
  const std::string hosts = file(folder / "hosts", node.line);
  Program run(with(training(kEndless, on(hosts)), {"--out", folder / "run"}));
  await_training(folder / "run");
  const Said second = run_program(training("stop.updates=120", on(hosts)));
  CHECK(second.code == 5);
  CHECK_THAT(second.err, says("this node plays another run now"));
  run.signal(SIGINT);
  const Said first = run.wait();
  CHECK(first.code == 130);
  CHECK(digest_of(first).size() == 64);
}

TEST_CASE("a host that is lost is told of by its name, and a node outlives its lead", "[apps]") {
  const Folder folder;
  Node stays;
  auto goes = std::make_unique<Node>();
  const std::string hosts = file(folder / "hosts", stays.line + goes->line);
  const std::string name = goes->line.substr(0, goes->line.size() - 1);
  Program run(with(training(kEndless, on(hosts)), {"--out", folder / "run"}));
  await_training(folder / "run");
  goes.reset();  // killed, and the process that plays the run with it
  const Said said = run.wait();
  CHECK(said.code == 5);
  CHECK_THAT(said.err, says("process 2 on " + name + " has closed the connection"));
  stays.await("ended with exit code 0");
  const std::string other = file(folder / "other", stays.line);
  {
    Program lead(with(training(kEndless, on(other)), {"--out", folder / "killed"}));
    await_training(folder / "killed");
    lead.signal(SIGKILL);
    stays.await("ended with exit code 5");
  }
  CHECK(digest_of(run_program(training("stop.updates=120", on(other)))) == digest_of_one());
}

namespace {

/// A run that has a checkpoint soon, and is lost some time before its end.
Words long_training(const std::string& out, const Words& more) {
  return training(
      "stop.updates=1000",
      with({"--set", "record.checkpoint.every=20", "--out", out, "--restarts", "1"}, more));
}

std::string digest_of_long() {
  static const std::string digest = digest_of(run_program(training("stop.updates=1000")));
  return digest;
}

}  // namespace

TEST_CASE("a run with restarts goes on with a node that comes back, or without it", "[apps]") {
  const Folder folder;
  const std::string out = folder / "run";
  const bool back = GENERATE(true, false);
  Node stays({"--once"});
  auto goes = std::make_unique<Node>();
  const std::string hosts = file(folder / "hosts", goes->line + stays.line);
  Program run(long_training(out, with(on(hosts), {"--restart-wait", back ? "60" : "1"})));
  wait_until([&] { return has_checkpoint(out); });
  if (back) {
    ::kill(nodes_of(goes->program().pid()).at(0), SIGKILL);  // the node itself listens on
  } else {
    goes.reset();
  }
  const Said said = run.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_of_long());
  CHECK_THAT(said.out, says("goes on from update"));
  CHECK((said.err.find("; the run goes on without ") != std::string::npos) == !back);
  CHECK(stays.program().wait().code == 0);  // only now its one run is over
}

TEST_CASE("where placement.on names a lost host, the run does not go on without it", "[apps]") {
  const Folder folder;
  const std::string out = folder / "run";
  Node stays;
  auto goes = std::make_unique<Node>();
  const std::string hosts = file(folder / "hosts", goes->line + stays.line);
  const bool named = GENERATE(true, false);
  const std::string place = named ? "[\"stage-2=1\",\"stage-1=2\"]" : "[\"stage-2=2\"]";
  Program run(long_training(
      out, with(on(hosts), {"--restart-wait", "0", "--set", "placement.on=" + place})));
  wait_until([&] { return has_checkpoint(out); });
  goes.reset();
  const Said said = run.wait();
  INFO(said.out << said.err);
  if (named) {
    CHECK(said.code == 5);
    CHECK_THAT(said.err,
               says("It cannot begin again: placement.on: \"stage-2=1\" names the process that "
                    "was lost"));
    CHECK_THAT(contents(out + "/summary.json"), says("It cannot begin again"));
  } else {
    CHECK(said.code == 0);  // the entry means the same host, which is process 1 now
    CHECK(digest_of(said) == digest_of_long());
  }
}

TEST_CASE("a run with restarts starts a process through ssh once more", "[apps]") {
  const Folder folder;
  const StandInForSsh ssh(folder);
  const std::string out = folder / "run";
  const std::string line = "me@beta " + program_path() + "\n";
  Program run(long_training(out, on(file(folder / "hosts", line + line))));
  wait_until([&] { return has_checkpoint(out); });
  ::kill(nodes_of(run.pid()).at(1), SIGKILL);
  const Said said = run.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_of_long());
  CHECK(count(contents(folder / "asked"), "node --stdio") >= 4);
}

TEST_CASE("an interrupt ends a run that waits for a host to begin again", "[apps]") {
  const Folder folder;
  const std::string out = folder / "run";
  auto goes = std::make_unique<Node>();
  Program run(
      long_training(out, with(on(file(folder / "hosts", goes->line)), {"--restart-wait", "600"})));
  wait_until([&] { return has_checkpoint(out); });
  goes.reset();
  wait_until([&] { return count(run.err(), "cannot begin again yet") > 0; });
  run.signal(SIGINT);
  const Said said = run.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 130);
  CHECK_THAT(contents(out + "/summary.json"), says("\"outcome\": \"interrupted\""));
  CHECK(digest_of(run_program({"run", "--resume", out})) == digest_of_long());
}

TEST_CASE("keys without hosts are those of an experiment", "[apps]") {
  const Said all = run_program({"keys"});
  CHECK(all.code == 0);
  CHECK_THAT(all.out,
             says("\n  optimizer ") && says("\n  data=glyphs ") && !says("optimizer.rule"));
  CHECK(std::count(all.out.begin(), all.out.end(), '\n') < 40);
  const Said some = run_program({"keys", "pipeline.weights"});
  CHECK(some.code == 0);
  CHECK_THAT(some.out, says("pipeline.weights=") && says("spectrain") && !says("pipeline.stages"));
  const Said none = run_program({"keys", "certificates"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err,
             says("keys: --hosts names the hosts that certificates in certificates are for"));
  const Said nowhere = run_program({"keys", "--hosts", "alpha"});
  CHECK(nowhere.code == 2);
  CHECK_THAT(nowhere.err, says("keys: name the folder for the keys"));
}

}  // namespace hosts_test
