// Members of a zip archive (PKWARE's APPNOTE 6.3.9), stored or deflated: what NumPy's savez writes.
// Archives beyond 2 GiB (zip64), encrypted members and archives in several parts are refused.
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/input_file.hpp"

#include <string_view>

namespace troupe {

/// The member `name` of an archive in memory, with the right CRC-32. Error (data): what is wrong, to
/// stand behind "... is not usable: "; where there is no such member, it says which there are.
Result<Bytes> unzip(const Bytes& archive, std::string_view name);

}  // namespace troupe
