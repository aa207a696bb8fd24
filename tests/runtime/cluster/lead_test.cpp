// A lead and its nodes: how a run begins and ends, who is lost, and who is believed. The nodes are this same
// program, started with the word "node", which is the name of a test case; what they play is told by the text
// that stands for the experiment.
#include "runtime/cluster/lead.hpp"

#include "messages/bad_sender.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/system/threads.hpp"
#include "runtime/system/trace.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"
#include "wire.pb.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <thread>

namespace lead_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kRecords = 3000;

std::uint32_t own_life = 0;  // of a node

/// A cast, of which machine i plays in process i. Machine 0 is the Director.
Cast cast_of(int processes, const Part& director, const Part& other) {
  Cast cast = directed_by(director);
  for (int p = 1; p < processes; ++p) {
    cast.starting.push_back(add(cast, concat("machine-", p), p, other));
  }
  return cast;
}

std::vector<int> own_processes(int processes) {
  std::vector<int> all;
  for (int p = 0; p < processes; ++p) {
    all.push_back(p);
  }
  return all;
}

/// Tells the Director that it has got that far.
void tell(Effects& fx, std::int32_t number = 0) {
  fx.send(kDirector, Advanced{number, 0});
}

void record_many(Effects& fx) {
  for (std::int64_t i = 0; i < kRecords; ++i) {
    fx.record(StageRecord{.stashes_max = i});
  }
}

[[noreturn]] void stand_still() {
  for (;;) {
    std::this_thread::sleep_for(1s);
  }
}

/// What the machines of the nodes do, by the name of the play.
const std::map<std::string, Part>& parts() {
  static const std::map<std::string, Part> all{
      {"records",
       [](Message, double, Effects& fx) {
         record_many(fx);
         tell(fx);
       }},
      // Its run is over while this job is under way, and the record of it comes after that.
      {"last record",
       [](Message message, double, Effects& fx) {
         if (holds_alternative<Start>(message)) {
           tell(fx);
           fx.run(job_of([] { std::this_thread::sleep_for(300ms); }, Work::forward));
         }
       }},
      {"signals",
       [](Message, double, Effects& fx) {
         for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
           ::kill(::getpid(), signal);
         }
         tell(fx);
       }},
      {"dies",
       [](Message, double, Effects&) {
         ::kill(::getpid(), SIGKILL);
       }},
      {"comes back slowly",
       [](Message, double, Effects&) {
         ::kill(::getpid(), SIGKILL);
       }},
      {"dies twice",
       [](Message, double, Effects& fx) {
         if (own_life < 2) {
           ::kill(::getpid(), SIGKILL);
         }
         tell(fx);
       }},
      {"freezes",
       [](Message, double, Effects&) {
         ::kill(::getpid(), SIGSTOP);
       }},
      {"throws",
       [](Message, double, Effects&) {
         throw std::runtime_error("no such kernel");
       }},
      {"forges a record",
       [](Message, double, Effects& fx) {
         fx.record(StageRecord{.stage = 77});
       }},
      {"records for another",
       [](Message, double, Effects& fx) {
         RecordEntry entry(StageRecord{});
         entry.number = 1;  // as the Director's, which plays elsewhere
         fx.record(std::move(entry));
       }},
      {"counts too far",
       [](Message, double, Effects& fx) {
         RecordEntry entry(StageRecord{});
         entry.teller = 1;
         entry.number = std::uint64_t{1} << 62;
         fx.record(std::move(entry));
       }},
      {"never ends",
       [](Message message, double, Effects& fx) {
         if (holds_alternative<Start>(message)) {
           tell(fx);
           fx.send(worker(1), Advance{});
         } else {
           stand_still();
         }
       }},
      {"idle", [](Message, double, Effects&) {
       }}};
  return all;
}

std::unique_ptr<ControlStream> inherited() {
  return std::make_unique<DescriptorStream>(kInherited, kInherited);
}

/// Each of its words comes before the lead's patience is at its end, all of them together do not.
void pause_where_slow(const Invitation& invitation) {
  if (invitation.experiment == "comes back slowly" && own_life > 0) {
    std::this_thread::sleep_for(2s);
  }
}

void play_honestly(const Invitation& invitation, std::unique_ptr<ControlStream> lead) {
  own_life = invitation.life;
  Cast cast = cast_of(
      invitation.processes, [](Message, double, Effects&) {}, parts().at(invitation.experiment));
  Node node(invitation, own_processes(invitation.processes), std::move(lead));
  pause_where_slow(invitation);
  if (node.join("version", "cast")) {
    pause_where_slow(invitation);
    Ledger none;
    run_on_threads(
        cast, none, {.others = &node, .stall_seconds = std::numeric_limits<double>::infinity()});
  }
}

/// Process 1 joins as it should, and then says something to process `to` that it may not say, or nothing but that it lives.
/// `last`: what it says when the run is over, and no more.
void play_falsely(const Invitation& invitation,
                  ControlStream& lead,
                  int to,
                  const std::optional<Parcel>& what,
                  const std::optional<Parcel>& last = {}) {
  Channel channel(1, invitation.token);
  proto::Joined joined;
  joined.set_version("version");
  joined.set_cast("cast");
  joined.set_protocol(kWireProtocol);
  (*joined.mutable_endpoints())[0] = channel.listen(0, invitation.pids.at(0));
  proto::Connect where;
  proto::Begin begin;
  write_message(lead, joined);
  read_message(lead, where);
  if (to > 0) {
    channel.connect(to, where.endpoints().at(static_cast<std::uint32_t>(to)));
  }
  write_message(lead, proto::Connect{});
  read_message(lead, begin);
  std::atomic<bool> has_said_last = false;
  channel.open({.parcel =
                    [&](int, Parcel parcel) {
                      if (last && parcel.kind == ParcelKind::end) {
                        channel.send(0, *last);
                        has_said_last = true;
                      }
                    },
                .broken = [](int, const std::string&) {},
                .failed = [](const std::string&) {},
                .tick =
                    [&] {
                      channel.send(0,
                                   {.kind = ParcelKind::heartbeat,
                                    .content = archived(std::uint64_t{0}, false, 0.0)});
                    },
                .readable = [](int) { ::_exit(0); },
                .watched = {kInherited}});
  if (what) {
    channel.send(to, *what);
  }
  while (invitation.experiment != "dies in its trace" || !has_said_last) {
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(2s);  // the lead has it by now
  ::_exit(1);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool plays_falsely(const Invitation& invitation, ControlStream& lead) {
  if (invitation.experiment == "plays the lead" && invitation.process == 1) {
    play_falsely(invitation, lead, 2, Parcel{.kind = ParcelKind::end});
  } else if (invitation.experiment == "says goodbye") {
    play_falsely(invitation, lead, 0, Parcel{.kind = ParcelKind::bye});
  } else if (invitation.experiment == "does not rest") {
    play_falsely(invitation, lead, 0, {});
  } else if (has(invitation.experiment, "its trace")) {
    play_falsely(
        invitation,
        lead,
        0,
        Parcel{.kind = ParcelKind::down, .recipient = 1, .content = archived(std::string("done"))},
        Parcel{.kind = ParcelKind::trace, .content = {.bytes = "half", .tensors = {}}});
  } else {
    return false;
  }
  return true;
}

Lead::Config config(const std::string& play, int processes) {
  return {.processes = processes,
          .process_of = own_processes(processes),
          .version = "version",
          .cast = "cast",
          .experiment = play,
          .bounds = {.stages = 1, .actors = static_cast<std::size_t>(processes)}};
}

struct Played {
  Ending ending;
  std::vector<RecordEntry> records;
  std::vector<std::string> downs;  // "machine-1: why"
};

/// Ends when all other machines have told, or been told of. `impatient`: the user interrupts twice then. `trace`: null where
/// nothing is traced.
Played play(Lead::Config config, bool impatient = false, Trace* trace = nullptr) {
  Played played;
  std::atomic<bool> over = false;
  config.interrupts = [&over, impatient] {
    return over && impatient ? 2 : 0;
  };
  const int others = config.processes - 1;
  int heard = 0;
  Cast cast = cast_of(
      config.processes,
      [&](Message message, double, Effects& fx) {
        if (const auto* down = get_if<Down>(&message)) {
          played.downs.push_back(concat(down->actor, ": ", down->cause));
          ++heard;
        } else if (holds_alternative<Advanced>(message)) {
          ++heard;
        }
        if (heard == others) {
          over = true;
          fx.finish({});
        }
      },
      [](Message, double, Effects&) {});
  const auto interrupts = config.interrupts;
  Lead lead(std::move(config));
  lead.trace = trace;
  const auto started = lead.start();
  INFO((started ? "" : started.error().message));
  REQUIRE(started);
  Ledger ledger;
  played.ending = run_on_threads(cast, ledger, {.interrupts = interrupts, .others = &lead});
  played.records = std::move(ledger.entries);
  return played;
}

std::string refusal(Lead::Config config) {
  Lead lead(std::move(config));
  const auto started = lead.start();
  return started ? "none" : started.error().message;
}

std::ptrdiff_t count_in(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

/// Alive or dead: a sanitizer's, which name functions for its reports once it has one, be it suppressed; or all others.
std::vector<std::string> children(bool of_sanitizer = false) {
  const std::string self = std::to_string(::getpid());
  std::ifstream pids("/proc/self/task/" + self + "/children");
  std::vector<std::string> names;
  for (std::string pid; pids >> pid;) {
    std::ifstream file("/proc/" + pid + "/comm");
    std::string name;
    std::getline(file, name);
    if (has(name, "symbolizer") == of_sanitizer) {
      names.push_back(name);
    }
  }
  return names;
}

/// But for the two pipes to each process of a sanitizer.
std::ptrdiff_t descriptors() {
  return count_in("/proc/self/fd") - 2 * std::ssize(children(true));
}

}  // namespace

TEST_CASE("node", "[.]") {
  end_with_the_starter();
  mind_the_lead_alone();
  auto lead = inherited();
  if (const auto invitation = read_invitation(*lead)) {
    if (plays_falsely(*invitation, *lead)) {
      return;
    }
    if (invitation->experiment == "plays the lead") {
      Invitation honest = *invitation;
      honest.experiment = "idle";
      play_honestly(honest, std::move(lead));
    } else {
      play_honestly(*invitation, std::move(lead));
    }
  }
}

TEST_CASE("all that nodes have recorded comes before the run ends, each one's in order") {
  const Played played = play(config("records", 3));
  CHECK(played.ending.exit_code == 0);
  REQUIRE(played.records.size() == 2 * kRecords);
  CHECK(played.downs.empty());
  CHECK(children().empty());
}

TEST_CASE("what a node records after the end of the run comes, too") {
  const Played played = play(config("last record", 2));
  CHECK(played.ending.exit_code == 0);
  REQUIRE(played.records.size() == 1);
  CHECK(std::string(std::get<BusyRecord>(played.records[0]).what) == "forward");
}

TEST_CASE("many runs leave no descriptor, no process and no file") {
  play(config("records", 2));  // what the first run of a program makes for good
  const std::ptrdiff_t before = descriptors();
  for (int i = 0; i < 20; ++i) {
    REQUIRE(play(config("records", 2)).ending.exit_code == 0);
  }
  CHECK(descriptors() == before);
  CHECK(children().empty());
}

TEST_CASE("interrupts that a node gets are the lead's to heed") {
  const Played played = play(config("signals", 2));
  CHECK(played.ending.exit_code == 0);
  CHECK(played.downs.empty());
}

TEST_CASE("the Director hears of each machine of a process that is lost, and how") {
  SECTION("it was killed") {
    const Played played = play(config("dies", 2));
    REQUIRE(played.downs.size() == 1);
    CHECK(has(played.downs[0], "machine-1: process 1 was killed by signal 9"));
  }
  SECTION("it is frozen") {
    Lead::Config c = config("freezes", 2);
    c.limits.silence = 500ms;
    const Played played = play(std::move(c));
    REQUIRE(played.downs.size() == 1);
    CHECK(played.downs[0] == "machine-1: process 1 was silent for too long");
  }
  SECTION("it tells what cannot be") {
    const Played played = play(config("forges a record", 2));
    REQUIRE(played.downs.size() == 1);
    CHECK(has(played.downs[0], "a record tells of a stage that the run does not have"));
    CHECK(played.records.empty());
  }
  SECTION("it tells what another would") {
    for (const char* const what : {"records for another", "counts too far"}) {
      const Played played = play(config(what, 2));
      REQUIRE(played.downs.size() == 1);
      CHECK(has(played.downs[0], "what a machine that another process runs would record"));
      CHECK(played.records.empty());
    }
  }
  CHECK(children().empty());
}

/// Whether a run begins again that loses process 1 and then ends so.
bool begins_again(const std::function<Ending(const Down&)>& how) {
  Lead::Config c = config("dies", 2);
  c.may_restart = true;
  Cast cast = cast_of(
      2,
      [&how](Message message, double, Effects& fx) {
        if (const auto* down = get_if<Down>(&message)) {
          fx.finish(how(*down));
        }
      },
      [](Message, double, Effects&) {});
  Lead lead(std::move(c));
  REQUIRE(lead.start());
  Ledger ledger;
  run_on_threads(cast, ledger, {.others = &lead});
  CHECK(lead.has_lost());
  return lead.restarts();
}

TEST_CASE("a run begins again that a loss has ended, and no other") {
  constexpr int kLost = static_cast<int>(ErrorKind::lost);
  const auto with = [](int exit_code, const std::string& cause, LossKind loss = LossKind::none) {
    return Ending{.exit_code = exit_code, .cause = cause, .weights = {}, .loss = loss};
  };
  CHECK(begins_again([&](const Down& down) {
    return with(kLost,
                concat(down.actor, " is lost: ", down.cause, "; nobody can go on"),
                down.with_process ? LossKind::process : LossKind::machine);
  }));
  CHECK(begins_again([&](const Down&) {
    return with(kLost, "the run has stalled: machine-0 waits for machine-1.", LossKind::stall);
  }));
  CHECK_FALSE(begins_again([&](const Down&) {
    return with(kLost, "machine-0 is lost: no such kernel", LossKind::machine);
  }));
  CHECK_FALSE(begins_again(
      [&](const Down& down) { return with(static_cast<int>(ErrorKind::diverged), down.cause); }));
  CHECK_FALSE(begins_again([&](const Down&) { return with(0, ""); }));
}

TEST_CASE("who comes back is waited for once, and not for each word anew") {
  Lead::Config c = config("comes back slowly", 2);
  c.returns_max = 1;
  c.limits.join = 3s;
  std::atomic<int> interrupts = 0;
  std::vector<std::string> told;
  c.tell_user = [&](const std::string& what) {
    told.push_back(what);
    interrupts = 2;
  };
  c.interrupts = [&] {
    return interrupts.load();
  };
  const auto asked = c.interrupts;
  Cast cast = cast_of(
      2, [](Message, double, Effects&) {}, [](Message, double, Effects&) {});
  Lead lead(std::move(c));
  REQUIRE(lead.start());
  Ledger ledger;
  run_on_threads(cast, ledger, {.interrupts = asked, .others = &lead});
  CHECK(told == std::vector<std::string>{
                    "process 1 does not come back yet: process 1 has not answered within 3 s"});
  CHECK(children().empty());
}

TEST_CASE("another takes the place of a process that is lost, as often as it may") {
  const int back = GENERATE(2, 1);
  std::vector<std::string> heard;
  Cast cast = cast_of(
      2,
      [&](Message message, double, Effects& fx) {
        const auto* returned = get_if<Returned>(&message);
        heard.push_back(holds_alternative<Down>(message) ? "down"
                        : returned ? concat("replica ", returned->replica, " returned")
                                   : "told");
        if (heard.back() == "told") {
          fx.finish({});
        }
      },
      [](Message, double, Effects&) {});
  cast.members[1].replica = 4;
  Lead::Config c = config("dies twice", 2);
  c.returns_max = back;
  std::atomic<int> interrupts = 0;
  std::vector<std::string> told;
  c.tell_user = [&](const std::string& what) {
    told.push_back(what);
    interrupts = 2;
  };
  c.interrupts = [&] {
    return interrupts.load();
  };
  const auto asked = c.interrupts;
  Lead lead(std::move(c));
  REQUIRE(lead.start());
  Ledger ledger;
  const Ending ending = run_on_threads(cast, ledger, {.interrupts = asked, .others = &lead});
  std::vector<std::string> right{"down", "replica 4 returned", "down"};
  if (back == 2) {
    right.insert(right.end(), {"replica 4 returned", "told"});
    CHECK(ending.exit_code == 0);
    CHECK(told.empty());
  } else {
    CHECK(told == std::vector<std::string>{
                      "process 1 was lost once more, after it had come back 1 time (--back)"});
  }
  CHECK(heard == right);
  CHECK(children().empty());
}

TEST_CASE("a machine that throws is lost alone") {
  const Played played = play(config("throws", 3));
  std::vector<std::string> downs = played.downs;
  std::sort(downs.begin(), downs.end());
  CHECK(downs ==
        std::vector<std::string>{"machine-1: no such kernel", "machine-2: no such kernel"});
  CHECK(played.ending.exit_code == 0);
}

TEST_CASE("who plays the lead is not believed, and the lead gives him up") {
  // The honest one lives on and tells nothing more: the Director ends the run at the first Down.
  int honest = 0;
  std::string cause;
  Cast cast = cast_of(
      3,
      [&](Message message, double, Effects& fx) {
        if (const auto* down = get_if<Down>(&message)) {
          honest += down->actor == "machine-2" ? 1 : 0;
          cause = down->cause;
          fx.finish({});
        }
      },
      [](Message, double, Effects&) {});
  Lead lead(config("plays the lead", 3));
  REQUIRE(lead.start());
  Ledger ledger;
  const Ending ending = run_on_threads(cast, ledger, {.others = &lead});
  CHECK(ending.exit_code == 0);
  CHECK(honest == 0);
  CHECK(
      cause ==
      "process 1 was given up by process 2: a process sends a parcel that only the lead may send");
}

TEST_CASE("a goodbye before the end is not believed, and the Director hears of a loss") {
  const Played played = play(config("says goodbye", 2));
  REQUIRE(played.downs.size() == 1);
  CHECK(has(played.downs[0],
            "machine-1: process 1 said what cannot be believed: a process says goodbye before the "
            "end of the run"));
  CHECK(children().empty());
}

/// What the Director hears of process 1 of a run that stands still once. `interrupts`: of the user, by the time since then.
std::string loss_in_a_halt(
    Lead::Config c, const std::function<int(std::chrono::steady_clock::duration)>& interrupts) {
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::time_point> halted = Clock::time_point::max();
  const auto so_far = [&] {
    return interrupts(Clock::now() - halted.load());
  };
  std::string cause;
  Cast cast = cast_of(
      2,
      [&](Message message, double, Effects& fx) {
        if (const auto* down = get_if<Down>(&message)) {
          cause = down->cause;
          fx.finish({});
        } else if (holds_alternative<Halt>(message)) {
          fx.finish({});
        }
      },
      [](Message, double, Effects&) {});
  c.interrupts = so_far;
  Lead lead(std::move(c));
  REQUIRE(lead.start());
  Ledger ledger;
  bool due = true;
  run_on_threads(cast,
                 ledger,
                 {.interrupts = so_far,
                  .snapshot_due =
                      [&] {
                        halted = due ? Clock::now() : halted.load();
                        return std::exchange(due, false);
                      },
                  .snapshot = [](const StandingRun&) {},
                  .others = &lead});
  return cause;
}

TEST_CASE("a process that lives and does not come to rest holds nobody up for ever") {
  Lead::Config c = config("does not rest", 2);
  c.limits.end = 300ms;
  SECTION("it is given up") {
    c.limits.halt = 300ms;
    CHECK(loss_in_a_halt(std::move(c), [](auto) { return 0; }) ==
          "process 1 has not come to rest in time");
  }
  SECTION("one interrupt ends the halt, two the run") {
    CHECK(loss_in_a_halt(std::move(c), [](auto past) {
            return past > 1500ms ? 2 : past > 1s ? 1 : 0;
          }).empty());
  }
  CHECK(children().empty());
}

TEST_CASE("who tells a machine what cannot be is given up, and the machine goes on") {
  const bool is_known = GENERATE(true, false);
  std::vector<std::string> causes;
  Cast cast = cast_of(
      3,
      [&](Message message, double, Effects& fx) {
        const auto* told = get_if<Advanced>(&message);
        if (told && is_known) {
          throw BadSender("that cannot be");
        }
        if (told) {
          std::vector<int>().at(7);
        }
        if (const auto* down = get_if<Down>(&message)) {
          causes.push_back(down->cause);
        }
        if (causes.size() == 2) {
          fx.finish({});
        }
      },
      [](Message, double, Effects&) {});
  Lead lead(config("records", 3));
  REQUIRE(lead.start());
  Ledger ledger;
  const Ending ending = run_on_threads(cast, ledger, {.others = &lead});
  if (is_known) {
    std::sort(causes.begin(), causes.end());
    CHECK(ending.exit_code == 0);
    CHECK(causes ==
          std::vector<std::string>{
              "process 1 said what cannot be believed: director was told: that cannot be",
              "process 2 said what cannot be believed: director was told: that cannot be"});
  } else {
    CHECK(ending.exit_code == 5);
    CHECK_THAT(ending.cause, says("director is lost: ") && says(", of a message of process "));
  }
}

TEST_CASE("a machine whose check fails names of whom its thread has heard last") {
  const Part director = [](Message message, double now, Effects& fx) {
    if (holds_alternative<Advanced>(message)) {
      fx.alarm = now;  // what follows is said by nobody elsewhere
    }
    TROUPE_CHECK(!holds_alternative<Alarm>(message), "that is not so");
  };
  Cast cast = cast_of(2, director, [](Message, double, Effects&) {});
  Lead lead(config("records", 2));
  REQUIRE(lead.start());
  Ledger ledger;
  const Ending ending = run_on_threads(cast, ledger, {.others = &lead});
  CHECK(ending.exit_code == 5);
  CHECK_THAT(ending.cause,
             says("director is lost: that is not so") &&
                 says("; the last that it had heard of another process was of process 1"));
}

TEST_CASE("a process whose machines do not answer lives, and tells what they wait for") {
  Lead::Config c = config("never ends", 2);
  c.limits.end = 100ms;
  const Part idle = [](Message, double, Effects&) {
  };
  Cast cast = cast_of(2, idle, idle);
  Lead lead(std::move(c));
  REQUIRE(lead.start());
  Ledger ledger;
  const Ending ending = run_on_threads(cast, ledger, {.others = &lead, .stall_seconds = 1.5});
  CHECK(ending.exit_code == 5);
  CHECK_THAT(ending.cause, says("machine-1") && says("a handler does not return"));
}

TEST_CASE("a process that does not end its part is not waited for, for ever") {
  Lead::Config c = config("never ends", 2);
  SECTION("longer than the limit") {
    c.limits.end = 300ms;
    const Played played = play(std::move(c));
    CHECK(played.ending.exit_code == 5);
    CHECK(has(played.ending.cause, "process 1 has not ended its part when the run was over"));
  }
  SECTION("after a second interrupt") {
    c.limits.end = 1min;
    CHECK(play(std::move(c), true).ending.exit_code == 130);
  }
  CHECK(children().empty());
}

TEST_CASE("a run is not lost with a process whose trace is not whole, and that trace is none") {
  Cast cast = cast_of(
      2, [](Message, double, Effects&) {}, [](Message, double, Effects&) {});
  Trace trace(cast, {.events_max = 1000});
  Lead::Config c = config("dies in its trace", 2);
  SECTION("because it is lost") {}
  SECTION("because it goes on for ever") {
    c.experiment = "does not end its trace";
    c.limits.end = 2s;
  }
  CHECK(play(std::move(c), false, &trace).ending.exit_code == 0);
  const auto parts = trace.others(2);
  REQUIRE(parts.size() == 1);
  CHECK_FALSE(parts.at(1));
  CHECK(children().empty());
}

namespace {

/// What a node tells its lead until its goodbye, where the run begins so far ahead of now; `begun`: what the run's clock showed
/// when its machine was told of it.
std::vector<Parcel> told_by_node(std::chrono::seconds ahead, std::atomic<double>& begun) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  std::thread other([&] {
    auto stream = std::make_unique<DescriptorStream>(ends[1], ends[1]);
    const Invitation invitation{.process = 1, .processes = 2, .token = "token", .partners = {0}};
    Cast cast = cast_of(
        2, [](Message, double, Effects&) {}, [&](Message, double now, Effects&) { begun = now; });
    Trace trace(cast, {.events_max = 1000});
    Node node(invitation, own_processes(2), std::move(stream), "127.0.0.1");
    node.trace = &trace;
    node.join("version", "cast");
    Ledger none;
    run_on_threads(
        cast, none, {.others = &node, .stall_seconds = std::numeric_limits<double>::infinity()});
  });
  DescriptorStream node(ends[0], ends[0]);
  Channel channel(0, "token");
  proto::Joined joined;
  REQUIRE(read_message(node, joined) == Talk::done);
  channel.connect(1, joined.endpoints().at(0), joined.key());
  proto::Connect connect;
  (*connect.mutable_keys())[0] = channel.public_key();
  REQUIRE(write_message(node, connect) == Talk::done);
  REQUIRE(read_message(node, connect) == Talk::done);
  proto::Begin begin;
  const auto later = std::chrono::steady_clock::now() + ahead;
  begin.set_start_ns(std::chrono::nanoseconds(later.time_since_epoch()).count());
  REQUIRE(write_message(node, begin) == Talk::done);
  std::vector<Parcel> told;  // of the channel's thread
  std::atomic<bool> bye = false;
  channel.open({.parcel =
                    [&](int, Parcel parcel) {
                      if (!bye) {
                        told.push_back(std::move(parcel));
                        bye = told.back().kind == ParcelKind::bye;
                      }
                    },
                .broken = [](int, const std::string&) {},
                .failed = [](const std::string&) {},
                .tick = [] {},
                .readable =
                    [](int) {
                    }});
  const auto wait_for = [](const auto& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) {
      std::this_thread::sleep_for(10ms);
    }
    return condition();
  };
  CHECK(wait_for([&] { return begun > -1e8; }));
  channel.send(1, {.kind = ParcelKind::end});
  CHECK(wait_for([&] { return bye.load(); }));
  node.finish();
  other.join();
  channel.close();
  return told;
}

}  // namespace

TEST_CASE(
    "nothing happens at a node before the run has begun, whatever its clock is thought to show") {
  std::atomic<double> begun = -1e9;
  told_by_node(10s, begun);
  CHECK(begun >= 0);
}

TEST_CASE("before a node sends its trace it tells that it is busy") {
  std::atomic<double> begun = -1e9;
  std::vector<Parcel> told = told_by_node(0s, begun);
  const auto piece = std::find_if(told.begin(), told.end(), [](const Parcel& parcel) {
    return parcel.kind == ParcelKind::trace;
  });
  REQUIRE(piece != told.end());
  CHECK(std::any_of(told.begin(), piece, [](Parcel& parcel) {
    std::uint64_t deliveries = 0;
    bool busy = false;
    if (parcel.kind == ParcelKind::heartbeat) {
      Archive(std::move(parcel.content))(deliveries, busy);
    }
    return busy;
  }));
}

TEST_CASE("a process that cannot take part is told of before the run begins") {
  Lead::Config c = config("idle", 2);
  SECTION("one that ends") {
    c.program = "/bin/false";
    CHECK(refusal(c) == "process 1 ended with exit code 1 before the run began");
  }
  SECTION("one that says nothing") {
    c.program = "/usr/bin/yes";
    c.limits.join = 200ms;
    CHECK(refusal(c) == "process 1 has not answered within 0.2 s");
  }
  SECTION("one that does not even listen") {
    c.program = "/usr/bin/yes";
    c.limits.join = 200ms;
    c.experiment.assign(8 << 20, 'x');
    CHECK(refusal(c) == "process 1 has not answered within 0.2 s");
  }
  SECTION("one that is none") {
    c.program = "/nowhere";
    CHECK(has(refusal(c), "/nowhere could not be started"));
  }
  SECTION("one that the user does not wait for") {
    c.program = "/usr/bin/yes";
    c.interrupts = [] {
      return 1;
    };
    CHECK(refusal(c) == "interrupted before the run began");
  }
  SECTION("one that makes another cast") {
    c.cast = "another";
    CHECK(has(refusal(c), "makes another cast of the experiment"));
  }
  CHECK(children().empty());
}

}  // namespace lead_test
