// Files of other programs, known by how they begin, and data that is named as what it is not.
#pragma once

#include "messages/proto.hpp"

#include <cstdint>
#include <filesystem>
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

/// "--set data.csv.path=x.csv": how the file or folder at `path` is named as data, by the names of what is there; "" where
/// that tells nothing.
std::string data_key(const std::filesystem::path& path);

/// The same of what is at the path of own data, where it is not what `data` takes it for; else "".
std::string key_of_what_is_there(const proto::Data& data);

/// Where data of one's own is; "" of other data.
std::string own_path(const proto::Data& data);

}  // namespace troupe
