// What `troupe watch`, `top` and `report` read of folders: runs that go on, were killed, resumed, or are over, and comparisons.
#include "apps/watch/diagnosis.hpp"
#include "apps/watch/now.hpp"
#include "apps/watch/page.hpp"
#include "apps/watch/watched.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/serve/http.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace watch_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

std::string train(int step, const char* more = "") {
  return concat("{\"kind\":\"train\",\"step\":",
                step,
                ",\"loss\":0.5,\"busy\":0.9,\"idle\":{\"data\":0.05}",
                more,
                "}\n");
}

const std::string kHeader = "{\"kind\":\"header\",\"clock\":\"real\"}\n";
const std::string kGap = "{\"kind\":\"gap\",\"step\":9,\"shard\":\"shard-1\",\"gap\":0.25}\n";

void write(const fs::path& path, const std::string& text, std::ios::openmode mode = std::ios::out) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, mode) << text;
}

Watched only(const std::string& folder) {
  const auto found = find_watched({folder}, "");
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  return found->front();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string refusal(const std::string& named) {
  return find_watched({named}, "").error().message;
}

}  // namespace

TEST_CASE("folders without a run are told apart", "[apps]") {
  const Folder folder;
  CHECK(has(refusal(folder / "none"), "none does not exist; `troupe run` makes runs"));
  CHECK(has(refusal(folder.path().string()), " is neither the folder of a run"));
  CHECK(has(refusal("127.0.0.1:1"), "127.0.0.1:1 does not answer"));
}

TEST_CASE("a folder of runs is all of them, phases too, and names are one each", "[apps]") {
  const Folder folder;
  write(folder / "r/01-a/metrics.jsonl", kHeader);
  write(folder / "r/02-b/metrics.jsonl", kHeader);
  write(folder / "r/other/file", "");
  const auto found = find_watched({folder / "r", folder / "r/01-a", folder / "r/01-a"}, "");
  REQUIRE(found);
  std::string names;
  for (const Watched& run : *found) {
    names += run.name + ";";
  }
  CHECK(names == "r/01-a;r/02-b;01-a;01-a (2);");
}

TEST_CASE("of a run that goes on whole lines are read, each once", "[apps]") {
  const Folder folder;
  const fs::path metrics = folder / "metrics.jsonl";
  write(metrics, kHeader + train(1) + "{\"kind\":\"train\",\"st");
  const Watched run = only(folder.path().string());
  const std::string first = *run.read({});
  CHECK(has(first, kHeader + train(1)));
  CHECK_FALSE(has(first, "\"st\n"));
  WatchedState state = state_in(first);
  CHECK_FALSE(state.over);
  CHECK(state_in(*run.read(state)).next == state.next);
  write(metrics, "ep\":2}\n" + kGap, std::ios::app);
  const std::string second = *run.read(state);
  CHECK(second.starts_with("{\"kind\":\"train\",\"step\":2}\n" + kGap));
  state = state_in(second);
  write(folder / "summary.json", "{\n  \"updates\": 2\n}\n");
  const std::string third = *run.read(state);
  CHECK(has(third, "{\"kind\":\"summary\",   \"updates\": 2 }\n"));
  CHECK(state_in(third).over);
  CHECK_FALSE(has(*run.read(state_in(third)), "summary\","));
}

TEST_CASE("a file that was cut back is read anew, and an old summary does not end a run",
          "[apps]") {
  const Folder folder;
  const fs::path metrics = folder / "metrics.jsonl";
  write(folder / "summary.json", "{}");
  fs::last_write_time(folder / "summary.json",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  write(metrics, kHeader + train(1) + train(2));
  const Watched run = only(folder.path().string());
  const WatchedState state = state_in(*run.read({}));
  CHECK_FALSE(state.over);
  write(metrics, kHeader);
  const std::string again = *run.read(state);
  CHECK(state_in(again).anew);
  CHECK(has(again, kHeader));
}

TEST_CASE("in a folder that was copied what the summary counts ends a run", "[apps]") {
  const Folder folder;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  write(folder / "summary.json", "{\"updates\":2}");
  write(folder / "metrics.jsonl", kHeader + train(1) + train(2));
  fs::last_write_time(folder / "summary.json", old);
  const Watched run = only(folder.path().string());
  CHECK(state_in(*run.read({})).over);
  {
    const auto goes_on = OutputFile::resume(folder / "metrics.jsonl", 0);
    REQUIRE(goes_on);
    CHECK_FALSE(state_in(*run.read({})).over);
  }
  write(folder / "metrics.jsonl", kHeader + train(3));  // was resumed, and killed
  fs::last_write_time(folder / "summary.json", old);
  CHECK_FALSE(state_in(*run.read({})).over);
}

TEST_CASE("a line without an end and a pipe keep nobody waiting", "[apps]") {
  const Folder folder;
  write(folder / "long/metrics.jsonl", kHeader + std::string(std::size_t{20} << 20, 'a'));
  const Watched run = only(folder / "long");
  const WatchedState state = state_in(*run.read({}));
  CHECK(state.next == static_cast<std::int64_t>(kHeader.size()));
  CHECK_FALSE(state_in(*run.read(state)).more);
  fs::create_directories(folder / "pipe");
  REQUIRE(::mkfifo((folder / "pipe/metrics.jsonl").c_str(), 0600) == 0);
  CHECK(has(refusal(folder / "pipe"), " is neither the folder of a run"));
  REQUIRE(::mkfifo((folder / "long/summary.json").c_str(), 0600) == 0);
  CHECK(run.read({}));
}

TEST_CASE("a watch elsewhere that says what cannot be is read to an end", "[apps]") {
  const std::string kState = "{\"kind\":\"state\",\"next\":";
  for (const std::string& state : {kState + "0,\"more\":true}\n",
                                   kState + "1e300,\"more\":true,\"trials\":-1e300}\n",
                                   kState + "\"x\",\"more\":true,\"anew\":true}\n"}) {
    const auto server = HttpServer::start({},
                                          {{"/runs",
                                            [](const HttpRequest&) {
                                              return HttpReply{.body = R"({"runs":["\u001b[2J"]})"};
                                            }},
                                           {"/run", [&](const HttpRequest&) {
                                              return HttpReply{.body = kHeader + state};
                                            }}});
    REQUIRE(server);
    const auto runs = find_watched({concat("127.0.0.1:", server->port())}, "");
    REQUIRE(runs);
    RunNow now(runs->front());
    REQUIRE(now.read_on());
    CHECK(has(now.text(false), "?[2J"));
    CHECK_FALSE(has(now.text(false), "\033"));
    CHECK(page_of(*runs));
  }
}

TEST_CASE("where a run stands is an object or some lines", "[apps]") {
  const Folder folder;
  write(folder / "metrics.jsonl",
        kHeader + train(1) + kGap + train(50) +
            "not JSON\n{\"kind\":\"lost\",\"replica\":1,\"cause\":\"killed\"}\n");
  const int writer = ::open((folder / "metrics.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(writer, LOCK_EX) == 0);  // as who writes it does
  RunNow now(only(folder.path().string()));
  REQUIRE(now.read_on());
  const std::string json = now.json();
  CHECK(has(json, "\"state\":\"going on\""));
  CHECK(has(now.text(false), "going on, real clock"));
  CHECK(has(json, "\"train\":" + train(50).substr(0, train(50).size() - 1)));
  CHECK(has(json, "\"gap\":{\"shard-1\":0.25}"));
  CHECK(has(json, "\"events\":[{\"kind\":\"lost\",\"replica\":1,\"cause\":\"killed\"}]"));
  CHECK(has(json, "\"summary\":null"));
  CHECK(has(now.text(true), "nobody is held up: the stages work 90.0 % of the time"));
  CHECK_FALSE(has(now.text(false), "nobody"));
  ::close(writer);
  REQUIRE(now.read_on());
  CHECK(has(now.json(), "\"state\":\"killed\""));
  CHECK(has(now.text(false), "killed, real clock"));
}

TEST_CASE("nothing of a run becomes a part of the page", "[apps]") {
  const Folder folder;
  write(folder / "</script><b>/metrics.jsonl",
        kHeader + train(1, ",\"cause\":\"</script><script>alert(1)\""));
  for (int step = 2; step < 2000; ++step) {
    write(folder / "</script><b>/metrics.jsonl", train(step), std::ios::app);
  }
  const auto page = page_of({only(folder / "</script><b>")});
  REQUIRE(page);
  CHECK_FALSE(has(*page, "</script><b>"));
  CHECK_FALSE(has(*page, "<script>alert"));
  CHECK(has(*page, "\\u003cscript>alert"));
  CHECK(has(*page, train(1999)));
  std::size_t lines = 0;
  for (std::size_t at = page->find("\"kind\":\"train\""); at != std::string::npos;
       at = page->find("\"kind\":\"train\"", at + 1)) {
    ++lines;
  }
  CHECK(lines > 150);
  CHECK(lines <= 301);
}

TEST_CASE("a comparison is told when it is over", "[apps]") {
  const Folder folder;
  write(folder / "trials/1.trial", "");
  const Watched of = only(folder.path().string());
  const WatchedState before = state_in(*of.read({}));
  CHECK(before.trials == 1);
  CHECK_FALSE(before.over);
  write(folder / "curves.csv", "scheme,seed,accuracy\n\"a,\"\"b\"\"\",1,\n1,2,0.5\n");
  write(folder / "compare.json", "{\n\"clock\": \"virtual\"\n}");
  const std::string after = *of.read(before);
  CHECK(has(after, "{\"kind\":\"comparison\", \"clock\": \"virtual\" }\n"));
  {  // it is made once more
    write(folder / "trials/lock", "");
    const auto goes_on = OutputFile::resume(folder / "trials/lock", 0);
    REQUIRE(goes_on);
    const WatchedState again = state_in(*of.read(state_in(after)));
    CHECK_FALSE(again.over);
    CHECK(again.anew);
    CHECK_FALSE(state_in(*of.read(again)).anew);
  }
  CHECK(
      has(after, "{\"kind\":\"curve\",\"scheme\":\"a,\\\"b\\\"\",\"seed\":1,\"accuracy\":\"\"}\n"));
  CHECK(has(after, "{\"kind\":\"curve\",\"scheme\":\"1\",\"seed\":2,\"accuracy\":0.5}\n"));
}

TEST_CASE("while a run goes on, each stage and each shard is told of by its last line", "[apps]") {
  const Folder folder;
  write(folder / "metrics.jsonl",
        kHeader +
            train(9,
                  R"(,"stages":{"stage-0":{"busy":0.25,"idle":{"error":0.75}},)"
                  R"("stage-1":{"busy":1,"idle":{}}},"shards":{"shard-1":{"mean":1.5,"max":3}})"));
  RunNow now(only(folder.path().string()));
  REQUIRE(now.read_on());
  CHECK(has(now.text(false), "stage-0  [#####...............] 25.0 % "));
  CHECK(has(now.text(false), " waits for error 75.0 %"));
  CHECK(has(now.text(false), "shard-1 1.50/3  (staleness, mean/max, of the last line)"));
  CHECK(has(now.json(), R"("stage-1":{"busy":1)"));
  write(folder / "summary.json",
        "{\"updates\":9,\"outcome\":\"done\",\"busy\":{\"stage-0\":0.5},\"staleness\":{\"shard-0\":"
        "{\"mean\":2,"
        "\"max\":4}}}");
  REQUIRE(now.read_on());
  CHECK(has(now.text(false), "50.0 %"));
  CHECK_FALSE(has(now.text(false), "of the last line"));
}

TEST_CASE("of more stages and shards than a screen has lines the first are told, soon", "[apps]") {
  constexpr int kMany = 100'000;
  std::string stages;
  std::string busy;
  std::string shards;
  for (int i = 0; i < kMany; ++i) {
    const char* const comma = i > 0 ? "," : "";
    stages += concat(comma, "\"stage-", i, "\":{\"busy\":0.25}");
    busy += concat(comma, "\"stage-", i, "\":0.5");
    shards += concat(comma, "\"shard-", i, "\":{\"mean\":1,\"max\":2}");
  }
  const std::string line =
      train(9, concat(",\"stages\":{", stages, "},\"shards\":{", shards, "}").c_str());
  const std::string summary = concat("{\"busy\":{", busy, "}}");
  const Folder folder;
  write(folder / "metrics.jsonl", kHeader + line);
  RunNow now(only(folder.path().string()));
  REQUIRE(now.read_on());
  for (const char* const share : {"25.0 %", "50.0 %"}) {
    const std::string text = now.text(false);
    CHECK(has(text, "stage-63  ["));
    CHECK(has(text, share));
    CHECK_FALSE(has(text, "stage-64"));
    CHECK(has(text, concat("...       and ", kMany - 64, " more")));
    CHECK(text.size() < 20'000);
    write(folder / "summary.json", summary);
    REQUIRE(now.read_on());
  }
  proto::Experiment e;
  e.mutable_pipeline()->set_stages(2);
  CHECK_FALSE(diagnosis(e, line, "").empty());
  CHECK_FALSE(diagnosis(e, line, summary).empty());
}

TEST_CASE("who holds everybody up follows from shares, staleness and refusals", "[apps]") {
  proto::Experiment e;
  e.mutable_pipeline()->set_stages(2);
  const auto first = [&](const std::string& line, const std::string& summary = "") {
    return diagnosis(e, line, summary).front();
  };
  CHECK(has(first(""), "nothing can be told yet"));
  CHECK(has(first(R"({"busy":0.5,"idle":{"data":0.4}})"), "wait for data 40.0 % of the time"));
  CHECK(has(first(R"({"busy":0.5,"idle":{"activation":0.3,"error":0.1}})"),
            "the pipeline empties before each update"));
  CHECK(has(first(R"({"busy":0.5,"idle":{"weights":0.4}})"), "placement.optimizer"));
  CHECK(has(first(R"({"busy":0.02,"idle":{"activation":0.8}})"),
            "a mini-batch is little work for 2 stages"));
  CHECK(has(first(R"({"busy":0.7})", R"({"busy":{"stage-0":0.9,"stage-1":0.3}})"),
            "stage-0 holds the others up: it works 90.0 %"));
  CHECK(has(first(R"({"busy":0.6,"stages":{"stage-0":{"busy":0.3},"stage-1":{"busy":0.9}}})"),
            "stage-1 holds the others up: it works 90.0 %"));
  CHECK(has(first(R"({"busy":0.95,"staleness_p50":2,"staleness_max":9})"),
            "9 versions old where the median is 2"));
  CHECK(has(first(R"({"busy":0.95})", R"({"servers":{"shard-0":{"applied":60,"dropped":40}}})"),
            "refused 40.0 % of the pushes (40 of 100)"));
}

}  // namespace watch_test
