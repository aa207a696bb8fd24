#include "apps/verbs/data_files.hpp"

#include "apps/presets/presets.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_convert.hpp"
#include "runtime/data/tokenize.hpp"
#include "runtime/data/vocabulary.hpp"
#include "runtime/record/output_file.hpp"

#include <filesystem>

namespace troupe {
namespace {

Error usage_of(const std::string& what) {
  return {ErrorKind::usage, "data: " + what};
}

}  // namespace

Result<std::string> write_tokens(const std::vector<std::string>& words,
                                 const std::string& vocabulary_folder,
                                 const std::vector<std::string>& assignments) {
  if (words.size() != 2 || !assignments.empty()) {
    return usage_of("it is `troupe data tokenize [--vocabulary DIR] TEXT OUT.bin`");
  }
  const std::string& out = words[1];
  TROUPE_TRY(check_is_new("data: ", out));
  proto::Vocabulary options;
  if (vocabulary_folder.empty()) {
    options.mutable_bytes();
  } else {
    options.mutable_bpe()->set_path(vocabulary_folder);
  }
  const auto vocabulary = make_vocabulary(options, "");
  TROUPE_TRY(vocabulary);
  const auto made = tokenize_file(words[0], out, **vocabulary);
  TROUPE_TRY(made);
  return fill_in(
      "wrote {}: {} tokens of {} bytes; use it by --set data.tokens.path={} --set "
      "data.tokens.vocabulary={}{}\n",
      out,
      made->tokens,
      made->width,
      out,
      (*vocabulary)->size(),
      made->width == 4 ? " --set data.tokens.type=uint32" : "");
}

Result<std::string> write_arrays(const std::vector<std::string>& words,
                                 const std::vector<std::string>& assignments) {
  if (words.size() != 2) {
    return usage_of("it is `troupe data convert [--set data.csv.KEY=VALUE] TABLE.csv DIR`");
  }
  std::error_code code;
  if (std::filesystem::exists(words[1], code) && !is_empty_folder(words[1])) {
    return usage_of(concat(words[1], " exists already; name a new folder"));
  }
  std::vector<std::string> all{"data.csv.path=" + words[0]};
  for (const std::string& assignment : assignments) {
    if (!assignment.starts_with("data.csv.")) {
      return usage_of(concat("convert: --set: \"", assignment, "\" is no key below data.csv"));
    }
    all.push_back(assignment);
  }
  const auto experiment = load_experiment(std::string(kDefaultPreset), all);
  TROUPE_TRY(experiment);
  const auto made = convert_csv(experiment->data().csv(), words[1]);
  TROUPE_TRY(made);
  return fill_in("wrote {}: {} samples of {} numbers{}; use it by --set data.arrays.path={}{}\n",
                 words[1],
                 made->rows,
                 made->columns,
                 made->classes.empty() ? std::string(" and numbers to predict")
                                       : concat(" in ", made->classes.size(), " classes"),
                 words[1],
                 made->classes.empty() ? " --set data.arrays.values=true" : "");
}

}  // namespace troupe
