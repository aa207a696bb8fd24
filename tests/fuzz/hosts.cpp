// A hosts file, and what of its lines goes into a shell's words; the list of a job's nodes, as Slurm writes it.
#include "apps/run/hosts_file.hpp"
#include "apps/run/ranks.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <cstdlib>

namespace troupe::fuzz {
std::vector<std::string> seeds() {
  return {"beta:7000   # the machine under the window\n10.0.0.3:7001\n[::1]:7002\n",
          "me@beta ~/bin/troupe\n\n# nobody\ngamma\n",
          "rack1-node007\n"};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::string text = fuzz::text_of(data, size);
  (void)is_host(first_node(text));
  const auto places = read_hosts_file(fuzz::files().write("hosts", text).string());
  fuzz::tried(places);
  for (const HostPlace& place : places ? *places : std::vector<HostPlace>{}) {
    const std::string words = place.text() + place.program;
    if (words.find_first_of(";|&$`\\\"'<>() \t\n") != words.npos || words[0] == '-') {
      std::abort();
    }
  }
  return 0;
}
