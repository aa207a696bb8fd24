// With libFuzzer: sound inputs go into the folder of TROUPE_CORPUS before it reads what is there.
#include "tests/fuzz/fuzz.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  if (const char* corpus = std::getenv("TROUPE_CORPUS")) {
    int number = 0;
    for (const std::string& seed : troupe::fuzz::seeds()) {
      std::ofstream file(std::filesystem::path(corpus) / ("seed-" + std::to_string(number++)),
                         std::ios::binary);
      file << seed;
    }
  }
  return 0;
}
