// The files of a folder of keys: a host's certificate, its key and the authority's certificate.
#include "runtime/cluster/keys.hpp"

#include "runtime/cluster/tls.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <array>
#include <cstdlib>

namespace troupe::fuzz {
namespace {

constexpr std::array kNames{"alpha.pem", "alpha.key", "ca.pem"};

}  // namespace

std::vector<std::string> seeds() {
  if (!make_keys(files().folder() / "made", {"alpha"})) {
    std::abort();
  }
  std::vector<std::string> texts;
  for (const char* name : kNames) {
    texts.push_back(Files::read(files().folder() / "made" / "alpha" / name));
  }
  return {joined(texts)};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto folder = fuzz::files().folder() / "read";
  std::filesystem::create_directory(folder);
  auto texts = fuzz::parted(fuzz::text_of(data, size));
  texts.resize(fuzz::kNames.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto path = fuzz::files().write(std::string("read/") + fuzz::kNames[i], texts[i]);
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  fuzz::tried(Credentials::load(folder));
  return 0;
}
