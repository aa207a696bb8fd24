// Processes that something else has started: who they take themselves for, and that they find each other.
#include "apps/run/ranks.hpp"

#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ranks_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Variables = std::map<std::string, std::string>;

Result<Ranks> ranks(const Variables& variables) {
  return ranks_in([&](const char* name) -> std::string {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
}

/// "1 of 3, lead 127.0.0.1:29500, by RANK", or what is wrong.
std::string told(const Variables& variables) {
  const auto found = ranks(variables);
  return found ? concat(found->rank,
                        " of ",
                        found->processes,
                        ", lead ",
                        found->lead.text(),
                        ", by ",
                        found->told_by)
               : found.error().message;
}

/// A port that was free a moment ago.
int free_port() {
  const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
  REQUIRE(listening);
  const std::string address = near_address(*listening);
  ::close(*listening);
  return std::stoi(address.substr(address.find(':') + 1));
}

/// One of `processes` that are started alike, in an environment that says which.
std::unique_ptr<Program> start(int rank, int processes, int port, const Words& more) {
  Words words{"RANK=" + std::to_string(rank),
              "WORLD_SIZE=" + std::to_string(processes),
              "MASTER_ADDR=127.0.0.1",
              "MASTER_PORT=" + std::to_string(port),
              program_path(),
              "run",
              "teacher-mlp",
              "--quiet"};
  for (const char* setting : {"data.teacher.train=1000",
                              "data.teacher.test=100",
                              "stop.epochs=0",
                              "stop.updates=60",
                              "clock.modelled=false",
                              "pipeline.stages=3",
                              "pipeline.schedule=async_one_f_one_b",
                              "pipeline.weights=stash"}) {
    words.insert(words.end(), {"--set", setting});
  }
  words.insert(words.end(), {"--join", "env"});
  words.insert(words.end(), more.begin(), more.end());
  return std::make_unique<Program>(words, "", "/usr/bin/env");
}

}  // namespace

TEST_CASE("what others tell in the environment is understood", "[apps]") {
  CHECK(told({{"RANK", "1"},
              {"WORLD_SIZE", "3"},
              {"MASTER_ADDR", "alpha"},
              {"MASTER_PORT", "7000"}}) == "1 of 3, lead alpha:7000, by RANK");
  CHECK(told({{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
              {"SLURM_PROCID", "0"},  // of the shell in which mpirun was called
              {"SLURM_NTASKS", "8"}}) == "1 of 2, lead 127.0.0.1:29500, by OMPI_COMM_WORLD_RANK");
  CHECK(told({{"RANK", "1"},
              {"WORLD_SIZE", "3"},
              {"MASTER_ADDR", "alpha"},
              {"MASTER_PORT", "41743"},
              {"TORCHELASTIC_USE_AGENT_STORE", "True"}}) == "1 of 3, lead alpha:25743, by RANK");
  CHECK(told({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}}) ==
        "3 of 4, lead 10.0.0.1:29500, by PMI_RANK");
  CHECK(told({{"SLURM_PROCID", "2"},
              {"SLURM_NTASKS", "4"},
              {"SLURM_JOB_ID", "123456"},
              {"SLURM_JOB_NODELIST", "gpu[07-09,12]"}}) ==
        "2 of 4, lead gpu07:23456, by SLURM_PROCID");
  CHECK_THAT(told({}), says("nothing in the environment tells which process this is"));
  CHECK_THAT(told({{"RANK", "3"}, {"WORLD_SIZE", "3"}}), says("use a number from 0 to 2"));
  CHECK_THAT(told({{"RANK", "one"}, {"WORLD_SIZE", "3"}}), says("RANK is \"one\""));
  CHECK_THAT(told({{"RANK", "0"}, {"WORLD_SIZE", "100000"}}), says("WORLD_SIZE"));
  CHECK_THAT(told({{"RANK", "1"}, {"WORLD_SIZE", "3"}}), says("set MASTER_ADDR"));
  CHECK_THAT(
      told({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "alpha"}, {"MASTER_PORT", "0"}}),
      says("MASTER_PORT"));
  CHECK(ranks({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->processes == 1);
  for (const auto& [here, one_machine] : {std::pair("2", true), std::pair("1", false)}) {
    CHECK(ranks({{"RANK", "0"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_WORLD_SIZE", here},
                 {"MASTER_ADDR", "alpha"}})
              ->one_machine == one_machine);
  }
}

TEST_CASE("the first node of Slurm's lists is found", "[apps]") {
  for (const auto& [list, first] :
       std::map<std::string, std::string>{{"alpha", "alpha"},
                                          {"alpha,beta", "alpha"},
                                          {"node[001-004,007],x", "node001"},
                                          {"rack[1-2]node[3,5-6]-ib,other", "rack1node3-ib"},
                                          {"", ""}}) {
    CHECK(first_node(list) == first);
  }
}

TEST_CASE("processes that were started alike find each other, in whatever order they come",
          "[apps]") {
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1"}));
  std::string digest;
  for (const Words& more : {Words{}, Words{"--keys", folder / "keys/127.0.0.1"}}) {
    const int port = free_port();
    const auto two = start(2, 3, port, more);
    const auto lead = start(0, 3, port, more);
    const auto one = start(1, 3, port, more);
    const Said said = lead->wait();
    INFO(said.err << one->err() << two->err());
    CHECK(said.code == 0);
    CHECK(one->wait().code == 0);
    CHECK(two->wait().code == 0);
    CHECK(digest_of(said).size() == 64);
    CHECK((digest.empty() || digest == digest_of(said)));
    digest = digest_of(said);
  }
  const auto alone = start(0, 1, free_port(), {});
  CHECK(digest_of(alone->wait()) == digest);
}

TEST_CASE("who is not one of the processes is refused, and they meet all the same", "[apps]") {
  const Folder folder;
  const int port = free_port();
  const auto lead = start(0, 2, port, {});
  const auto other = start(1, 7, port, {});  // of another run
  const HostAddress at{"127.0.0.1", port};
  int silent = -1;
  wait_until([&] {
    const auto connected = connect_to(at, Nearness::this_machine, {});
    silent = connected ? *connected : -1;
    return silent >= 0;
  });
  REQUIRE(::send(silent, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL) == 4);
  wait_until([&] {
    const std::string said = lead->err();
    return said.find("of another run") != std::string::npos &&
           said.find("has not sent the first message") != std::string::npos;
  });
  CHECK(other->wait().code == 5);
  const auto one = start(1, 2, port, {});
  const Said said = lead->wait();
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(one->wait().code == 0);
  ::close(silent);
}

namespace {

/// Replicas that train until they are stopped.
Words replicas(const std::string& out, const std::string& exchange) {
  return {"--set",
          "pipeline.stages=1",
          "--set",
          "replicas.count=2",
          "--set",
          "replicas.exchange=" + exchange,
          "--set",
          "stop.updates=1000000000",
          "--set",
          "record.every=1",
          "--out",
          out};
}

}  // namespace

TEST_CASE("another may take the place of one that was lost, where the scheme bears it", "[apps]") {
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1"}));
  const std::string exchange = GENERATE("parameter_server", "averaging");
  const bool bears = exchange == "parameter_server";
  const std::string out = folder / "run";
  const int port = free_port();
  Words more = replicas(out, exchange);
  if (bears) {
    more = with(more, {"--keys", folder / "keys/127.0.0.1"});
  }
  const auto told = [&](const std::string& kind, std::size_t from = 0) {
    return contents(out + "/metrics.jsonl").find("\"kind\":\"" + kind + '"', from) !=
           std::string::npos;
  };
  const auto lead = start(0, 2, port, more);
  const auto one = start(1, 2, port, more);
  wait_until([&] { return told("train"); });
  one->signal(SIGKILL);
  const auto another = start(1, 2, port, more);  // before the lead can have noticed, or after
  if (bears) {
    wait_until([&] { return told("returned"); });
    const std::size_t since = contents(out + "/metrics.jsonl").size();
    wait_until([&] { return told("train", since); });
  } else {
    const Said said = another->wait();
    CHECK(said.code == 5);
    CHECK_THAT(said.err,
               says("process 1 was lost and is not replaced: a replica cannot come back "
                    "with replicas.exchange averaging"));
  }
  lead->signal(SIGINT);
  const Said said = lead->wait();
  INFO(said.err << another->err());
  CHECK(said.code == 130);
  CHECK_THAT(said.out, bears ? says("returned") : says("the others went on"));
  if (bears) {
    CHECK(another->wait().code == 0);
  }
}

TEST_CASE("with --restarts all come again where one was lost, and so does another in its place",
          "[apps]") {
  const Folder folder;
  const std::string out = folder / "run";
  const Words more{"--set", "stop.updates=1000", "--set", "record.checkpoint.every=20"};
  const Words restarts = with(more, {"--restarts", "1"});
  const int port = free_port();
  const auto lead = start(0, 3, port, with(restarts, {"--out", out}));
  const auto one = start(1, 3, port, restarts);
  const auto two = start(2, 3, port, restarts);
  wait_until([&] { return has_checkpoint(out); });
  one->signal(SIGKILL);
  const auto another = start(1, 3, port, restarts);
  const Said said = lead->wait();
  INFO(said.out << said.err << another->err() << two->err());
  CHECK(said.code == 0);
  CHECK(another->wait().code == 0);
  CHECK(two->wait().code == 0);
  CHECK_THAT(said.out, says("goes on from update"));
  CHECK(digest_of(said) == digest_of(start(0, 1, free_port(), more)->wait()));
}

/// Hangs up on the next one that comes to `listening`, once it has said who it is.
void hang_up_on_one(int listening) {
  int socket = -1;
  std::string who;
  wait_until([&] { return (socket = accept_one(listening, who)) >= 0; });
  std::array<char, 64> said{};
  wait_until([&] { return ::recv(socket, said.data(), said.size(), 0) > 0; });
  ::close(socket);
}

TEST_CASE("a process that was hung up on before its run had begun comes again", "[apps]") {
  const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
  REQUIRE(listening);
  const std::string address = near_address(*listening);
  const int port = std::stoi(address.substr(address.find(':') + 1));
  const auto one = start(1, 2, port, {"--set", "pipeline.stages=2"});
  hang_up_on_one(*listening);
  hang_up_on_one(*listening);
  ::close(*listening);
  const Said said = start(0, 2, port, {"--set", "pipeline.stages=2"})->wait();
  INFO(said.err << one->err());
  CHECK(said.code == 0);
  CHECK(one->wait().code == 0);
}

TEST_CASE("a process that waits for its lead can be interrupted", "[apps]") {
  const auto alone = start(1, 2, free_port(), {});
  wait_until(
      [&] { return contents("/proc/" + std::to_string(alone->pid()) + "/comm") == "troupe\n"; });
  // It waits for a lead that does not come, and says why it has not been reached.
  wait_until([&] {
    return alone->err().find("waiting for process 0: 127.0.0.1:") != std::string::npos &&
           alone->err().find("cannot be reached: Connection refused") != std::string::npos;
  });
  alone->signal(SIGTERM);
  CHECK(alone->wait().code == 128 + SIGTERM);
}

TEST_CASE("words that do not go with --join are refused", "[apps]") {
  for (const Words& more : {Words{"--processes", "2"}, Words{"--hosts", "hosts"}}) {
    const Said said = start(0, 2, 1, more)->wait();
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says("name one"));
  }
  const Said other = run_program({"run", "--join", "slurm"});
  CHECK(other.code == 2);
  const Said nobody = Program({"MASTER_ADDR=10.1.2.3",
                               "RANK=1",
                               "WORLD_SIZE=2",
                               program_path(),
                               "run",
                               "--join",
                               "env"},
                              "",
                              "/usr/bin/env")
                          .wait();
  CHECK(nobody.code == 2);
  CHECK_THAT(nobody.err, says("is not an address of this machine alone; name --keys"));
}

}  // namespace ranks_test
