// Every built-in exchange conforms, and the kit finds what does not.
#include "actors/exchange/peers.hpp"
#include "apps/conformance/conformance.hpp"
#include "messages/archive.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"

#include <map>
#include <memory>

namespace conformance_exchanges_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// By promise.
std::map<std::string, Finding> findings(const ConformanceOptions& options) {
  auto found = check_conformance(options);
  INFO((found ? std::string() : found.error().message));
  REQUIRE(found);
  REQUIRE(found->size() == 5);
  std::map<std::string, Finding> all;
  for (const Finding& finding : *found) {
    all[finding.check] = finding;
  }
  return all;
}

/// Tells everybody, and waits for everybody: the dead, too, where `for_all`. Where it is `forgetful` a
/// checkpoint does not have what it was told.
class Waiting final : public PeerExchange {
 public:
  Waiting(const ExchangeSeat& seat, bool for_all, bool forgetful = false)
      : PeerExchange(seat), for_all_(for_all), forgetful_(forgetful) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    if (!forgetful_) {
      a(here_);
    }
  }

  void stepped(const Weights&, Effects& fx) override {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(seat().peers.size()); ++r) {
      if (r != seat().replica) {
        tell(r, "here", {}, {}, fx);
      }
    }
  }

  bool complete() const override {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(seat().peers.size()); ++r) {
      const bool counts = r != seat().replica && (for_all_ || makes(r, step()));
      const auto found = here_.find(r);
      if (counts && (found == here_.end() || found->second < step())) {
        return false;
      }
    }
    return true;
  }

  void heard(Note note, Effects&) override { here_[note.stamp.replica] = note.stamp.batch; }

  bool for_all_;
  bool forgetful_;
  std::map<std::int32_t, std::int64_t> here_;  // by replica: the newest step told of
};

/// Goes on from weights that no two runs have alike.
class Fickle final : public PeerExchange {
 public:
  using PeerExchange::PeerExchange;

 private:
  Mix mix(const Weights& own) override {
    static float steps = 0;
    return [own, factor = 1 - (steps += 1) * 1e-6F](Stream& stream) {
      std::vector<Tensor> mixed;
      for (const Slice& slice : own) {
        mixed.push_back(stream.allocate(slice.values.shape()));
        for (std::size_t i = 0; i < mixed.back().span<float>().size(); ++i) {
          mixed.back().span<float>()[i] = slice.values.span<float>()[i] * factor;
        }
      }
      return Computed{.tensors = mixed};
    };
  }
};

void registered(const char* name,
                std::function<std::unique_ptr<PeerExchange>(const ExchangeSeat&)> peer) {
  REQUIRE(register_exchange(
      {.info = {.name = name, .summary = "for a test"}, .peer = std::move(peer)}));
}

}  // namespace

TEST_CASE("every built-in exchange conforms, with all its replicas or without the dead", "[apps]") {
  for (const ExchangeScheme& scheme : exchanges().all()) {
    if (!exchanges().built_in(scheme)) {
      continue;
    }
    INFO(scheme.info.name);
    for (const auto& [check, finding] : findings({.rule = scheme.info.name})) {
      INFO(check << ": " << finding.what);
      CHECK(finding.holds);
      CHECK((finding.applies || scheme.shared == Shared::own || check == "identity"));
    }
  }
  const auto ring = findings({.rule = "synchronous", .values = {"reduction=ring"}});
  CHECK(ring.at("crash").holds);
  CHECK(ring.at("crash").what == "it needs all replicas: 16 runs ended with one");
  CHECK(findings({.rule = "diloco", .values = {"mode=asynchronous"}}).at("accounts").holds);
  CHECK(findings({.rule = "diloco", .values = {"mode=decoupled"}}).at("accounts").holds);
}

TEST_CASE("the kit says of an exchange of one's own what it breaks", "[apps]") {
  registered("waiting",
             [](const ExchangeSeat& seat) { return std::make_unique<Waiting>(seat, false); });
  for (const auto& [check, finding] : findings({.rule = "waiting"})) {
    INFO(check << ": " << finding.what);
    CHECK(finding.holds);
    CHECK(finding.applies == (check != "identity"));  // one replica has no peers
  }

  registered("forgetful",
             [](const ExchangeSeat& seat) { return std::make_unique<Waiting>(seat, false, true); });
  const auto forgetful = findings({.rule = "forgetful"});
  CHECK(forgetful.at("replay").holds);
  CHECK_FALSE(forgetful.at("resume").holds);

  registered("waiting_for_the_dead",
             [](const ExchangeSeat& seat) { return std::make_unique<Waiting>(seat, true); });
  const auto stalled = findings({.rule = "waiting_for_the_dead"});
  CHECK(stalled.at("accounts").holds);
  CHECK_FALSE(stalled.at("crash").holds);
  CHECK(stalled.at("crash").what.find("what its peers tell") != std::string::npos);

  registered("fickle", [](const ExchangeSeat& seat) { return std::make_unique<Fickle>(seat); });
  const auto fickle = findings({.rule = "fickle"});
  CHECK_FALSE(fickle.at("replay").holds);
  CHECK(fickle.at("crash").holds);
}

TEST_CASE("an exchange with neither servers nor peers is not registered", "[apps]") {
  const auto made = register_exchange(
      {.info = {.name = "nobody", .summary = "for a test"}, .shared = Shared::nothing});
  REQUIRE_FALSE(made);
  CHECK(made.error().message ==
        "register_exchange: nobody has no servers, so that it needs a factory `peer`");
}

TEST_CASE("an exchange's options are its own", "[apps]") {
  const auto wrong = check_conformance({.rule = "averaging", .values = {"perid=3"}});
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message.find("did you mean \"period\"") != std::string::npos);
  const auto unknown = check_conformance({.rule = "averging"});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("did you mean \"averaging\"?") != std::string::npos);
}

}  // namespace conformance_exchanges_test
