// troupe keys: certificates for the hosts of a small cluster; and the keys of an experiment.
#include "runtime/cluster/keys.hpp"

#include "apps/cli/text.hpp"
#include "apps/verbs/explain_words.hpp"
#include "apps/verbs/verb.hpp"

#include <memory>
#include <ostream>
#include <sstream>

namespace troupe {
namespace {

struct KeysArguments {
  std::string folder;
  std::string hosts;
  std::int64_t days = 365;
};

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream text(list);
  for (std::string name; std::getline(text, name, ',');) {
    names.push_back(name);
  }
  return names;
}

/// The keys of an experiment, for who expects them here: without hosts there are no certificates to make.
Result<int> show_keys(Console& console, const KeysArguments& arguments) {
  const std::string& path = arguments.folder;
  if (path.empty()) {
    console.out << top_keys_text();
    return 0;
  }
  if (const auto text = key_text(path)) {
    console.out << *text;
    return 0;
  }
  return Error{ErrorKind::usage,
               concat("keys: --hosts names the hosts that certificates in ",
                      path,
                      " are for; without it the keys of an experiment are shown, and it has no \"",
                      path,
                      "\" (`troupe keys` lists where they begin)")};
}

Result<int> make(Console& console, const KeysArguments& arguments) {
  if (arguments.hosts.empty()) {
    return show_keys(console, arguments);
  }
  if (arguments.folder.empty()) {
    return Error{ErrorKind::usage,
                 "keys: name the folder for the keys: troupe keys DIR --hosts A,B"};
  }
  const std::vector<std::string> hosts = names_in(arguments.hosts);
  const auto made = make_keys(arguments.folder, hosts, {.days = static_cast<int>(arguments.days)});
  TROUPE_TRY(made);
  const std::string folder = arguments.folder + "/";
  std::vector<std::vector<std::string>> rows{
      {folder + "ca.key", "stays here: whoever has it can add hosts"}};
  for (const std::string& host : hosts) {
    rows.push_back({folder + host, concat("copy it to ", host, ", for its --keys")});
  }
  console.out << table(rows) << std::flush;
  return 0;
}

}  // namespace

Command declare_keys() {
  auto arguments = std::make_shared<KeysArguments>();
  return {.options = {{.names = "DIR",
                       .value = &arguments->folder,
                       .doc = "folder for the keys; made here, or one that has been, to add hosts. "
                              "Without --hosts: a key of an experiment that is to be explained, "
                              "such as pipeline.weights; none: where all keys begin",
                       .type = "DIR",
                       .refuse_empty = kEmptyFolder},
                      {.names = "--hosts",
                       .value = &arguments->hosts,
                       .doc = "names or addresses of the hosts, as others call them",
                       .type = "A,B,...",
                       .refuse_empty = "name at least one host"},
                      {.names = "--days",
                       .value = &arguments->days,
                       .doc = "how long the certificates are good for (default: 365)",
                       .type = "N",
                       .range = OptionRange{1, kCertificateDaysMax}}},
          .action = [arguments](Console& console) {
            return make(console, *arguments);
          }};
}

}  // namespace troupe
