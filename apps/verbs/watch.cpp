// troupe watch, top, report: runs that go on or are over, in a browser, in a terminal, in a file.
#include "apps/cli/interrupts.hpp"
#include "apps/cli/text.hpp"
#include "apps/verbs/verb.hpp"
#include "apps/watch/now.hpp"
#include "apps/watch/page.hpp"
#include "kernels/sequences.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/serve/http.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // for an interrupt
constexpr std::chrono::seconds kRedraw{1};
constexpr const char* kNamed =
    "folders of runs, of comparisons, or of either, or HOST:PORT of another `troupe watch` "
    "(default: runs/latest)";

struct WatchArguments {
  std::vector<std::string> named;
  std::string address = "127.0.0.1:7878";
  std::string token;
  std::string out;
  bool json = false;
  bool diagnose = false;
};

CommandOption token_option(WatchArguments& arguments, const std::string& doc) {
  return {.names = "--token", .value = &arguments.token, .doc = doc};
}

std::int64_t number_in_query(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  std::int64_t number = 0;
  if (found != request.query.end()) {
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  }
  return number;
}

/// What the page asks for, and another watch.
std::map<std::string, HttpHandler> pages_of(const std::vector<Watched>& runs) {
  const auto list = [&runs](const HttpRequest&) {
    std::string names =
        joined(runs, ",", [&](const Watched& run) { return json_string(run.name); });
    return HttpReply{.body = JsonObject{}.raw("runs", "[" + names + "]").text(),
                     .type = "application/json"};
  };
  const auto piece = [&runs](const HttpRequest& request) {
    const std::int64_t i = number_in_query(request, "i");
    if (i < 0 || i >= static_cast<std::int64_t>(runs.size())) {
      return HttpReply{.body = concat("there is no run ", i, " here\n"), .status = 404};
    }
    const auto have = request.query.find("have");
    auto lines = runs[static_cast<std::size_t>(i)].read(
        {.next = std::max<std::int64_t>(0, number_in_query(request, "from")),
         .have = have != request.query.end() ? have->second : ""});
    return lines ? HttpReply{.body = *std::move(lines), .type = "application/jsonl"}
                 : HttpReply{.body = lines.error().message + "\n", .status = 502};
  };
  return {{"/",
           [](const HttpRequest&) {
             return HttpReply{.body = live_page(), .type = "text/html; charset=utf-8"};
           }},
          {"/runs", list},
          {"/run", piece}};
}

Result<int> watch(Console& console, const WatchArguments& arguments) {
  const auto runs = prefixed("watch: ", find_watched(arguments.named, arguments.token));
  TROUPE_TRY(runs);
  Interrupts interrupts;
  const auto server =
      prefixed("watch: ",
               HttpServer::start({.address = arguments.address,
                                  .token = is_loopback(arguments.address) ? "" : arguments.token},
                                 pages_of(*runs)));
  TROUPE_TRY(server);
  console.out << "watch    " << server->url_with_token() << '\n' << std::flush;
  for (const Watched& run : *runs) {
    console.err << table({{run.name}}, "         ");
  }
  console.err << "         Ctrl-C ends it; the runs do not notice" << '\n' << std::flush;
  while (Interrupts::count() == 0) {
    std::this_thread::sleep_for(kLook);
  }
  return 0;
}

Result<int> top(Console& console, const WatchArguments& arguments) {
  const auto found = prefixed("top: ", find_watched(arguments.named, arguments.token));
  TROUPE_TRY(found);
  std::vector<RunNow> runs(found->begin(), found->end());
  const bool redraws =
      !arguments.json && &console.out == &std::cout && ::isatty(STDOUT_FILENO) == 1;
  for (bool over = false; !over;) {
    over = true;
    std::string text;
    std::string json;
    for (RunNow& run : runs) {
      TROUPE_TRY(prefixed("top: ", run.read_on()));
      over = over && run.state().over;
      text += run.text(arguments.diagnose);
      json += (json.empty() ? "" : ",") + run.json();
    }
    if (arguments.json) {
      console.out << "{\"runs\":[" << json << "]}" << '\n' << std::flush;
      return 0;
    }
    console.out << (redraws ? "\033[H\033[2J" : "") << text << std::flush;
    if (!redraws) {
      return 0;
    }
    if (!over) {
      console.out << "\nCtrl-C ends this; the run does not notice" << std::flush;
      std::this_thread::sleep_for(kRedraw);
    }
  }
  return 0;
}

Result<int> report(Console& console, const WatchArguments& arguments) {
  const auto runs = prefixed("report: ", find_watched(arguments.named, arguments.token));
  TROUPE_TRY(runs);
  const auto page = prefixed("report: ", page_of(*runs));
  TROUPE_TRY(page);
  std::filesystem::path out = arguments.out;
  if (out.empty()) {
    const std::filesystem::path first =
        arguments.named.empty() ? runs->front().folder.string() : arguments.named.front();
    std::error_code code;
    out = (std::filesystem::is_directory(first, code) ? first : std::filesystem::path()) /
          "report.html";
  }
  TROUPE_TRY(prefixed("report: ", write_file(out, *page)));
  console.out << "report   " << out.string() << ": " << mebibytes(static_cast<double>(page->size()))
              << '\n'
              << std::flush;
  return 0;
}

}  // namespace

Command declare_watch() {
  auto arguments = std::make_shared<WatchArguments>();
  return {.options = {{.names = "DIR", .value = &arguments->named, .doc = kNamed},
                      {.names = "--address",
                       .value = &arguments->address,
                       .doc = "HOST:PORT that the page is served at; port 0: any that is free "
                              "(default: 127.0.0.1:7878)"},
                      token_option(*arguments,
                                   "what a page that others can reach demands (default: one is "
                                   "made, and printed); of the "
                                   "other watch, where HOST:PORT is watched")},
          .action = [arguments](Console& console) {
            return watch(console, *arguments);
          }};
}

Command declare_top() {
  auto arguments = std::make_shared<WatchArguments>();
  return {.options = {{.names = "DIR", .value = &arguments->named, .doc = kNamed},
                      {.names = "--diagnose",
                       .value = &arguments->diagnose,
                       .doc = "who holds everybody up, and which key changes that"},
                      {.names = "--json",
                       .value = &arguments->json,
                       .doc = "one object, for another program"},
                      token_option(*arguments, "that the other watch demands")},
          .action = [arguments](Console& console) {
            return top(console, *arguments);
          }};
}

Command declare_report() {
  auto arguments = std::make_shared<WatchArguments>();
  return {.options = {{.names = "DIR", .value = &arguments->named, .doc = kNamed},
                      {.names = "--out",
                       .value = &arguments->out,
                       .doc = "the file (default: report.html in the first DIR)",
                       .type = "FILE",
                       .refuse_empty = "the name of the file is empty"},
                      token_option(*arguments, "that the other watch demands")},
          .action = [arguments](Console& console) {
            return report(console, *arguments);
          }};
}

}  // namespace troupe
