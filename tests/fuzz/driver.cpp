// Without libFuzzer: every seed whole, then damaged at random. TROUPE_FUZZ=N inputs (default 2000), TROUPE_SEED=n. With
// "--write FOLDER" the seeds become files there, for libFuzzer to begin with.
#include "kernels/random.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <cstdlib>
#include <cstring>
#include <iostream>

using namespace troupe;

namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given ? std::strtoull(given, nullptr, 10) : otherwise;
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed, Purpose::test) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : stream_.below(index_++, n); }

 private:
  RandomStream stream_;
  std::uint64_t index_ = 0;
};

/// One or a few changes: a bit, a byte, a number that is often a limit, a piece less, a piece twice, another's end.
std::string damaged(std::string text, const std::vector<std::string>& all, Dice& dice) {
  constexpr std::uint64_t kLimits[] = {
      0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 63, ~0ull};
  for (std::size_t i = 0; i <= dice.below(4); ++i) {
    const std::size_t at = dice.below(text.size());
    const std::size_t size = dice.below(text.size() - at + 1);
    switch (text.empty() ? 6 : dice.below(7)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << dice.below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(dice.below(256));
        break;
      case 2: {
        const std::uint64_t limit = kLimits[dice.below(std::size(kLimits))];
        std::memcpy(
            text.data() + at, &limit, std::min(text.size() - at, std::size_t{1} << dice.below(4)));
        break;
      }
      case 3:
        text.erase(at, size);
        break;
      case 4:
        text.insert(at, text.substr(at, size));
        break;
      case 5:
        text.resize(at);
        break;
      default:
        const std::string& other = all[dice.below(all.size())];
        text = text.substr(0, at) + other.substr(std::min(at, other.size()));
    }
  }
  return text;
}

void take(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> all = fuzz::seeds();
  if (argc == 3 && std::strcmp(argv[1], "--write") == 0) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::ofstream(std::filesystem::path(argv[2]) / std::to_string(i), std::ios::binary) << all[i];
    }
    return 0;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    fuzz::sound = false;
    take(all[i]);
    if (!fuzz::sound) {
      std::cerr << "sound input " << i << " was refused\n";
      return 1;
    }
  }
  Dice dice(number("TROUPE_SEED", 1));
  const std::uint64_t count = number("TROUPE_FUZZ", 2000);
  for (std::uint64_t i = 0; i < count; ++i) {
    take(damaged(all[dice.below(all.size())], all, dice));
  }
  std::cout << all.size() << " sound inputs, " << count << " damaged ones\n";
  return 0;
}
