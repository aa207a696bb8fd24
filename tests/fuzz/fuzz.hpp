// What takes bytes of others, given any bytes at all. Each file of this folder has these two functions. An ordinary build
// links them with driver.cpp, which damages sound inputs at random; the preset `fuzz` with libFuzzer, which learns what leads
// further. A finding is a crash, a sanitizer's word, or an exception that is none of the documented ones.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Takes the bytes as if a stranger had sent or written them; 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace troupe::fuzz {

/// Sound inputs.
std::vector<std::string> seeds();

/// Whether the last input was sound, to the end.
inline bool sound = false;

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The end of an input: what has come of it.
void tried(const auto& result) {
  sound = static_cast<bool>(result);
}

/// Several texts in one: four bytes of its size stand before each.
inline std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const auto size = static_cast<std::uint32_t>(text.size());
    all.append(reinterpret_cast<const char*>(&size), sizeof size);
    all += text;
  }
  return all;
}

/// The same the other way, whatever the bytes are.
inline std::vector<std::string> parted(std::string_view all) {
  std::vector<std::string> texts;
  while (all.size() >= sizeof(std::uint32_t)) {
    std::uint32_t size = 0;
    all.copy(reinterpret_cast<char*>(&size), sizeof size);
    all.remove_prefix(sizeof size);
    texts.emplace_back(all.substr(0, size));
    all.remove_prefix(texts.back().size());
  }
  return texts;
}

/// A folder in memory, this process's own, where a file is written anew for each input.
class Files {
 public:
  Files()
      : folder_(std::filesystem::path("/dev/shm") / ("troupe-fuzz-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }

  ~Files() {
    std::error_code code;
    std::filesystem::remove_all(folder_, code);
  }

  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  std::filesystem::path write(const std::string& name, std::string_view contents) const {
    std::ofstream file(folder_ / name, std::ios::binary | std::ios::trunc);
    file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    return folder_ / name;
  }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path folder_;
};

/// Of this process, made when it is first wanted.
inline const Files& files() {
  static const Files all;
  return all;
}

}  // namespace troupe::fuzz
