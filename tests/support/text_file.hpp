// A file of letters that follow one another by a rule, for the models of text. Gone with the process.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace troupe::test {

inline const std::string& text_file() {
  struct TextFile {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("troupe-text-" + std::to_string(::getpid()) + ".txt"))
                           .string();

    TextFile() {
      std::ofstream out(path);
      int state = 1;
      for (int i = 0; i < 3000; ++i) {
        state = (state * 3 + 1 + (i % 11 == 0 ? 1 : 0)) % 7;
        out << static_cast<char>('a' + state);
      }
    }

    ~TextFile() { std::filesystem::remove(path); }
  };

  static const TextFile file;
  return file.path;
}

}  // namespace troupe::test
