// Every built-in decoupled scheme conforms, and the kit finds what does not; of extensions, too.
#include "apps/conformance/conformance.hpp"
#include "kernels/combine.hpp"
#include "messages/archive.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/system/extension.hpp"
#include "tests/support/catch.hpp"

#include <memory>
#include <string>

namespace conformance_modules_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// What it breaks, in the kit's order.
std::string broken(const std::string& name) {
  const auto found = check_conformance({.rule = name});
  INFO((found ? std::string() : found.error().message));
  REQUIRE(found);
  std::string all;
  for (const Finding& finding : *found) {
    all += finding.holds ? "" : finding.check + ".";
  }
  return all;
}

enum class Fault { none, first_row, counts };

/// The output as its own error.
class Shrinks final : public ModuleSignal {
 public:
  explicit Shrinks(Fault fault) : fault_(fault) {}

  Tensor error(Stream& stream, const SignalInputs& in) const override {
    static double calls = 0;
    const Tensor error = stream.allocate(in.output.shape());
    combine(stream, {{0.01 + (fault_ == Fault::counts ? ++calls : 0), in.output}}, error);
    if (fault_ == Fault::first_row) {
      error.span<float>()[0] *= 2;
    }
    return error;
  }

 private:
  Fault fault_;
};

void register_shrinks(const char* name, Fault fault) {
  REQUIRE(register_decoupled({.info = {.name = name, .summary = "for a test"},
                              .from = SignalFrom::nobody,
                              .module = [fault](const ModuleContext&) {
                                return std::make_shared<Shrinks>(fault);
                              }}));
}

/// Lowers the rate by a hundredth at every loss.
class Slows final : public ExtensionMachine<Slows> {
 public:
  Slows(const ExtensionContext& c, bool keeps) : servers_(c.servers), keeps_(keeps) {}

  using ExtensionMachine::handle;

  void handle(const Note&, double /*now*/, Effects& fx) {
    factor_ *= 0.99;
    for (const auto& server : servers_) {
      fx.send(server, ScaleRate{factor_});
    }
  }

  void archive(Archive& a) override {
    double forgotten = 1;
    a(keeps_ ? factor_ : forgotten);
  }

 private:
  std::vector<Ref<ServerRole>> servers_;
  bool keeps_;
  double factor_ = 1;
};

void register_slows(const char* name, bool keeps) {
  REQUIRE(register_extension(
      {.info = {.name = name, .summary = "for a test"}, .join = [keeps](const ExtensionContext& c) {
         const auto own = add_machine(c.cast, "slows", std::make_unique<Slows>(c, keeps));
         for (const auto& of_replica : c.stages) {
           overhear(c.cast, of_replica.back().id, [own](double, Effects& done) {
             for (const RecordEntry& record : done.records) {
               if (std::holds_alternative<LossRecord>(record)) {
                 done.send(own, Note{.stamp = {}, .what = "loss"});
               }
             }
           });
         }
       }}));
}

}  // namespace

TEST_CASE("every built-in decoupled scheme conforms", "[apps]") {
  for (const DecoupledScheme& scheme : decoupled_schemes().all()) {
    if (decoupled_schemes().built_in(scheme)) {
      INFO(scheme.info.name);
      CHECK(broken(scheme.info.name).empty());
    }
  }
}

TEST_CASE("the kit says of a decoupled scheme of one's own what it breaks", "[apps]") {
  register_shrinks("shrinks", Fault::none);
  CHECK(broken("shrinks").empty());
  register_shrinks("first_row", Fault::first_row);
  CHECK(broken("first_row") == "rows.");
  register_shrinks("counts", Fault::counts);
  CHECK(broken("counts") == "pure.rows.replay.resume.");
}

TEST_CASE("the kit says of an extension what it breaks", "[apps]") {
  register_slows("slows", true);
  CHECK(broken("slows").empty());
  register_slows("forgets", false);
  CHECK(broken("forgets") == "resume.");
  const auto found = check_conformance({.rule = "slows"});
  CHECK(found->front().check == "listens");
  CHECK_FALSE(found->front().applies);
}

}  // namespace conformance_modules_test
