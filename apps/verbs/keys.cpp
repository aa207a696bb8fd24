// troupe keys: certificates for the hosts of a small cluster.
#include "runtime/cluster/keys.hpp"

#include "apps/text.hpp"
#include "apps/verbs/verb.hpp"

#include <memory>
#include <ostream>
#include <sstream>

namespace troupe {
namespace {

struct Arguments {
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

int make(Console& console, const Arguments& arguments) {
  const std::vector<std::string> hosts = names_in(arguments.hosts);
  const auto made = make_keys(arguments.folder, hosts, {.days = static_cast<int>(arguments.days)});
  if (!made) {
    return fail(console, made.error());
  }
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
  auto arguments = std::make_shared<Arguments>();
  return {.options = {{.names = "DIR",
                       .value = &arguments->folder,
                       .doc = "folder for the keys; made here, or one that has been, to add hosts",
                       .type = "DIR",
                       .refuse_empty = kEmptyFolder,
                       .required = true},
                      {.names = "--hosts",
                       .value = &arguments->hosts,
                       .doc = "names or addresses of the hosts, as others call them",
                       .type = "A,B,...",
                       .refuse_empty = "name at least one host",
                       .required = true},
                      {.names = "--days",
                       .value = &arguments->days,
                       .doc = "how long the certificates are good for",
                       .type = "N",
                       .range = OptionRange{1, kCertificateDaysMax},
                       .shows_default = true}},
          .action = [arguments](Console& console) {
            return make(console, *arguments);
          }};
}

}  // namespace troupe
