// troupe trace: what a run with record.trace has left, and where its actors' time went.
#include "apps/cli/text.hpp"
#include "apps/run/tracing.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/trace_file.hpp"

#include <filesystem>
#include <memory>
#include <numeric>
#include <ostream>

namespace troupe {
namespace {

namespace fs = std::filesystem;

struct TraceArguments {
  std::string folder = "runs/latest";
  std::string out;
  std::string csv;
  bool ledger = false;
};

/// Of a run without a trace: what there is instead, and what to do.
Error no_trace(const fs::path& folder) {
  std::error_code code;
  std::string has;
  for (const auto& [file, what] :
       {std::pair{"metrics.jsonl",
                  "the shares of each stage's time (busy, idle) and the staleness"},
        std::pair{"order.log", "the order in which messages were delivered, with their times"},
        std::pair{"order-0.log", "the order in which messages were delivered, with their times"}}) {
    if (fs::exists(folder / file, code)) {
      has += concat(has.empty() ? "; it has " : ", ", file, " (", what, ")");
    }
  }
  std::string phases;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (fs::exists(entry.path() / kTraceFile, code)) {
      phases = concat("; its phases have one each, such as ", entry.path().string());
    }
  }
  return {ErrorKind::data,
          fill_in("trace: {} has no {}{}{}",
                  folder.string(),
                  kTraceFile,
                  phases.empty() ? ": a run writes it at its end, with --set record.trace=true"
                                 : phases,
                  has)};
}

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

using Rows = std::vector<std::vector<std::string>>;

/// A row of each actor below that of the columns' names.
Rows ledger_rows(const TraceLedger& ledger) {
  Rows rows{{"process", "actor"}};
  rows.front().insert(rows.front().end(), kSpent.begin(), kSpent.end());
  rows.front().insert(rows.front().end(), {"sum", "bytes sent"});
  for (const TraceLedger::Row& row : ledger.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    cells = {row.process, row.actor};
    for (const std::int64_t part : row.spent) {
      cells.push_back(number(seconds(part), "%.6f"));
    }
    const std::int64_t sum = std::accumulate(row.spent.begin(), row.spent.end(), std::int64_t{0});
    cells.push_back(number(seconds(sum), "%.6f"));
    cells.push_back(std::to_string(row.bytes));
  }
  return rows;
}

std::string ledger_table(TraceLedger ledger) {
  TraceLedger::Row all{.process = "all", .actor = concat(ledger.rows.size(), " actors")};
  for (const TraceLedger::Row& row : ledger.rows) {
    for (std::size_t i = 0; i < all.spent.size(); ++i) {
      all.spent[i] += row.spent[i];
    }
    all.bytes += row.bytes;
  }
  ledger.rows.push_back(std::move(all));
  return table(ledger_rows(ledger));
}

std::string ledger_csv(const TraceLedger& ledger) {
  return joined(ledger_rows(ledger), "", csv_line);
}

Result<int> show_trace(Console& console, const TraceArguments& arguments) {
  const fs::path file = fs::path(arguments.folder) / kTraceFile;
  std::error_code code;
  if (!fs::exists(file, code)) {
    return no_trace(arguments.folder);
  }
  const auto ledger = prefixed("trace: ", read_ledger(file));
  TROUPE_TRY(ledger);
  const fs::path shown = arguments.out.empty() ? file : fs::path(arguments.out);
  if (!arguments.out.empty() && !fs::copy_file(file, shown, code)) {
    return Error{ErrorKind::lost, concat("trace: ", shown.string(), ": ", code.message())};
  }
  console.out << fill_in(
      "{}: {} s of the run's clock, {} actors, {} slices, {} flows; https://ui.perfetto.dev opens "
      "it\n",
      shown.string(),
      number(seconds(ledger->nanoseconds), "%.6f"),
      grouped(static_cast<std::int64_t>(ledger->rows.size())),
      grouped(ledger->slices),
      grouped(ledger->flows));
  if (!arguments.csv.empty()) {
    TROUPE_TRY(prefixed("trace: ", write_file(arguments.csv, ledger_csv(*ledger))));
  }
  if (arguments.ledger) {
    console.out << "seconds of each actor:\n" << ledger_table(*ledger);
  }
  console.out << std::flush;
  return 0;
}

}  // namespace

Command declare_trace() {
  auto arguments = std::make_shared<TraceArguments>();
  return {
      .options = {{.names = "DIR",
                   .value = &arguments->folder,
                   .doc = "folder of a run with record.trace=true (default: runs/latest)"},
                  {.names = "--ledger",
                   .value = &arguments->ledger,
                   .doc =
                       "where the time of each actor went: kernels, messages, and why it waited"},
                  {.names = "--csv",
                   .value = &arguments->csv,
                   .doc = "a file, which gets the ledger as a table",
                   .type = "FILE",
                   .refuse_empty = "the name of the file is empty"},
                  {.names = "--out",
                   .value = &arguments->out,
                   .doc = "a new file, which gets the trace",
                   .type = "FILE",
                   .refuse_empty = "the name of the file is empty"}},
      .action = [arguments](Console& console) {
        return show_trace(console, *arguments);
      }};
}

}  // namespace troupe
