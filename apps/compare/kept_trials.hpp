// The finished trials of a comparison, a file each, so that one that was ended goes on where it was.
//
//   DIR/trials/5f0c...9a.trial   named by what was trained: the whole experiment with its seed, and the clock
//
// A file is written whole or not at all, and begins with the checksum of the rest. A trial is taken from its file only
// where the same program has made it on a machine of the same kind: then it is what this process would make.
#pragma once

#include "apps/compare/trials.hpp"
#include "runtime/record/output_file.hpp"

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe {

class KeptTrials {
 public:
  /// Whether a comparison keeps its trials in its folder `of_comparison`.
  static bool are_in(const std::filesystem::path& of_comparison);

  /// Those of `seeds` seeds of each scheme, in a folder that is made here where it is not there. `maker`: program and
  /// machine, in words. Error (usage) where there are trials and none of these schemes, or another process
  /// compares there; (lost) where it cannot be written.
  static Result<KeptTrials> open(const std::filesystem::path& of_comparison,
                                 const std::vector<Contender>& schemes,
                                 const std::string& clock,
                                 int seeds,
                                 const std::string& maker);

  /// The same for a folder that grows as its owner likes: nothing is said of whose trials are there, and they are taken
  /// whoever has made them. makers() tells who that was.
  static Result<KeptTrials> open_any(const std::filesystem::path& folder,
                                     const std::string& clock,
                                     const std::string& maker);

  /// Fills in a trial, its scheme and seed known, that is kept. False where none can be taken.
  bool recall(const Contender& scheme, Trial& trial);

  /// Keeps a trial that has come to its end, good or bad. From one thread at a time.
  Result<void> keep(const Contender& scheme, const Trial& trial) const;

  /// What recall() and open() have passed over, and why: a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Of the trials that recall() has filled in.
  const std::set<std::string>& makers() const { return makers_; }

 private:
  KeptTrials(std::filesystem::path folder, std::string clock, std::string maker);

  std::filesystem::path path_of(const Contender& scheme, std::uint64_t seed) const;

  std::filesystem::path folder_;
  std::string clock_;
  std::string maker_;
  std::unique_ptr<OutputFile> lock_;  // held: no other process compares here
  std::vector<std::string> notes_;
  std::set<std::string> makers_;
  bool of_any_maker_ = false;
};

/// All that is kept of a trial: two are equal to the bit where these are.
std::string bits_of(const Trial& trial);

/// This program, by a digest of its file, with its libraries' versions, on this machine.
std::string maker_of_trials();

}  // namespace troupe
