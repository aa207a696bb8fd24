// The two files of a byte pair encoding.
#include "runtime/data/byte_pairs.hpp"

#include "experiment/data.pb.h"
#include "tests/fuzz/fuzz.hpp"

namespace troupe::fuzz {
namespace {

/// GPT-2's character of each byte.
std::string character(int byte) {
  const bool seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  static int next = 0;
  const int code = seen ? byte : 0x100 + next++;
  if (code < 0x80) {
    return code == '"' || code == '\\' ? std::string("\\") + static_cast<char>(code)
                                       : std::string(1, static_cast<char>(code));
  }
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

std::vector<std::string> seeds() {
  std::string vocabulary = "{";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary += "\"" + character(byte) + "\": " + std::to_string(byte) + ", ";
  }
  return {joined({vocabulary + "\"th\": 256, \"the\": 257}", "#version: 0.2\nt h\nth e\n"})};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::vector<std::string> parts = fuzz::parted(fuzz::text_of(data, size));
  if (parts.size() == 2) {
    fuzz::files().write("vocab.json", parts[0]);
    fuzz::files().write("merges.txt", parts[1]);
    proto::Bpe options;
    options.set_path(fuzz::files().folder().string());
    fuzz::tried(open_byte_pairs(options));
  }
  return 0;
}
