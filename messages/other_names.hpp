// What papers and other programs call a value or a key of an experiment, and what one that there is not may mean.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct OtherName {
  std::string_view key;   // the key whose value has the name; "": a key itself has it
  std::string_view name;  // in small letters, with _ between words
  std::string_view
      stands_for;  // assignments, as --set takes them, a blank between two; of a key, its path
  std::string_view note{};  // "": all is said

  /// The scheme that it stands for: "stash", "resnet" of model.resnet.depth=18.
  std::string_view scheme() const;
};

/// The only table of them.
std::span<const OtherName> other_names();

/// In small letters, with _ for -: "D-PSGD" as "d_psgd".
std::string plain_name(std::string_view name);

/// The assignments that "path=value" stands for where one of the two is another name, however it is spelt
/// ("1F1B", "D-PSGD"); else none.
std::vector<std::string> meant_by(std::string_view assignment);

/// "model=resnet18 is taken for model.resnet.depth=18"; "" where the assignment says itself what is meant.
std::string taken_for(std::string_view assignment);

/// ", did you mean "a" or "b"?"; "" where there are none.
std::string did_you_mean(const std::vector<std::string>& names);

/// Keys that `name` may mean: "batch_size" is data.batch_size; none where none is near.
std::vector<std::string> keys_meant(std::string_view name);

}  // namespace troupe
