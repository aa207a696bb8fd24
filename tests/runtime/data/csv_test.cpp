// Tables of one's own. The tests write small files into a temporary folder.
#include "runtime/data/csv.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/data/preparation.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace csv_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr const char* kFlowers =
    "length,width,colour,species\n"
    "1,10,red,rose\n"
    "2,10,blue,aster\n"
    "3,10,red,rose\n"
    "6,10,white,tulip\n";

/// A file, and options as resolve() leaves them.
struct Table {
  explicit Table(std::string_view text, const std::vector<std::string>& assignments = {}) {
    folder.write("table.csv", text);
    REQUIRE(set_value(e, "data.csv.path=" + (folder / "table.csv")));
    for (const std::string& assignment : assignments) {
      REQUIRE(set_value(e, "data.csv." + assignment));
    }
    REQUIRE(resolve(e));
  }

  Result<std::shared_ptr<const Dataset>> open(std::uint64_t seed = 1,
                                              const Preparation* prepared = nullptr) const {
    return open_csv(e.data().csv(), seed, prepared);
  }

  std::string refusal(const Preparation* prepared = nullptr) const {
    const auto opened = open(1, prepared);
    std::string message = opened ? std::string() : opened.error().message;
    const std::string path = folder.path() + "/";
    for (std::size_t at; (at = message.find(path)) != message.npos;) {
      message.erase(at, path.size());
    }
    return message;
  }

  TemporaryFolder folder;
  proto::Experiment e;
};

std::vector<std::vector<std::string>> rows_of(std::string_view text, char separator = ',') {
  CsvReader reader(text, separator);
  CsvRow row;
  std::vector<std::vector<std::string>> rows;
  for (auto more = reader.next(row); more && *more; more = reader.next(row)) {
    rows.emplace_back(row.fields.begin(), row.fields.end());
  }
  return rows;
}

std::string wrong_line(std::string_view text) {
  CsvReader reader(text, ',');
  CsvRow row;
  auto more = reader.next(row);
  while (more && *more) {
    more = reader.next(row);
  }
  return more ? std::string() : more.error().message;
}

}  // namespace

TEST_CASE("lines fall into fields", "[runtime][data]") {
  using Rows = std::vector<std::vector<std::string>>;
  CHECK(rows_of("a,b\n1,2\n") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(rows_of("\xef\xbb\xbf"
                "a , b\r\n\r\n 1,2") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(rows_of("\"a,b\",\"say \"\"ho\"\"\" ,c\n") == Rows{{"a,b", "say \"ho\"", "c"}});
  CHECK(rows_of("\"\",,\n") == Rows{{"", "", ""}});
  CHECK(rows_of("a\tb c\t\n", '\t') == Rows{{"a", "b c", ""}});
  CHECK(rows_of("\n \n") == Rows{});
  CHECK(rows_of("a,\"b\nc\"\n1,2\n") == Rows{{"a", "b\nc"}, {"1", "2"}});
  CHECK(rows_of("a,b\r1,2\r3,4") == Rows{{"a", "b"}, {"1", "2"}, {"3", "4"}});
  CHECK(rows_of("  a \t b\n1   2  \n", ' ') == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(wrong_line("a\n\"b,c\nd\"\n\"e\n") == "line 4: a quote is opened and never closed");
  CHECK(wrong_line("a\n\n\"b\"c\n") ==
        "line 3: there is more between a closing quote and the next separator");
  CHECK(wrong_line(std::string(200'000, ',')) == "line 1: it has more than 100000 fields");
}

TEST_CASE("a table is a data set: classes sorted, the rest numbers", "[runtime][data]") {
  const Table table(kFlowers, {"leave_out=[colour]", "normalize=false", "test_share=0.25"});
  const auto data = *table.open();
  CHECK(data->size(Split::train) == 3);
  CHECK(data->size(Split::test) == 1);
  CHECK(data->sample_shape() == Shape{2});
  CHECK(data->classes() == 3);
  const Gathered all = everything(*data);
  for (std::size_t i = 0; i < 4; ++i) {  // aster 0, rose 1, tulip 2
    const float length = all.x[2 * i];
    CHECK(all.x[2 * i + 1] == 10);
    CHECK(all.labels[i] == (length == 2 ? 0 : length == 6 ? 2 : 1));
  }
}

TEST_CASE("test samples are drawn by seed, each sample once", "[runtime][data]") {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += concat(i, ",", i % 2, "\n");
  }
  const Table table(text, {"normalize=false", "header=absent"});
  const auto drawn = [&](std::uint64_t seed) {
    const auto data = *table.open(seed);
    CHECK(data->size(Split::test) == 10);
    std::vector<float> all = everything(*data).x;
    const std::vector<float> tests(all.end() - 10, all.end());
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i] == static_cast<float>(i));
    }
    return tests;
  };
  CHECK(drawn(1) == drawn(1));
  CHECK(drawn(1) != drawn(2));
}

TEST_CASE("columns get mean 0 and variance 1 of the training samples", "[runtime][data]") {
  const Table table("1,5,0\n2,5,1\n3,5,0\n6,5,1\n", {"test_path=", "test_share=0.25"});
  table.folder.write("test.csv", "3,7,1\n");
  proto::Csv options = table.e.data().csv();
  options.set_test_path(table.folder / "test.csv");
  const auto data = *open_csv(options, 1);
  const Gathered train = gather(*data, Split::train, range(0, 4));
  const double deviation = std::sqrt((4.0 + 1 + 0 + 9) / 4);  // of 1 2 3 6, whose mean is 3
  const std::vector<double> expected{-2, -1, 0, 3};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(train.x[2 * i] == Approx(expected[i] / deviation).margin(1e-7));
    CHECK(train.x[2 * i + 1] == 0);  // all are 5
  }
  const Gathered test = gather(*data, Split::test, range(0, 1));
  CHECK(test.x == std::vector<float>{0, 2});
  CHECK(test.labels == std::vector<std::int32_t>{1});
}

TEST_CASE("columns of words become columns of 0 and 1", "[runtime][data]") {
  const Table table(kFlowers,
                    {"categories=[colour]", "leave_out=[2]", "test_path=t", "normalize=false"});
  table.folder.write("test.csv", "length,width,colour,species\n4,1,white,rose\n");
  proto::Csv options = table.e.data().csv();
  options.set_test_path(table.folder / "test.csv");
  const auto data = *open_csv(options, 1);
  CHECK(data->sample_shape() == Shape{4});  // length, blue, red, white
  const Gathered train = gather(*data, Split::train, range(0, 4));
  CHECK(train.x == std::vector<float>{1, 0, 1, 0, 2, 1, 0, 0, 3, 0, 1, 0, 6, 0, 0, 1});
  CHECK(gather(*data, Split::test, range(0, 1)).x == std::vector<float>{4, 0, 0, 1});
  options.set_normalize(true);
  const auto scaled = *open_csv(options, 1);
  CHECK(gather(*scaled, Split::train, range(1, 1)).x[1] == 1);  // as it was

  table.folder.write("test.csv", "length,width,colour,species\n4,1,green,rose\n");
  const auto unknown = open_csv(options, 1);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message ==
        (table.folder / "test.csv") +
            " is not usable: line 2, column \"colour\": \"green\" does not occur in the training "
            "samples' file");

  table.folder.write("test.csv", "length,width,color,species\n4,1,red,rose\n");
  CHECK(open_csv(options, 1).error().message ==
        (table.folder / "test.csv") +
            " is not usable: line 1: it does not name the columns of the training samples' file");
}

TEST_CASE("classes that are numbers sort as numbers", "[runtime][data]") {
  const Table table("1,10\n2,9\n3,100\n4,9\n", {"normalize=false"});
  const auto data = *table.open();
  CHECK(data->classes() == 3);
  const Gathered all = everything(*data);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(all.labels[i] == (all.x[i] == 1 ? 1 : all.x[i] == 3 ? 2 : 0));
  }
}

TEST_CASE("a target may be a number to predict", "[runtime][data]") {
  const Table table("price;rooms\n10.5;1\n20;2\n30;3\n40;4\n",
                    {"values=true", "target=price", "separator=;", "normalize=false"});
  const auto data = *table.open();
  CHECK(data->classes() == 0);
  CHECK(data->values() == 1);
  const Gathered all = everything(*data);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(all.targets[i] == (all.x[i] == 1 ? 10.5f : 10 * all.x[i]));
  }
  const Table scaled("1,1\n2,3\n", {"values=true", "test_share=0.1", "test_path=t"});
  scaled.folder.write("test.csv", "1,5\n");
  proto::Csv options = scaled.e.data().csv();
  options.set_test_path(scaled.folder / "test.csv");
  const auto both = *open_csv(options, 1);
  CHECK(gather(*both, Split::train, range(0, 2)).targets == std::vector<float>{-1, 1});
  CHECK(gather(*both, Split::test, range(0, 1)).targets == std::vector<float>{3});
}

TEST_CASE("whether there is a header shows in two lines, or is asked for", "[runtime][data]") {
  const auto samples = [](const char* text, const std::vector<std::string>& assignments = {}) {
    const auto data = Table(text, assignments).open();
    return data ? (*data)->size(Split::train) + (*data)->size(Split::test) : -1;
  };
  CHECK(samples("a,b\n1,x\n2,y\n") == 2);
  CHECK(samples("1,x\n2,y\n3,x\n") == 3);
  CHECK(samples("0,1\n1,x\n2,y\n", {"header=present"}) == 2);
  const std::string unclear =
      "table.csv is not usable: it cannot be told from its first two lines whether the first one "
      "names the columns: say so by --set data.csv.header=present or --set data.csv.header=absent";
  CHECK(Table("0,1\n1,x\n2,y\n").refusal() == unclear);
  CHECK(Table("a,b\nc,d\n").refusal() == unclear);
}

TEST_CASE("a header over words shows where words repeat", "[runtime][data]") {
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    rows += concat(
        i % 2 == 0 ? "yes," : "no,", i % 3 == 0 ? "red," : "blue,", i % 5 == 0 ? "p\n" : "q\n");
  }
  const std::vector<std::string> categories{"categories=[1,2]"};
  const auto named = Table("sure,colour,y\n" + rows, categories).open();
  REQUIRE(named);
  CHECK((*named)->size(Split::train) + (*named)->size(Split::test) == 40);
  const auto nameless = Table(rows.substr(rows.find('\n') + 1), categories).open();
  REQUIRE(nameless);
  CHECK((*nameless)->size(Split::train) + (*nameless)->size(Split::test) == 39);
  // Weights know that there are no names.
  const Table alike(rows.substr(rows.find('\n') + 1), categories);
  CHECK(alike.refusal((*nameless)->preparation()) == "");
  CHECK(Table("no,red\nyes,blue\n", categories).refusal((*nameless)->preparation()) == "");
  // Weights know the names: two rows are enough for predictions.
  CHECK(Table("sure,colour\nno,red\nyes,red\n", categories).open(1, (*named)->preparation()));
  const std::string unclear = "it cannot be told from its first two lines";
  CHECK_THAT(Table("yes,green,y\n" + rows).refusal(), says(unclear));  // a word of each kind
  CHECK_THAT(Table("a,b,y\n" + rows + "a,b,y\n").refusal(), says("names once more"));
  std::string sorted = "n,p\n";  // a class with one row
  std::string priced = "plum,9,5\n";
  for (int i = 0; i < 40; ++i) {
    sorted += concat("n", i, ",q\n");
    priced += concat(i % 2 == 0 ? "pear," : "fig,", i % 3, ",5\n");
  }
  CHECK_THAT(Table(sorted, {"categories=[1]"}).refusal(), says(unclear));
  std::ranges::replace(priced, ',', ';');
  for (std::size_t at; (at = priced.find(";5\n")) != priced.npos;) {
    priced[at] = ',';
  }
  const auto prices =
      Table(priced, {"separator=;", "decimal=comma", "categories=[1]", "values=true"}).open();
  REQUIRE(prices);
  CHECK((*prices)->size(Split::train) + (*prices)->size(Split::test) == 41);
}

TEST_CASE("a word that is also a column's name does not make a header of samples",
          "[runtime][data]") {
  std::string text = "red,green,blue,colour,y\n";
  for (int i = 0; i < 20; ++i) {
    text += concat(i, ",", i * i % 7, ",", i % 3, i % 2 == 0 ? ",red,a\n" : ",blue,b\n");
  }
  const std::vector<std::string> colours{"categories=[4]"};
  const auto trained = Table(text, colours).open();
  REQUIRE(trained);
  CHECK(Table("10,2,1,red\n4,5,1,blue\n", colours).refusal((*trained)->preparation()) == "");
}

TEST_CASE("tables packed by bzip2, xz and zstd are the tables in them, and damaged ones are told",
          "[runtime][data]") {
  // "x,y\n1,a\n2,b\n3,a\n4,b\n"
  const std::string names[]{"bzip2", "xz", "zstd"};
  const std::string files[]{
      "425a6839314159265359afbfadff0000095980001000043c0030000060200021a9ea6188400c2264e24e302004f0"
      "bb9229c2"
      "84857dfd6ff8",
      "fd377a585a000004e6d6b4460200210116000000742fe5a3010013782c790a312c610a322c620a332c610a342c62"
      "0a008253"
      "c33a9624f1db00012c14f80a6d031fb6f37d010000000004595a",
      "28b52ffd0458a10000782c790a312c610a322c620a332c610a342c620a4185fd5f"};
  for (std::size_t f = 0; f < std::size(files); ++f) {
    INFO(names[f]);
    std::string bytes;
    for (std::size_t i = 0; i < files[f].size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(files[f].substr(i, 2), nullptr, 16)));
    }
    const auto whole = Table(bytes, {"test_share=0.5"}).open();
    REQUIRE(whole);
    CHECK((*whole)->size(Split::train) + (*whole)->size(Split::test) == 4);
    CHECK((*whole)->classes() == 2);
    const std::string cut = Table(bytes.substr(0, bytes.size() / 2)).refusal();
    CHECK_THAT(cut, Catch::Contains("damaged or cut short"));
  }
}

TEST_CASE("a column that is called like the beginning of another program's file is a column",
          "[runtime][data]") {
  CHECK(Table("PAR1,PAR2,y\n1,2,a\n3,4,b\n5,6,a\n").open());
  CHECK_THAT(Table(std::string("PAR1\x15\0\x15", 7)).refusal(), Catch::Contains("a Parquet file"));
  TemporaryFolder folder;
  folder.write("it's.csv", std::string("PAR1\x15\0\x15", 7));
  proto::Experiment e;
  REQUIRE(set_value(e, "data.csv.path=" + (folder / "it's.csv")));
  REQUIRE(resolve(e));
  const auto opened = open_csv(e.data().csv(), 1, nullptr);
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().message, Catch::EndsWith("it is a Parquet file"));
}

TEST_CASE("what is wrong with a table is said with its line and column", "[runtime][data]") {
  const auto refusal = [](std::string_view text, const std::vector<std::string>& assignments = {}) {
    return Table(text, assignments).refusal();
  };
  CHECK(refusal("a,b\n1,x\n,y\n") ==
        "table.csv is not usable: line 3, column \"a\": the field is empty; data.csv.missing "
        "says what becomes of that; as it is, the table can be read with --set "
        "data.csv.missing=mean");
  CHECK(refusal("1,x\n2,y\nNA,y\n") ==
        "table.csv is not usable: line 3, column 1: \"NA\" stands for what is not known; "
        "data.csv.missing says what becomes of that; as it is, the table can be read with --set "
        "data.csv.missing=mean");
  CHECK(
      refusal("1,x\n1e99,y\n") ==
      "table.csv is not usable: it cannot be told from its first two lines whether the first one "
      "names the columns: say so by --set data.csv.header=present or --set data.csv.header=absent");
  CHECK_THAT(refusal("1,x\n2,y\n1e99,y\n"),
             says("line 3, column 1: \"1e99\" is not a number that float32 can hold"));
  CHECK_THAT(refusal("1,x\n2,y\nnan,y\n"),
             says("line 3, column 1: \"nan\" stands for what is not known"));
  CHECK(refusal("a,b\n1,x\n2,y,z\n") ==
        "table.csv is not usable: line 3: it has 3 fields; expected 2");
  CHECK(refusal("1,2.5\n2,3.5\n") ==
        "table.csv is not usable: line 1, column 2: \"2.5\" is no class: expected whole numbers "
        "or words, or data.csv.values=true, which predicts numbers; as it is, the table can be "
        "read with --set data.csv.values=true");
  CHECK(
      refusal("1,2\n2,x\n", {"values=true", "header=absent"}) ==
      "table.csv is not usable: line 2, column 2: \"x\" is not a number that float32 can hold; as "
      "it is, the table can be read with --set data.csv.values=false");
  CHECK(refusal("1,x\n2,x\n") ==
        "table.csv is not usable: all of its samples are of one class; data.csv.target names the "
        "column to predict; as it is, the table can be read with --set data.csv.target=1 --set "
        "data.csv.leave_out=[2] (column 2 is the same in all rows)");
  CHECK(refusal("x\ny\n") ==
        "table.csv is not usable: its first line is one field, where a target and a column beside "
        "it are needed; data.csv.separator says what stands between two fields");
  CHECK(refusal("a,b\n1,x\n", {"leave_out=[a]", "header=present"}) ==
        "table.csv is not usable: it holds no sample, or no column beside the target");
  CHECK(refusal("\n\n") == "table.csv is not usable: it holds no line");
  CHECK(
      refusal("1,x\n", {"header=absent"}) ==
      "table.csv is not usable: it holds one sample, and the test samples are drawn from it, too");
  CHECK(refusal("1,x\n2,y\n", {"test_path=missing.csv"}) ==
        "missing.csv is not usable: it cannot be opened: No such file or directory, as seen from " +
            std::filesystem::current_path().string());
}

TEST_CASE("options that do not fit a table are refused", "[runtime][data]") {
  const auto refusal = [](const std::vector<std::string>& assignments) {
    return Table(kFlowers, assignments).refusal();
  };
  CHECK(refusal({"target=kind"}) ==
        "data.csv.target: the file has no column \"kind\"; its columns are \"length\", \"width\", "
        "\"colour\", \"species\"");
  CHECK(
      refusal({"target=Specie"}) ==
      "data.csv.target: the file has no column \"Specie\", did you mean \"species\"? (its columns "
      "are \"length\", \"width\", \"colour\", \"species\")");
  CHECK_THAT(refusal({"leave_out=length,width"}),
             says("no column \"length,width\"; a list is [length,width]; its columns are"));
  CHECK_THAT(refusal({"target=5"}), says("data.csv.target: the file has no column \"5\""));
  CHECK_THAT(refusal({"leave_out=[0]"}), says("no column \"0\""));
  CHECK(refusal({"categories=[species]"}) ==
        "data.csv.categories: column \"species\" is the target");
  CHECK(refusal({"leave_out=[colour]", "categories=[3]"}) ==
        "data.csv.categories: column \"colour\" has another use already");
  CHECK(refusal({"separator=ab"}) ==
        "data.csv.separator is \"ab\"; use tab, blank or a single character that is not part of a "
        "number");
  CHECK_THAT(refusal({"separator=."}), says("data.csv.separator is \".\""));
  proto::Csv unset;
  CHECK(open_csv(unset, 1).error().message ==
        "data.csv.path is not set: name a CSV file by --set data.csv.path=FILE");
}

TEST_CASE("a column that has too many words is refused before memory is", "[runtime][data]") {
  std::string text = "name,kind\n";
  for (int i = 0; i < 5000; ++i) {
    text += concat("word", i, ",", i % 2, "\n");
  }
  CHECK(Table(text, {"categories=[name]"}).refusal() ==
        "table.csv is not usable: line 4098, column \"name\": these are more than 4096 different "
        "ones");
}

TEST_CASE("a table shown to weights has the columns that they were trained on", "[runtime][data]") {
  const std::vector<std::string> flowers{"target=species", "categories=[colour]"};
  const auto trained = Table(kFlowers, flowers).open();
  REQUIRE(trained);
  const Preparation prepared = *(*trained)->preparation();
  CHECK(prepared.columns == std::vector<std::string>{"length", "width", "colour"});
  const std::string rows = "1,10,red,rose\n6,10,white,tulip\n";
  const std::string told =
      "table.csv is not usable: its columns are not those that the weights were trained on: "
      "expected \"length\", \"width\", \"colour\", in this order, and the target where it is "
      "known; it has ";
  CHECK(Table("length,width,colour,species\n" + rows, flowers).refusal(&prepared) == "");
  CHECK(Table("width,length,colour,species\n" + rows, flowers).refusal(&prepared) ==
        told + "\"width\", \"length\", \"colour\", \"species\"");
  CHECK(Table("length,colour,species\n1,red,rose\n2,red,rose\n", flowers).refusal(&prepared) ==
        told + "\"length\", \"colour\", \"species\"");
  CHECK(Table("width,length,colour\n10,1,red\n", flowers).refusal(&prepared) ==
        told + "\"width\", \"length\", \"colour\"");
  CHECK(Table("1,10,red,rose,4\n", flowers).refusal(&prepared) == told + "5 columns without names");
  Preparation nameless = prepared;
  nameless.columns.clear();  // of a file without a header, or of an older program
  CHECK(Table("width,length,colour,species\n" + rows, flowers).refusal(&nameless) == "");
}

TEST_CASE("a table shown to weights need not have what they were trained without",
          "[runtime][data]") {
  const std::vector<std::string> set{"leave_out=[id]", "target=y", "missing=token"};
  const auto trained = Table("id,a,b,y\n7,1,5,u\n8,2,,v\n9,3,6,u\n", set).open();
  REQUIRE(trained);
  const Preparation* const prepared = (*trained)->preparation();
  CHECK(Table("a,b\n1,5\n2,\n", set).refusal(prepared) == "");
  CHECK(Table("id,a,b\n5,1,5\n6,2,\n", set).refusal(prepared) == "");
  CHECK(Table("a,b,y\n1,5,v\n2,,v\n", set).refusal(prepared) == "");
  CHECK_THAT(Table("id,b,y\n5,1,v\n6,2,v\n", set).refusal(prepared),
             says("expected \"a\", \"b\", in this order, and the target where it is known; it has "
                  "\"b\", \"y\""));
  // Without names nobody knows which column is left out.
  const std::vector<std::string> last{"leave_out=[id]", "values=true"};
  const auto regression = Table("id,a,b,y\n7,1,5,0.5\n8,2,6,0.7\n9,3,6,0.1\n", last).open();
  REQUIRE(regression);
  CHECK(Table("1,5\n2,6\n", last).refusal((*regression)->preparation()) == "");
  CHECK_THAT(Table("7,1,5\n8,2,6\n", last).refusal((*regression)->preparation()),
             says("expected \"a\", \"b\", in this order"));
  // Without names the order counts, which is told.
  const auto doubts = [&](const std::string& text) {
    const Table table(text, set);
    const auto data = table.open(1, prepared);
    INFO((data ? "" : data.error().message));
    REQUIRE(data);
    return (*data)->preparation()->doubts;
  };
  CHECK(doubts("a,b\n1,5\n").empty());
  REQUIRE(doubts("1,5\n2,6\n").size() == 1);
  // Which columns hold words is known without names, too.
  const auto flowers = Table(kFlowers, {"target=species", "categories=[colour]"}).open();
  REQUIRE(flowers);
  const Table nameless("1,10,red\n3,10,white\n", {"target=species", "categories=[colour]"});
  CHECK(nameless.refusal((*flowers)->preparation()) == "");
  CHECK_THAT(doubts("1,5\n").at(0),
             says("does not name its columns; they are taken to be \"a\", \"b\", in this order"));
}

TEST_CASE("a column with a word of its own in each row is doubted", "[runtime][data]") {
  std::string text = "name,colour,x,kind\n";
  for (int i = 0; i < 30; ++i) {
    text += concat("n", i, i % 2 == 0 ? ",red," : ",blue,", i % 7, i % 3 == 0 ? ",u\n" : ",v\n");
  }
  const auto doubts = [&](const std::vector<std::string>& set) {
    const auto data = Table(text, set).open();
    REQUIRE(data);
    return (*data)->preparation()->doubts;
  };
  const std::string told =
      "column name has 30 different words in 30 rows, and so many tell nothing of new samples:";
  CHECK(doubts({"categories=auto"}) == std::vector{told + " --set data.csv.leave_out=[name]"});
  CHECK(doubts({"categories=[name,colour]"}) ==
        std::vector{told + " --set data.csv.categories=[colour] --set data.csv.leave_out=[name]"});
  CHECK(doubts({"categories=[1]", "leave_out=[colour]"}) ==
        std::vector{told + " --set data.csv.categories=[] --set data.csv.leave_out=[colour,name]"});
  CHECK(doubts({"categories=auto", "leave_out=[name]"}).empty());
  CHECK(doubts({"categories=[colour]", "leave_out=[name]"}).empty());
  CHECK(doubts({"categories=[]", "leave_out=[colour,name]"}).empty());
}

TEST_CASE("the separator is found by looking", "[runtime][data]") {
  for (const std::string separator : {",", ";", "\t", "|", "   "}) {
    std::string text = "a,b,c\n1,2,x\n3,4,y\n5,6,x\n";
    for (std::size_t at; (at = text.find(',')) != text.npos;) {
      text.replace(at, 1, separator == "," ? "\x01" : separator);
    }
    std::replace(text.begin(), text.end(), '\x01', ',');
    const auto data = Table(text).open();
    REQUIRE(data);
    CHECK((*data)->sample_shape() == Shape{2});
    CHECK((*data)->classes() == 2);
  }
}

TEST_CASE("all columns that need a setting are named at once", "[runtime][data]") {
  std::string text = "id,sex,age,fare,class\n";
  for (int i = 0; i < 40; ++i) {
    text += concat("n",
                   i,
                   i % 2 == 0 ? ",male," : ",female,",
                   i == 7 ? "" : "30",
                   ",\"1,",
                   100 + i,
                   "\",",
                   i % 3,
                   "\n");
  }
  const std::string refusal = Table(text).refusal();
  CHECK_THAT(refusal,
             says("--set data.csv.categories=[sex] --set data.csv.leave_out=[id] --set "
                  "data.csv.missing=mean --set data.csv.thousands=,"));
  const Table table(
      text,
      {"categories=[sex]", "leave_out=[id]", "missing=mean", "thousands=,", "normalize=false"});
  const auto data = table.open();
  REQUIRE(data);
  CHECK((*data)->sample_shape() == Shape{4});
  const Gathered all = everything(**data);
  CHECK(std::count(all.x.begin(), all.x.end(), 30.0f) == 40);
  const auto found = Table(text, {"categories=auto", "missing=mean", "thousands=,"}).open();
  REQUIRE(found);
  CHECK((*found)->sample_shape() == Shape{44});
}

TEST_CASE("a line that no setting mends is named beside what one mends", "[runtime][data]") {
  CHECK_THAT(Table("a,note,y\n1,x,p\n2,\"open,q\n3,x,p\n").refusal(),
             says("\"x\" is not a number that float32 can hold; and line 3: a quote is opened and "
                  "never closed"));
  CHECK_THAT(Table("a,b,y\n1,x,p\n2,x,q,7\n").refusal(),
             says("can hold; and line 3: it has 4 fields; expected 3"));
  const std::string joined = "a,y\n1,p\n2,q\na,y\n3,p\n";
  const std::string once_more =
      "line 4: it is the line of the columns' names once more; take it out";
  CHECK(Table(joined).refusal() == "table.csv is not usable: " + once_more);
  CHECK(Table(joined, {"categories=[a]"}).refusal() == "table.csv is not usable: " + once_more);
  CHECK(Table("a,b,y\n").refusal() ==
        "table.csv is not usable: it holds one line, and no sample below the columns' names");
}

TEST_CASE("settings to paste fit dates, and labels that stand first", "[runtime][data]") {
  std::string dates = "day,at,a,y\n";
  std::string labelled = "kind,a,b\n";
  std::string years = "a,year\n";
  for (int i = 0; i < 600; ++i) {
    dates += concat("2024-01-", 10 + i % 20, ",10:15:0", i % 2, ",", i % 7, ",", i % 3, "\n");
    labelled += concat(i % 2 == 0 ? "yes," : "no,", i % 7, ",", i % 5, ".5\n");
    years += concat(i % 7, ",", 1950 + i % 70, "\n");
  }
  CHECK_THAT(Table(dates).refusal(), says("can be read with --set data.csv.leave_out=[day,at]"));
  const std::string refusal = Table(labelled).refusal();
  CHECK_THAT(refusal,
             says("can be read with --set data.csv.categories=[kind] --set data.csv.values=true; "
                  "or, to predict column \"kind\", with --set data.csv.target=kind"));
  CHECK(Table(labelled, {"target=kind"}).open());
  CHECK(Table(labelled, {"categories=[kind]", "values=true"}).open());
  const auto told = [](const std::string& text) {
    const auto data = Table(text).open();
    REQUIRE(data);
    return (*data)->preparation()->doubts;
  };
  REQUIRE(told(years).size() == 1);
  CHECK_THAT(told(years)[0], says("70 different whole numbers in 600 rows"));
  REQUIRE(told("a,b,a,y\n1,2,3,p\n1,2,3,q\n4,2,3,p\n4,2,3,q\n").size() == 1);
  CHECK(told("a,b,a,y\n1,2,3,p\n1,2,3,q\n4,2,3,p\n4,2,3,q\n")[0] ==
        "several columns are called \"a\"");
}

TEST_CASE("what is missing is dropped, filled in or marked", "[runtime][data]") {
  const std::string text = "a,b,y\n1,p,0\nNA,q,1\n3,?,0\n5,p,\n7,q,1\n";
  const auto x_of = [&](const char* missing) {
    const auto data =
        Table(text,
              {"categories=[b]", concat("missing=", missing), "normalize=false", "test_share=0.01"})
            .open();
    REQUIRE(data);
    return std::pair((*data)->size(Split::train) + (*data)->size(Split::test),
                     (*data)->sample_shape());
  };
  CHECK(x_of("drop") == std::pair(std::int64_t{2}, Shape{3}));
  CHECK(x_of("mean") == std::pair(std::int64_t{4}, Shape{4}));
  CHECK(x_of("token") == std::pair(std::int64_t{4}, Shape{5}));
  CHECK_THAT(Table("x,y\n1,0\n2,1\n3,NaN\n").refusal(),
             says("line 4, column \"y\": \"NaN\" stands for what is not known"));
  const auto coded = Table("a,b,y\n1,p,0\n-999,q,1\n3,r,0\n5,p,1\n",
                           {"categories=[b]", "missing=drop", "missing_words=[-999]"})
                         .open();
  REQUIRE(coded);
  CHECK((*coded)->size(Split::train) + (*coded)->size(Split::test) == 3);
  CHECK((*coded)->sample_shape() == Shape{3});  // q is of no row that is left
}

TEST_CASE("the mean that is filled in is that of the training samples", "[runtime][data]") {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 20; ++i) {
    text += concat(i == 3 ? "NA" : std::to_string(i * i), ",", i, ",", i % 2, "\n");
  }
  const Table table(text, {"missing=mean", "normalize=false", "test_share=0.3"});
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto data = table.open(seed);
    REQUIRE(data);
    double sum = 0;
    double count = 0;
    const Gathered train = gather(**data, Split::train, range(0, 14));
    for (std::size_t i = 0; i < train.x.size(); i += 2) {
      sum += train.x[i + 1] == 3 ? 0 : train.x[i];
      count += train.x[i + 1] == 3 ? 0 : 1;
    }
    const Gathered all = everything(**data);
    for (std::size_t i = 0; i < all.x.size(); i += 2) {
      CHECK(all.x[i] == Approx(all.x[i + 1] == 3 ? sum / count : all.x[i + 1] * all.x[i + 1]));
    }
  }
}

TEST_CASE("where nothing stands in the target's column, another one is offered",
          "[runtime][data]") {
  const std::string text = "name,size,kind,none\nann,1,2,\nbob,2,1,NA\ncid,7,1,\n";
  CHECK_THAT(Table(text).refusal(),
             says("--set data.csv.target=kind --set data.csv.leave_out=[none] --set "
                  "data.csv.categories=[name] (column \"none\" is empty)"));
  CHECK(Table(text, {"target=kind", "leave_out=[none]", "categories=[name]"}).refusal() == "");
}

TEST_CASE("weights that keep no means are shown no table with gaps", "[runtime][data]") {
  const std::string rows = "a,y\n1,0\n3,1\n5,0\n8,1\n";
  const std::string gap = "a,y\n1,0\nNA,1\n";
  const auto normal = Table(rows).open();
  const auto plain = Table(rows, {"normalize=false"}).open();
  REQUIRE((normal && plain));
  CHECK(Table(gap, {"missing=mean"}).refusal((*normal)->preparation()) == "");
  CHECK_THAT(Table(gap, {"missing=mean"}).refusal((*plain)->preparation()),
             says("keep no means to take their place"));
}

TEST_CASE("numbers are written as the settings say", "[runtime][data]") {
  CHECK_THAT(Table("a;y\n0,12;u\n0,5;v\n").refusal(), says("--set data.csv.decimal=comma"));
  CHECK_THAT(Table("a,y\n\"1,234\",u\n12,v\n").refusal(), says("--set data.csv.thousands=,"));
  const auto numbers = [](const char* text, const std::vector<std::string>& assignments) {
    std::vector<std::string> all{"normalize=false", "test_share=0.01"};
    all.insert(all.end(), assignments.begin(), assignments.end());
    const auto data = Table(text, all).open();
    REQUIRE(data);
    std::vector<float> x = everything(**data).x;
    std::sort(x.begin(), x.end());
    return x;
  };
  CHECK(numbers("a;y\n0,25;u\n-1,5;v\n", {"decimal=comma"}) == std::vector<float>{-1.5f, 0.25f});
  CHECK(numbers("a,y\n\"1,234\",u\n12,v\n", {"thousands=,"}) == std::vector<float>{12, 1234});
  CHECK(numbers("a,y\n$5,u\n7 %,v\n", {"units=[$,%]"}) == std::vector<float>{5, 7});
  CHECK_THAT(Table("a,y\n\"12,34\",u\n1,v\n", {"thousands=,"}).refusal(), says("\"12,34\""));
}

TEST_CASE("UTF-16 is read as UTF-8 is", "[runtime][data]") {
  const std::u16string text = u"größe,kind\n1,a\n2,\U0001f339\n3,\xdc00\n4,a\n";
  for (const int high : {0, 1}) {  // where the higher byte stands
    std::string bytes = high == 0 ? "\xfe\xff" : "\xff\xfe";
    for (const char16_t unit : text) {
      for (const int byte : {0, 1}) {
        bytes += static_cast<char>(byte == high ? unit >> 8 : unit & 0xff);
      }
    }
    const auto data = Table(bytes).open();
    REQUIRE(data);
    CHECK((*data)->preparation()->columns == std::vector<std::string>{"größe"});
    CHECK((*data)->preparation()->classes ==
          std::vector<std::string>{"a", "\xef\xbf\xbd", "\xf0\x9f\x8c\xb9"});
    CHECK(Table(bytes + '\n').refusal() ==
          "table.csv is not usable: it is text in UTF-16 and ends within a character");
  }
}

TEST_CASE("rows to be predicted need no target", "[runtime][data]") {
  const auto learnt = Table(kFlowers, {"categories=[colour]"}).open();
  REQUIRE(learnt);
  const Preparation* const prepared = (*learnt)->preparation();
  CHECK_FALSE(prepared->without_target);
  const auto read = [&](const char* text, const std::vector<std::string>& more = {}) {
    Table table(text, {"categories=[colour]"});
    for (const std::string& assignment : more) {
      REQUIRE(set_value(table.e, "data.csv." + assignment));
    }
    REQUIRE(set_value(table.e, "data.csv.test_path=" + (table.folder / "table.csv")));
    return table.open(1, prepared);
  };
  const auto with = read("length,width,colour,species\n2,10,red,rose\n7,10,blue,aster\n");
  const auto without = read("length,width,colour\n2,10,red\n7,10,blue\n");
  REQUIRE((with && without));
  CHECK_FALSE((*with)->preparation()->without_target);
  CHECK((*without)->preparation()->without_target);
  CHECK(gather(**without, Split::test, range(0, 2)).x ==
        gather(**with, Split::test, range(0, 2)).x);
  CHECK(read("length,width,colour\n2,10,red\n", {"target=species"}));
  CHECK((*read("length,width,colour\n2,10,red\n"))->size(Split::test) == 1);
  const auto other = read("length,height,colour\n2,10,red\n");
  REQUIRE_FALSE(other);
  CHECK_THAT(read("length,width,colour\n2,10,red,rose,1\n").error().message, says("fields"));
  // Without names of columns their number tells.
  const auto plain = Table("1,10,0\n2,10,1\n3,10,0\n6,10,1\n", {"header=absent"}).open();
  REQUIRE(plain);
  const auto rows = Table("1,10\n2,10\n", {"header=absent"}).open(1, (*plain)->preparation());
  REQUIRE(rows);
  CHECK((*rows)->preparation()->without_target);
  // Numbers of columns count the target, and what it was trained without stays out where the target is gone.
  const std::vector<std::string> first{"header=absent", "target=1", "leave_out=[2]"};
  const auto target_first = Table("0,5,1,10\n1,6,2,20\n0,7,3,10\n1,8,6,20\n", first).open();
  REQUIRE(target_first);
  const Preparation* const of_two = (*target_first)->preparation();
  Table both("0,9,1,10\n1,9,2,10\n", first);
  REQUIRE(set_value(both.e, "data.csv.test_path=" + (both.folder / "table.csv")));
  const auto whole = both.open(1, of_two);
  const auto alone = Table("9,1,10\n9,2,10\n", first).open(1, of_two);
  REQUIRE((whole && alone));
  CHECK((*alone)->preparation()->without_target);
  CHECK(everything(**alone).x == everything(**whole).x);
  // All of them are to be predicted, be it one, whatever test samples the training had.
  std::vector<std::string> tested = first;
  tested.push_back("test_path=" + (both.folder / "table.csv"));
  const auto one = Table("9,1,10\n", tested).open(1, of_two);
  REQUIRE(one);
  CHECK((*one)->size(Split::test) == 1);
  CHECK(Table("9,1,10\n", first).open(1, of_two));
}

TEST_CASE("rows without a target fit however columns were named to be used", "[runtime][data]") {
  const std::string text = "id,a,b,kind,c\n1,1,red,x,5\n2,,blue,y,6\n3,4,red,x,7\n4,5,red,y,7\n";
  for (const char* out : {"leave_out=[1]", "leave_out=[1,5]"}) {
    const std::vector<std::string> set{"target=kind", out, "categories=auto", "missing=token"};
    const auto learnt = Table(text, set).open();
    REQUIRE(learnt);
    const auto alone =
        Table("id,a,b,c\n9,4,blue,6\n8,,red,5\n", set).open(1, (*learnt)->preparation());
    INFO((alone ? "" : alone.error().message));
    REQUIRE(alone);
    CHECK((*alone)->preparation()->without_target);
    Table both("id,a,b,kind,c\n9,4,blue,x,6\n8,,red,x,5\n", set);
    REQUIRE(set_value(both.e, "data.csv.test_path=" + (both.folder / "table.csv")));
    const auto whole = both.open(1, (*learnt)->preparation());
    REQUIRE(whole);
    CHECK_FALSE((*whole)->preparation()->without_target);
    CHECK(everything(**alone).x == everything(**whole).x);
  }
}

TEST_CASE("what no table means is refused", "[runtime][data]") {
  CHECK_THAT(Table("0,7\n0.5,1\n2.5,0\n").refusal(), says("data.csv.header=present"));
  CHECK_THAT(Table("0,1,2\n0.5,1,1\n2.5,1,0\n").refusal(), says("data.csv.header=present"));
  CHECK_THAT(Table("land,1960,1961,1962,1963,1964\na,1,2,3,4,5\nb,2,3,4,5,6\n").refusal(),
             says("data.csv.header=present"));
  CHECK_THAT(Table("x,y\n1,0\n2,0.0\n3,1\n").refusal(),
             says("0\" and \"0.0\" are the same number"));
  CHECK_THAT(Table(std::string("x,y\n1,0\n2,\0\n", 12)).refusal(),
             says("line 3: it has a byte of 0"));
  CHECK_THAT(Table("PAR1\x15\x04").refusal(),
             says("it is a Parquet file; python3 -c 'import pandas"));
}

TEST_CASE("the line to paste has what would be warned of later, too", "[runtime][data]") {
  std::string text = ",colour,x,y\n";
  for (int i = 0; i < 40; ++i) {
    text += concat(i + 1, ",", i % 2 == 0 ? "red" : "blue", ",", i % 7, ",", i * i, "\n");
  }
  CHECK_THAT(Table(text).refusal(),
             says("can be read with --set data.csv.categories=[colour] --set "
                  "data.csv.leave_out=[1] --set data.csv.values=true"));
  // What is set already stays set, and of all that there is nothing is left out.
  const auto some =
      Table("i,a,x,y\n0,0,9,1\n1,1,8,0\n2,2,9,1\n3,3,9,0\n4,4,9,0\n5,5,9,0\n6,6,9,0\n7,7,9,0\n",
            {"leave_out=[a]"})
          .open();
  REQUIRE(some);
  CHECK_THAT((*some)->preparation()->doubts.at(0), says("--set data.csv.leave_out=[a,i]"));
  const auto all = Table("i,y\n0,1\n1,0\n2,1\n3,0\n4,0\n5,0\n6,0\n7,0\n").open();
  REQUIRE(all);
  CHECK((*all)->preparation()->doubts.empty());
  const auto data = Table(text, {"categories=[colour]", "leave_out=[1]", "values=true"}).open();
  REQUIRE(data);
  CHECK((*data)->preparation()->doubts.empty());
}

TEST_CASE("a word that stands for an unknown number here and there is no category",
          "[runtime][data]") {
  const auto with = [](const char* word, const char* other) {
    std::string text = "a,b,y\n";
    for (int i = 0; i < 40; ++i) {
      text += i % 9 == 3 ? word : std::to_string(i * i);
      text += concat(",", i % 11 == 5 ? other : std::to_string(i % 8), ",", i % 2, "\n");
    }
    return text;
  };
  CHECK_THAT(Table(with("-", "7")).refusal(),
             says("read with --set data.csv.missing_words=[-] --set data.csv.missing=mean"));
  CHECK_THAT(Table(with("inf", "1e300")).refusal(),
             says("--set data.csv.missing_words=[1e300,inf] --set data.csv.missing=mean"));
  // What is taken for missing already stays so, and what has digits is no word for it.
  CHECK_THAT(Table(with("n.d.", "NA")).refusal(), says("missing_words=[NA,n.d.]"));
  CHECK_THAT(Table(with("10+", "7")).refusal(), says("--set data.csv.categories=[a]"));
  const auto data = Table(with("n.d.", "NA"), {"missing=mean", "missing_words=[NA,n.d.]"}).open();
  REQUIRE(data);
  CHECK((*data)->sample_shape() == Shape{2});
}

TEST_CASE("words beside numbers to predict stand for unknown ones, and make no classes of them",
          "[runtime][data]") {
  const auto with = [](const char* word) {
    std::string text = "a,y\n";
    for (int i = 0; i < 40; ++i) {
      text += concat(i, ",", i == 30 ? word : std::to_string(i % 7 + 0.5), "\n");
    }
    return text;
  };
  CHECK_THAT(Table(with("n. k."), {"leave_out=[1]"}).refusal(),
             says("read with --set 'data.csv.missing_words=[n. k.]' --set data.csv.missing=mean "
                  "--set data.csv.values=true"));
  CHECK_THAT(Table(with("it's"), {"values=true"}).refusal(),
             says("--set 'data.csv.missing_words=[\"it'\\''s\"]' --set data.csv.missing=mean"));
  const auto data =
      Table(with("it's"), {"values=true", "missing=mean", "missing_words=[\"it's\"]"}).open();
  REQUIRE(data);
  CHECK((*data)->size(Split::train) + (*data)->size(Split::test) == 39);
  // With a digit it may be a number: no setting makes it one, so the settings for the rest are told with where it is.
  CHECK_THAT(Table(with("6.5?"), {"leave_out=[1]"}).refusal(),
             says("read with --set data.csv.values=true, but for \"6.5?\" in line 32, column "
                  "\"y\", which has to be mended"));
  std::string colours = "a,color,y\n1,red,0.5\n2,blue,b7\n3,red,err7b\n";
  for (const char* row : {"4,blue,0.9\n", "3,red,2.5\n", "2,blue,1.5\n", "5,red,2.25\n"}) {
    colours += row;
  }
  CHECK_THAT(Table(colours).refusal(),
             says("read with --set data.csv.categories=[color] --set data.csv.values=true, but for "
                  "\"b7\" in line 3 and 1 more of column \"y\", which have to be mended"));
  CHECK(Table(with("6.5?"), {"values=true"}).refusal() ==
        "table.csv is not usable: line 32, column \"y\": \"6.5?\" is not a number that float32 can "
        "hold");
}

TEST_CASE("where all samples are of one class another column is named", "[runtime][data]") {
  std::string gaps = "a,b,flag\n";
  for (int i = 0; i < 20; ++i) {
    gaps += concat(i % 9 + 0.5, ",", i % 7 * 0.25, ",", i % 2 == 0 ? "yes" : "", "\n");
  }
  CHECK_THAT(Table(gaps).refusal(),
             says("with --set data.csv.target=b --set data.csv.leave_out=[flag] --set "
                  "data.csv.values=true (column \"flag\" is \"yes\" or nothing; to predict it, "
                  "write a word where it is empty)"));
  std::string text = "id,kind,deaths,n\n";
  for (int i = 0; i < 40; ++i) {
    text += concat("s", i, ",", i % 2 == 0 ? "a" : "b", ",", i % 7 * 0.25, ",20\n");
  }
  const Table table(text, {"leave_out=[id]", "categories=[kind]"});
  CHECK_THAT(table.refusal(),
             says("with --set data.csv.target=deaths --set data.csv.leave_out=[id,n] --set "
                  "data.csv.values=true (column \"n\" is the same in all rows)"));
  CHECK(Table(text, {"leave_out=[id,n]", "categories=[kind]", "target=deaths", "values=true"})
            .open());
}

TEST_CASE("a number that many write for an unknown one is doubted where it lies apart",
          "[runtime][data]") {
  const auto doubts = [](const std::string& apart, const std::vector<std::string>& set = {}) {
    std::string text = "a,y\n";
    for (int i = 0; i < 40; ++i) {
      text += concat(i % 9 == 3 ? apart : std::to_string(i % 20), ",", i % 2, "\n");
    }
    const auto data = Table(text, set).open();
    REQUIRE(data);
    return (*data)->preparation()->doubts;
  };
  REQUIRE(doubts("-999").size() == 1);
  CHECK(
      doubts("-999")[0] ==
      "column \"a\" has -999 in several rows, apart from all others; if it stands for what is not "
      "known: --set data.csv.missing=mean --set data.csv.missing_words=[-999]");
  CHECK(doubts("99").size() == 1);
  CHECK(doubts("-9").empty());  // near the others
  CHECK(doubts("-1000").empty());
  CHECK(doubts("-999", {"missing=mean", "missing_words=[-999]"}).empty());
  // As the file writes it, and beside the words that count without a setting.
  CHECK_THAT(doubts("-999.0").at(0), says("missing_words=[-999.0]"));
  CHECK(doubts("-999.0", {"missing=mean", "missing_words=[-999.0]"}).empty());
  std::string gaps = "a,b,y\n";
  for (int i = 0; i < 40; ++i) {
    gaps += concat(i % 9 == 3 ? -999 : i % 20, i == 5 ? ",NA," : ",0,", i % 2, "\n");
  }
  for (const char* const missing : {"missing=drop", "missing=mean"}) {
    const auto data = Table(gaps, {missing}).open();
    REQUIRE(data);
    const auto& said = (*data)->preparation()->doubts;
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], says("?,-999]"));
  }
}

TEST_CASE("comment lines before the columns' names are named", "[runtime][data]") {
  const std::string text = "# of a machine, twice\n# really\na,y\n1,0\n2,1\n";
  CHECK_THAT(Table(text).refusal(),
             says("its first line begins with #; lines that do are passed over with --set "
                  "data.csv.comment=#"));
  CHECK(Table(text, {"comment=#"}).open());
  CHECK(Table("#a,y\n1,0\n2,1\n3,1\n").open());  // a name
  const std::string listed = "# of a machine, twice\n# really, so\na,y\n1,0\n2,1\n";
  CHECK_THAT(Table(listed).refusal(), says("data.csv.comment=#"));
  const std::string hues = "#ff0000,1,a\n#00ff00,2,b\n#0000ff,3,a\n#ff0000,4,b\n";
  CHECK(Table(hues, {"categories=[1]"}).refusal() == "");
  CHECK(Table(hues + "red,5,a\n", {"categories=[1]", "header=absent"}).refusal() == "");
}

TEST_CASE("what was understood is told, and what looks wrong", "[runtime][data]") {
  std::string text = ",x,y\n";
  for (int i = 0; i < 40; ++i) {
    text += concat(i, ",", i % 7, ",", i * i, "\n");
  }
  const auto data = Table(text).open();
  REQUIRE(data);
  const Preparation& told = *(*data)->preparation();
  REQUIRE(told.understood.size() == 3);
  CHECK(told.understood[0] ==
        "40 rows of 3 columns: column \"y\" is the target; 2 columns of numbers");
  CHECK_THAT(told.understood[1], says("40 classes: 0 (1), 1 (1), 4 (1), "));
  CHECK(told.understood[2] == "36 samples for training and 4 for tests, drawn by seed");
  REQUIRE(told.doubts.size() == 2);
  CHECK_THAT(told.doubts[0], says("--set data.csv.values=true"));
  CHECK_THAT(told.doubts[1], says("--set data.csv.leave_out=[1]"));
  CHECK(constant_accuracy({0, 1, 1}, {1, 1, 0, 2}) == 0.5);
  CHECK(constant_loss({1, 3}, {2, 4}, 1) == 1);
}

}  // namespace csv_test
