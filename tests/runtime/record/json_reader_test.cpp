#include "runtime/record/json_reader.hpp"

#include "tests/support/catch.hpp"

#include <cmath>
#include <memory>
#include <random>

namespace json_reader_test {

using namespace troupe;

namespace {

/// A text behind which no byte is anybody's.
class Exactly {
 public:
  explicit Exactly(const std::string& text) : bytes_(new char[text.size()]), size_(text.size()) {
    text.copy(bytes_.get(), size_);
  }

  Json parse() const { return Json::parse({bytes_.get(), size_}); }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

bool is_json(const std::string& text) {
  return !Exactly(text).parse().text().empty();
}

}  // namespace

TEST_CASE("members of a line by their names", "[record]") {
  const Exactly text(
      R"( {"kind":"train", "step" : 3,"idle":{"data":0.5},"list":[1,"]"],"none":null,"t":"a\"\\","yes":true} )");
  const Json line = text.parse();
  CHECK(line["kind"].words() == "train");
  CHECK(line["step"].number() == 3);
  CHECK(line["idle"]["data"].number() == 0.5);
  CHECK(line["list"].text() == R"([1,"]"])");
  CHECK(line["list"].elements().at(1).words() == "]");
  CHECK(line["t"].words() == "a\"\\");
  CHECK(line["yes"].number() == 1);
  CHECK(line["yes"].is_true());
  CHECK(std::isnan(line["none"].number()));
  CHECK(std::isnan(line["kind"].number()));
  CHECK(line["step"].words().empty());
  CHECK(std::isnan(line["idle"]["nothing"]["below"].number()));
  CHECK(line["kind"].members().empty());
  std::string names;
  for (const auto& [name, _] : line.leaves()) {
    names += name + ' ';
  }
  CHECK(names == "kind step idle/data list none t yes ");
  const auto first = Json::parse(R"({"a":1,"b":2,"a":3})").by_name();
  CHECK(first.size() == 2);
  CHECK(first.at("a").number() == 1);
}

TEST_CASE("numbers are read to the bit, also those that no integer holds", "[record]") {
  CHECK(Exactly("0.1").parse().number() == 0.1);
  CHECK(Exactly("-2.5e-3").parse().number() == -0.0025);
  CHECK(Exactly("100000002004087734272").parse().number() == 100000002004087734272.0);
  CHECK(std::isnan(Exactly("1e999").parse().number()));
}

TEST_CASE("escapes of a text, and of a name", "[record]") {
  const Exactly text(R"({"a\u0062":"\u0041\n\t\/ \u00e4 \u0120 \u20ac \ud83d\ude00"})");
  CHECK(text.parse()["ab"].words() == "A\n\t/ ä Ġ € 😀");
  CHECK(text.parse().members().at(0).first == "ab");
}

TEST_CASE("of a text that is cut, or is no JSON, nothing is read", "[record]") {
  const std::string whole = R"({"a":1,"b":"x\\y\u0041","c":{"d":[2,"z\\"]}})";
  REQUIRE(is_json(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(is_json(whole.substr(0, size)));
  }
  for (const char* text :
       {"01",       "1.",        ".5",      "-",         "1e",          "+1",     "nan",  "tru",
        "'a'",      R"("\x")",   R"("\u")", R"("\u12")", R"("\u12g4")", "\"\n\"", "[1,]", "{,}",
        R"({"a"})", R"({"a":})", "{a:1}",   "1 2",       "[1}",         "{}{}"}) {
    CAPTURE(text);
    CHECK_FALSE(is_json(text));
  }
}

TEST_CASE("of a damaged text what is read lies within it, and is JSON itself", "[record]") {
  const std::string whole =
      R"({"kind":"train","step":3,"idle":{"data":0.5e-3,"":null},"t":["a\"\u00e4",true,[]]})";
  std::mt19937 random(1);
  int sound = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (auto n = random() % 3; n < 3; ++n) {
      const char c = whole[random() % whole.size()];
      const std::size_t at = random() % text.size();
      random() % 2 == 0 ? void(text[at] = c) : void(text.erase(at, random() % 4));
    }
    const Exactly damaged(text);
    const Json json = damaged.parse();
    sound += json.text().empty() ? 0 : 1;
    for (const auto& [_, value] : json.leaves()) {
      REQUIRE(value.text().data() >= json.text().data());
      REQUIRE(value.text().data() + value.text().size() <= json.text().data() + json.text().size());
      REQUIRE(Json::parse(value.text()).text() == value.text());
      value.words();
    }
  }
  CHECK(sound > 1000);
  CHECK(sound < 19'000);
}

TEST_CASE("brackets are read to a depth that a run may have", "[record]") {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK(is_json(nested(64)));
  CHECK_FALSE(is_json(nested(65)));
  CHECK_FALSE(is_json(nested(1'000'000)));
}

}  // namespace json_reader_test
