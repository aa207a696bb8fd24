// Files of other programs, known by how they begin.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// What somebody who gives a file of another form wants.
enum class Wanted : std::uint8_t { table, arrays, tokens, image };

/// "it is a Parquet file; python3 -c '...' makes ... of it", to stand behind "... is not usable: ", where `begin` is how
/// such a file begins: a workbook, Parquet, a pickle, HDF5, an array, an image, a web page, text of two bytes a character.
/// "" where it is none of them, or what is wanted.
std::string foreign_form(std::span<const std::uint8_t> begin,
                         const std::string& path,
                         Wanted wanted);

/// The same of the file at `path`; "" where it cannot be read.
std::string foreign_form(const std::string& path, Wanted wanted);

}  // namespace troupe
