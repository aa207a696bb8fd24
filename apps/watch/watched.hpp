// What `troupe watch`, `top` and `report` show: runs and comparisons that go on or are over, here or where another `troupe watch`
// serves them. Each is told as lines of JSON, whose `kind` says what they are:
//
//   run         name, folder, and the experiment, once at the beginning
//   header, train, evaluation, gap, ...   as metrics.jsonl has them (`troupe explain metrics.jsonl`)
//   summary     summary.json, when the run has one
//   comparison, curve   compare.json and the rows of curves.csv, of a comparison that is over
//   diagnosis   who holds everybody up, in sentences (diagnosis.hpp)
//   state       the last line of each piece: where the next one begins (WatchedState)
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How far one has read. It stands in the last line of each piece; the next piece is what has come since.
struct WatchedState {
  std::int64_t next = 0;  // bytes of metrics.jsonl
  std::string have{};     // which summary.json has been told
  bool more = false;      // there is more already
  bool anew =
      false;  // the file is not the one that was read before: this piece begins from its beginning
  bool over = false;        // the run has told its end
  bool killed = false;      // it has not, and nobody is left who could
  double silent = 0;        // seconds since it has written anything
  std::int64_t trials = 0;  // of a comparison that has kept so many

  void tell(auto& json) const {
    json("next", next)("have", have)("more", more)("anew", anew)("over", over)("killed", killed);
    json("silent", silent)("trials", trials);
  }
};

/// Of the last line of a piece; of text that ends with none the state of one that has no more.
WatchedState state_in(std::string_view piece);

struct Watched {
  std::string name;                // no other one has it
  std::filesystem::path folder{};  // where it is on this machine
  std::string address{};  // HOST:PORT of the watch that serves it; "": it is on this machine
  std::string token{};    // of that one
  std::size_t place = 0;  // and its number there

  /// What has come since `state`, at most a mebibyte. Error (lost): the other watch does not answer.
  Result<std::string> read(const WatchedState& state) const;
};

/// All that has come since `state`, which moves on: `take` gets each line; before, where it begins anew, `forget` is called.
/// It ends also where there is said to be more and nothing comes. Error as Watched::read.
Result<void> read_on(const Watched& run,
                     WatchedState& state,
                     const std::function<void()>& forget,
                     const std::function<void(std::string_view)>& take);

/// `named`: folders of runs, of comparisons, or of either, and HOST:PORT; none: runs/latest. Error (usage): there is no run,
/// (lost): nobody answers there.
Result<std::vector<Watched>> find_watched(std::vector<std::string> named, const std::string& token);

}  // namespace troupe
