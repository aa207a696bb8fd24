// A file of weights.
#include "runtime/checkpoint/safetensors.hpp"

#include "tests/fuzz/fuzz.hpp"

namespace troupe::fuzz {
std::vector<std::string> seeds() {
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto path = files().folder() / "seed";
  const auto written = write_safetensors(
      path,
      {{.name = "a.weight", .dtype = "F32", .shape = {2, 2}, .bytes = bytes.first(16)},
       {.name = "b", .dtype = "BF16", .shape = {}, .bytes = bytes.first(2)},
       {.name = "c", .dtype = "I64", .shape = {1, 0, 3}, .bytes = {}}},
      {{"format", "pt"}, {"note", "\u00e4 \"quoted\""}});
  return written ? std::vector{Files::read(path)} : std::vector<std::string>{};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto file = SafetensorsFile::open(fuzz::files().write("file", fuzz::text_of(data, size)));
  fuzz::tried(file);
  if (file) {
    for (const SafetensorsEntry& entry : file->entries()) {
      if (readable_as_floats(entry.dtype)) {
        floats_of(entry);
      }
    }
  }
  return 0;
}
