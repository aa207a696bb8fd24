#include "apps/compare/kept_trials.hpp"

#include "apps/cli/machine.hpp"
#include "apps/cli/version.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/record/sha256.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrials = "trials";
constexpr const char* kLock = "lock";
constexpr const char* kSuffix = ".trial";
const std::string kTrialHead =
    "troupe trial 3\n";  // a number for each way of writing what is below
constexpr std::size_t kDigestLetters = 64;
constexpr std::size_t kTrialBytesMax = std::size_t{1} << 28;  // an evaluation has about 50

std::string sha256_of(const std::string& text) {
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.finish();
}

/// What is trained, and on which clock.
std::string fingerprint(const Contender& scheme, std::uint64_t seed, const std::string& clock) {
  proto::Experiment experiment = scheme.resolved;
  experiment.set_seed(seed);
  return sha256_of(concat(clock, " clock\n", print_experiment(experiment)));
}

/// All of a trial that tables, files and curves say of it.
void archive_trial(Archive& a, Trial& t) {
  Summary& s = t.summary;
  a(t.seed, t.outcome, t.exit_code, t.cause, t.curve);
  a(s.clock, s.updates, s.epochs, s.samples, s.seconds, s.samples_per_second, s.tokens_per_second);
  a(s.train_loss, s.staleness, s.gap, s.bytes_sent, s.weights_sha256, s.order_sha256);
  a(s.locks, s.modules, s.replicas);
}

/// What a file says beside its trial.
struct TrialNote {
  std::string fingerprint;
  std::string maker;
  std::string label;
};

/// False where the file is not what keep() has written.
bool read_trial(const fs::path& path, TrialNote& note, Trial& trial) {
  const auto bytes = read_input_file(path, kTrialBytesMax);  // of a pipe or a folder nothing
  const std::string text = bytes ? std::string(bytes->begin(), bytes->end()) : "";
  const std::size_t head = kTrialHead.size() + kDigestLetters + 1;
  if (text.size() < head || !text.starts_with(kTrialHead) ||
      text.substr(kTrialHead.size(), kDigestLetters) != sha256_of(text.substr(head))) {
    return false;
  }
  try {
    Archive a({.bytes = text.substr(head), .tensors = {}});
    a(note.fingerprint, note.maker, note.label);
    archive_trial(a, trial);
    a.expect_end();
  } catch (const ArchiveError&) {
    return false;
  }
  return trial.outcome != Outcome::interrupted;
}

/// Of the program's file, and of libtroupe's where that is another: a user's own layers and rules are in them, of which no
/// commit tells.
std::string digest_of_program() {
  constexpr std::size_t kLetters = 16;
  constexpr const char* kProgram = "/proc/self/exe";
  Dl_info here{};
  ::dladdr(reinterpret_cast<const void*>(&maker_of_trials), &here);
  const std::string library = here.dli_fname ? here.dli_fname : kProgram;
  const auto of = [](const fs::path& file) {
    const auto digest = file_sha256(file);
    return digest ? *digest : "";
  };
  std::error_code code;
  const std::string digest = fs::equivalent(library, kProgram, code)
                                 ? of(kProgram)
                                 : sha256_of(of(kProgram) + of(library));
  return digest.substr(0, kLetters);
}

std::vector<fs::path> trial_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().extension() == kSuffix) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What trial a file is said to be of: "weights=stash, seed 1".
std::string words_of_trial(const fs::path& path) {
  TrialNote note;
  Trial trial;
  return read_trial(path, note, trial) ? concat(note.label, ", seed ", trial.seed)
                                       : path.filename().string();
}

}  // namespace

std::string maker_of_trials() {
  static const std::string program = digest_of_program();  // the file is large
  const Summary::Origin origin = origin_of_run();
  return fill_in("troupe {}, commit {}, program {}, oneDNN {}, {}, on {}{}{}",
                 version(),
                 origin.commit,
                 program,
                 onednn_version(),
                 origin.instructions,
                 origin.cpu,
                 origin.gpu.empty() ? "" : " with ",
                 origin.gpu);
}

KeptTrials::KeptTrials(fs::path folder, std::string clock, std::string maker)
    : folder_(std::move(folder)), clock_(std::move(clock)), maker_(std::move(maker)) {}

bool KeptTrials::are_in(const fs::path& of_comparison) {
  std::error_code code;
  return fs::is_directory(of_comparison / kTrials, code);
}

Result<KeptTrials> KeptTrials::open_any(const fs::path& folder,
                                        const std::string& clock,
                                        const std::string& maker) {
  KeptTrials kept(folder / kTrials, clock, maker);
  kept.of_any_maker_ = true;
  std::error_code code;
  fs::create_directory(kept.folder_, code);
  const fs::path lock = kept.folder_ / kLock;
  // Made where it is not there, and only then locked: of two that come at once one has it.
  std::ofstream(lock, std::ios::app).close();
  auto locked = OutputFile::resume(lock, 0);
  if (!locked) {
    return locked.error().kind != ErrorKind::usage
               ? locked.error()
               : usage_error("--out: another troupe is at work in {}", folder.string());
  }
  kept.lock_ = *std::move(locked);
  return kept;
}

Result<KeptTrials> KeptTrials::open(const fs::path& of_comparison,
                                    const std::vector<Contender>& schemes,
                                    const std::string& clock,
                                    int seeds,
                                    const std::string& maker) {
  auto opened = open_any(of_comparison, clock, maker);
  if (!opened) {
    return opened;
  }
  KeptTrials& kept = *opened;
  kept.of_any_maker_ = false;
  std::set<fs::path> ours;
  for (const Contender& scheme : schemes) {
    for (int i = 0; i < seeds; ++i) {
      ours.insert(kept.path_of(scheme, scheme.resolved->seed() + static_cast<std::uint64_t>(i)));
    }
  }
  const std::vector<fs::path> there = trial_files(kept.folder_);
  const auto others = std::count_if(
      there.begin(), there.end(), [&](const fs::path& path) { return !ours.contains(path); });
  if (others > 0 && others == std::ssize(there)) {
    return usage_error(
        "--out: {} has the trials of another comparison ({}), and none of this one; name a new "
        "folder",
        of_comparison.string(),
        words_of_trial(there.front()));
  }
  if (others > 0) {
    kept.notes_.push_back(
        fill_in("{}{}{}{} to other schemes or seeds; they stay there, and are not in this table",
                others,
                others == 1 ? " trial in " : " trials in ",
                kept.folder_.string(),
                others == 1 ? " belongs" : " belong"));
  }
  return opened;
}

fs::path KeptTrials::path_of(const Contender& scheme, std::uint64_t seed) const {
  constexpr std::size_t kLetters = 32;  // no two experiments share 128 bits of their digests
  return folder_ / (fingerprint(scheme, seed, clock_).substr(0, kLetters) + kSuffix);
}

bool KeptTrials::recall(const Contender& scheme, Trial& trial) {
  const fs::path path = path_of(scheme, trial.seed);
  std::error_code code;
  if (!fs::exists(path, code)) {
    return false;
  }
  const std::string name = concat(scheme.label, " seed ", trial.seed);
  TrialNote note;
  Trial read{.scheme = trial.scheme};
  if (!read_trial(path, note, read) || read.seed != trial.seed ||
      note.fingerprint != fingerprint(scheme, trial.seed, clock_)) {
    notes_.push_back(concat(path.string(), " is damaged: ", name, " is made again"));
    return false;
  }
  if (note.maker != maker_ && !of_any_maker_) {
    notes_.push_back(
        fill_in("{} is made again, as another program or another kind of machine has made it: {}",
                name,
                note.maker));
    return false;
  }
  makers_.insert(note.maker);
  trial = std::move(read);
  return true;
}

Result<void> KeptTrials::keep(const Contender& scheme, const Trial& trial) const {
  TrialNote note{fingerprint(scheme, trial.seed, clock_), maker_, scheme.label};
  Trial written = trial;  // an Archive writes and reads by one list of fields
  Archive a;
  a(note.fingerprint, note.maker, note.label);
  archive_trial(a, written);
  const std::string bytes = a.take().bytes;
  return replace_file(path_of(scheme, trial.seed), [&](OutputFile& file) {
    file.write(kTrialHead);
    file.write(sha256_of(bytes) + "\n");
    file.write(bytes);
  });
}

std::string bits_of(const Trial& trial) {
  Trial written = trial;
  Archive a;
  archive_trial(a, written);
  return a.take().bytes;
}

}  // namespace troupe
