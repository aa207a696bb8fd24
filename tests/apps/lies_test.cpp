// One number of one message between the lead of a real run and another process is changed on its way: whichever it is, one gives
// the other up, or the run goes on as if nothing had happened. Never does it hang, crash or fill the disk, and the node listens on.
//
//   lead  <--TLS-->  relay, in this program  <--TLS-->  node
//
// TROUPE_LIES=n: so many messages of each scheme, of all kinds, instead of some.
#include "kernels/random.hpp"
#include "runtime/cluster/channel.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "wire.pb.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

namespace lies_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

Patience for_a_while() {
  return {.until = std::chrono::steady_clock::now() + 20s};
}

enum class Hears { lead, node };

/// What is done to what they say: called with each parcel, in the order of each of the two.
using Meddle = std::function<void(Hears whom, Parcel& parcel)>;

/// Stands between a lead and a node that listens; both take it for the other.
class Relay {
 public:
  Relay(HostAddress node, Meddle meddle) : node_(std::move(node)), meddle_(std::move(meddle)) {
    const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
    REQUIRE(listening);
    listening_ = *listening;
    thread_ = std::thread([this] { work(); });
  }

  ~Relay() {
    over_ = true;
    thread_.join();
    ::close(listening_);
  }

  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::string address() const { return near_address(listening_); }

 private:
  std::unique_ptr<ControlStream> accepted() const {
    std::string who;
    for (int i = 0; i < 2000 && !over_; ++i) {
      if (const int socket = accept_one(listening_, who); socket >= 0) {
        return std::make_unique<DescriptorStream>(socket, socket);
      }
      std::this_thread::sleep_for(5ms);
    }
    return nullptr;
  }

  template <class Word>
  static bool pass(ControlStream& from,
                   ControlStream& to,
                   const std::function<void(Word&)>& change = {}) {
    Word word;
    if (read_message(from, word, for_a_while()) != Talk::done) {
      return false;
    }
    if (change) {
      change(word);
    }
    return write_message(to, word, for_a_while()) == Talk::done;
  }

  void work() {
    const auto lead = accepted();
    const auto socket = connect_to(node_, Nearness::this_machine, for_a_while());
    if (!lead || !socket) {
      return;
    }
    DescriptorStream node(*socket, *socket);
    std::string token;
    if (!pass<proto::Join>(*lead, node, [&](proto::Join& join) { token = join.token(); })) {
      return;
    }
    Channel to_lead(1, token);
    Channel to_node(0, token);
    introduce(*lead, node, to_lead, to_node);
  }

  void introduce(ControlStream& lead, ControlStream& node, Channel& to_lead, Channel& to_node) {
    std::string endpoint;
    std::string key;
    const bool met = pass<proto::Joined>(node,
                                         lead,
                                         [&](proto::Joined& joined) {
                                           endpoint = joined.endpoints().at(0);
                                           key = joined.key();
                                           (*joined.mutable_endpoints())[0] =
                                               to_lead.listen_at(0, "127.0.0.1");
                                           joined.set_key(to_lead.public_key());
                                         }) &&
                     pass<proto::Connect>(lead,
                                          node,
                                          [&](proto::Connect& connect) {
                                            to_lead.expect(0, connect.keys().at(0));
                                            (*connect.mutable_keys())[0] = to_node.public_key();
                                            (*connect.mutable_keys())[1] = key;
                                          }) &&
                     pass<proto::Connect>(node, lead);
    bool asked = met;
    while (asked) {
      proto::Begin begin;
      asked = read_message(lead, begin, for_a_while()) == Talk::done &&
              write_message(node, begin, for_a_while()) == Talk::done && begin.tell_clock() &&
              pass<proto::ClockTold>(node, lead);
    }
    if (met) {
      to_node.connect(1, endpoint, key);
      carry(lead, node, to_lead, to_node);
    }
  }

  /// Until one of the two has gone.
  void carry(ControlStream& lead, ControlStream& node, Channel& to_lead, Channel& to_node) {
    const auto give = [](Channel& to, int whom, Parcel parcel) {
      try {
        to.send(whom, std::move(parcel));
      } catch (const WireError&) {  // what cannot be sent at all is no lie
      }
    };
    const auto ignore = [](int, const std::string&) {
    };
    to_lead.open({.parcel =
                      [&](int, Parcel parcel) {
                        meddle_(Hears::node, parcel);
                        give(to_node, 1, std::move(parcel));
                      },
                  .broken = ignore,
                  .failed = [](const std::string&) {},
                  .tick = [] {},
                  .readable =
                      [](int) {
                      }});
    to_node.open({.parcel =
                      [&](int, Parcel parcel) {
                        meddle_(Hears::lead, parcel);
                        give(to_lead, 0, std::move(parcel));
                      },
                  .broken = ignore,
                  .failed = [](const std::string&) {},
                  .tick = [] {},
                  .readable =
                      [](int) {
                      }});
    bool said = false;
    while (!over_ && !node.at_end()) {
      if (!said && lead.at_end()) {
        node.finish();
        said = true;
      }
      std::this_thread::sleep_for(5ms);
    }
    to_node.close();
    to_lead.close();
  }

  HostAddress node_;
  Meddle meddle_;
  int listening_ = -1;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

struct Scheme {
  std::string name;
  Words sets;
  int updates = 60;
};

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all{
      {"asgd", {"replicas.count=2"}},
      {"ssp", {"replicas.count=2", "replicas.rule=ssp"}},
      {"softsync", {"replicas.count=2", "replicas.rule=softsync"}},
      {"synchronous", {"replicas.count=2", "replicas.exchange=synchronous"}},
      {"ring",
       {"replicas.count=2",
        "replicas.exchange=synchronous",
        "replicas.exchange.synchronous.reduction=ring"}},
      {"averaging", {"replicas.count=2", "replicas.exchange=averaging"}},
      {"easgd", {"replicas.count=2", "replicas.exchange=easgd"}},
      {"diloco", {"replicas.count=2", "replicas.exchange=diloco"}},
      {"gossip", {"replicas.count=2", "replicas.exchange=gossip"}},
      {"top_k", {"replicas.count=2", "replicas.codec.up=top_k"}},
      {"1f1b", {"pipeline.stages=2"}},
      {"stash",
       {"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"}}};
  return all;
}

Words run_of(const Scheme& scheme, const std::string& hosts, const std::string& out) {
  Words words{"run", "teacher-mlp", "--hosts", hosts, "-q", "--out", out};
  Words sets{"data.teacher.train=400",
             "data.teacher.test=50",
             "stop.epochs=0",
             "model.mlp.hidden=[8,8]",
             "record.weights=false",
             concat("stop.updates=", scheme.updates)};
  if (scheme.sets.front().starts_with("replicas")) {
    sets.push_back("pipeline.stages=1");
  }
  for (const std::string& set : with(std::move(sets), scheme.sets)) {
    words.insert(words.end(), {"--set", set});
  }
  return words;
}

/// A node of the program that listens.
class Listening {
 public:
  Listening() : node_({"node", "--listen", "127.0.0.1:0"}) {
    wait_until([this] { return node_.err().find('\n') != std::string::npos; });
    const std::string said = node_.err();
    const std::size_t at = said.find("127.0.0.1:");
    const auto address = parse_address(said.substr(at, said.find_first_of(" \n;,", at) - at));
    REQUIRE(address);
    address_ = *address;
  }

  const HostAddress& address() const { return address_; }

  /// What is said of the run's process here, once it has ended.
  std::string end_of_run() {
    std::string words;
    wait_until([&] {
      words = node_.err().substr(heard_);
      const std::size_t at = words.find("troupe: the run of ");
      return at != words.npos && words.find('\n', at) != words.npos;
    });
    heard_ += words.size();
    return words;
  }

  ~Listening() { node_.signal(SIGTERM); }

  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  Program node_;
  HostAddress address_;
  std::size_t heard_ = 0;  // of what it has said
};

template <class T>
void put(std::string& bytes, std::size_t at, T x) {
  std::memcpy(bytes.data() + at, &x, std::min(sizeof x, bytes.size() - at));
}

/// What is changed, drawn by a seed.
struct Lie {
  std::uint64_t seed = 0;
  std::mutex mutex{};
  int seen = 0;
  bool told = false;
  std::string words{};

  std::uint64_t draw(std::uint64_t index, std::size_t below) const {
    return RandomStream(seed, Purpose::test).below(index, below);
  }

  /// Whether the lead is made to say it.
  bool of_lead() const { return draw(4, 2) == 1; }

  void operator()(Hears whom, Parcel& parcel) {
    const std::lock_guard lock(mutex);
    if (whom != (of_lead() ? Hears::node : Hears::lead)) {
      return;
    }
    if (told || ++seen <= static_cast<int>(draw(0, 60)) || parcel.content.bytes.size() < 8) {
      return;
    }
    told = true;
    std::string& bytes = parcel.content.bytes;
    if (draw(1, 12) == 0 && !parcel.content.tensors.empty()) {
      Stream stream(Device{});
      Tensor& tensor = parcel.content.tensors[draw(2, parcel.content.tensors.size())];
      tensor = draw(3, 2) == 0 ? stream.allocate(tensor.shape(), DType::int32)
                               : stream.allocate({3}, DType::float32);
      words = concat(whom == Hears::lead ? "to the lead" : "to the node",
                     ", a tensor of kind ",
                     static_cast<int>(parcel.kind));
      return;
    }
    const std::size_t at = draw(2, bytes.size() - 3);
    switch (draw(3, 9)) {
      case 0:
        put(bytes, at, std::int32_t{-1});
        break;
      case 1:
        put(bytes, at, std::int32_t{7});
        break;
      case 2:
        put(bytes, at, std::numeric_limits<std::int32_t>::max());
        break;
      case 3:
        put(bytes, at, std::int64_t{-1});
        break;
      case 4:
        put(bytes, at, std::int64_t{1'000'000'000'000});
        break;
      case 5:
        put(bytes, at, std::numeric_limits<double>::quiet_NaN());
        break;
      case 6:
        put(bytes, at, 1e300);
        break;
      case 7:
        put(bytes, at, std::int64_t{1000});
        break;
      default:
        put(bytes, at, static_cast<char>(bytes[at] + 1));
    }
    words = concat(whom == Hears::lead ? "to the lead" : "to the node",
                   ", kind ",
                   static_cast<int>(parcel.kind),
                   ", byte ",
                   at,
                   " of ",
                   bytes.size(),
                   ", value ",
                   draw(3, 9));
  }
};

/// "", or what is wrong with how the run has ended.
std::string trouble(const Scheme& scheme, Listening& node, Lie& lie) {
  const Folder folder;
  Said said;
  {
    Relay relay(node.address(), [&lie](Hears whom, Parcel& parcel) { lie(whom, parcel); });
    std::ofstream(folder / "hosts") << relay.address() << '\n';
    Program lead(run_of(scheme, folder / "hosts", folder / "run"));
    said = lead.wait();
  }
  const std::string end = node.end_of_run();
  if (end.find("was killed by signal") != end.npos) {
    return end;
  }
  std::error_code code;
  const auto metrics = std::filesystem::file_size(folder / "run/metrics.jsonl", code);
  if (!code && metrics > 1'000'000) {
    return concat("it has written ", metrics, " bytes of metrics");
  }
  const bool whole =
      said.code == 0 && said.out.find(concat(scheme.updates, " updates")) != std::string::npos;
  // Who has heard it may die of it before it gives the sender up, whom the sentence names as well.
  const bool named =
      said.code == 5 && (said.err.find("process 1") != std::string::npos ||
                         (lie.of_lead() && said.err.find("process 0") != std::string::npos));
  return whole || named ? "" : concat("exit code ", said.code, ": ", said.err, said.out);
}

}  // namespace

TEST_CASE("whatever one number is changed to, the run goes on or names whom it has lost") {
  const char* const asked = std::getenv("TROUPE_LIES");
  const std::uint64_t count = asked ? std::strtoull(asked, nullptr, 10) : 2;
  const char* const begins = std::getenv("TROUPE_SEED");
  const std::uint64_t first = begins ? std::strtoull(begins, nullptr, 10) : 1;
  Listening node;
  for (std::size_t i = 0; i < schemes().size(); ++i) {
    for (std::uint64_t n = 0; n < count; ++n) {
      Lie lie{.seed = 1000 * (first + n) + i};
      const std::string why = trouble(schemes()[i], node, lie);
      INFO(schemes()[i].name << ", seed " << lie.seed << ": " << lie.words);
      CHECK(why == "");
    }
  }
}

}  // namespace lies_test
