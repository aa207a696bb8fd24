// --transport ucx: the weights of one process, between processes and between hosts, and who must have agreed to it.
#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/ucx_plane.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/skip.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace transport_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Small, with tensors that have no room in headers.
Words training(const Words& settings, const Words& more = {}) {
  Words all{"run", "teacher-mlp", "--quiet"};
  Words set{"data.teacher.train=1000",
            "data.teacher.test=100",
            "model.mlp.hidden=[256,256,256]",
            "stop.epochs=0",
            "stop.updates=120",
            "clock.modelled=false"};
  set.insert(set.end(), settings.begin(), settings.end());
  for (const std::string& setting : set) {
    all.insert(all.end(), {"--set", setting});
  }
  return with(all, more);
}

const Words kPipeline{
    "pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};
const Words kSynchronous{"pipeline.stages=1", "replicas.count=3", "replicas.exchange=synchronous"};
const Words kUcx{"--transport", "ucx"};

bool has_ucx() {
  const auto there = check_ucx();
  if (!there) {
    skip(there.error().message);
  }
  return static_cast<bool>(there);
}

/// `troupe node` on a port of its own, with a key.
class Node {
 public:
  Node(const std::string& keys, const Words& more)
      : program_(with({"node", "--listen", "127.0.0.1:0", "--keys", keys}, more)) {
    wait_until([this] { return program_.err().find(" as ") != std::string::npos; });
    const std::string said = program_.err();
    const std::size_t at = said.find("127.0.0.1");
    address = said.substr(at, said.find(" as ") - at);
  }

  std::string err() const { return program_.err(); }

  std::string address;

 private:
  Program program_;
};

}  // namespace

TEST_CASE("tensors that take UCX are the same to the bit, whatever UCX uses", "[apps]") {
  if (!has_ucx()) {
    return;
  }
  for (const Words& settings : {kPipeline, kSynchronous}) {
    const Said one = run_program(training(settings));
    REQUIRE(one.code == 0);
    ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);  // else it takes no shared memory
    for (const char* lanes : {"tcp,self", "posix,self", "all"}) {
      ::setenv("UCX_TLS", lanes, 1);
      const Said several = run_program(training(settings, with({"--processes", "3"}, kUcx)));
      ::unsetenv("UCX_TLS");
      INFO(lanes << several.err);
      CHECK(several.code == 0);
      CHECK(several.err.empty());
      CHECK(digest_of(several) == digest_of(one));
    }
  }
}

TEST_CASE("between hosts tensors take UCX where both ends trust the network", "[apps]") {
  if (!has_ucx()) {
    return;
  }
  const Folder folder;
  REQUIRE(make_keys(folder / "keys", {"127.0.0.1", "lead"}));
  const std::string keys = folder / "keys/127.0.0.1";
  const auto said_with = [&](const Node& node) {
    std::ofstream(folder / "hosts") << node.address << '\n';
    return run_program(training(
        kPipeline,
        with({"--hosts", folder / "hosts", "--keys", folder / "keys/lead", "--trusted-network"},
             kUcx)));
  };
  const Node trusts(keys, {"--trusted-network"});
  const Said said = said_with(trusts);
  INFO(said.err << trusts.err());
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_of(run_program(training(kPipeline))));
  const Said untrusted = said_with(Node(keys, {}));
  CHECK(untrusted.code == 5);
  CHECK_THAT(untrusted.err, says("needs --trusted-network, too"));
  const Said streams = said_with(Node(keys, {"--trusted-network", "--transport", "streams"}));
  CHECK(streams.code == 5);
  CHECK_THAT(streams.err, says("the lead has --transport ucx, this process streams"));
}

TEST_CASE("a program that was built without UCX, or finds none, says so before it begins",
          "[apps]") {
  if (has_ucx()) {
    ::setenv("UCX_TLS", "none-such", 1);
  }
  const Said said = run_program(training(kPipeline, with({"--processes", "2"}, kUcx)));
  ::unsetenv("UCX_TLS");
  CHECK(said.code == 2);
  CHECK_THAT(said.err, says("--transport ucx: "));
  CHECK_THAT(run_program({"doctor"}).out, says("UCX"));
}

}  // namespace transport_test
