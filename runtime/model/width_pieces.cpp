// What parts hand each other at a junction: by part, in bytes, and joined again.
#include "runtime/model/layers/junction.hpp"
#include "runtime/model/width.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

namespace troupe {

std::vector<Bundle> for_parts(Bundle made, const WidthPart& from) {
  std::vector<Bundle> all(static_cast<std::size_t>(from.parts));
  for (NamedTensor& entry : made) {
    std::int64_t to = from.rank;
    for (std::int64_t t = 0; from.parts > 1 && t < from.parts; ++t) {
      const bool forward = entry.name == piece_for(t);
      if (forward || entry.name == piece_from(t)) {
        entry.name = forward ? piece_from(from.rank) : piece_for(from.rank);
        to = t;
        break;
      }
    }
    all[static_cast<std::size_t>(to)].push_back(std::move(entry));
  }
  return all;
}

std::int64_t bytes_for(const BundleShape& made, const WidthPart& from, std::int64_t to) {
  std::int64_t bytes = 0;
  for (const NamedShape& entry : made) {
    std::int64_t part = from.rank;
    for (std::int64_t t = 0; from.parts > 1 && t < from.parts; ++t) {
      part = entry.name == piece_for(t) ? t : part;
    }
    bytes += part == to ? 4 * entry.shape.elements() / entry.share : 0;
  }
  return bytes;
}

void add_pieces(Bundle& to, Bundle more) {
  if (to.empty() && more.size() == 1) {  // the rule, where no parts are
    to = std::move(more);
    return;
  }
  for (NamedTensor& entry : more) {
    const auto same = std::ranges::find(to, entry.name, &NamedTensor::name);
    if (same != to.end()) {
      *same = std::move(entry);
    } else {
      to.push_back(std::move(entry));
    }
  }
  const auto is_piece = [](const NamedTensor& entry) {
    return entry.name.starts_with("x>") || entry.name.starts_with("x<");
  };
  std::stable_sort(to.begin(), to.end(), [&](const NamedTensor& a, const NamedTensor& b) {
    return is_piece(a) != is_piece(b) ? is_piece(a) : is_piece(a) && a.name < b.name;
  });
}

bool pieces_agree(const Bundle& there, const Bundle& more, std::int64_t parts) {
  std::map<std::int64_t, std::int64_t> rows;  // by part
  for (const Bundle* const bundle : {&there, &more}) {
    for (const NamedTensor& entry : *bundle) {
      for (std::int64_t t = 0; entry.tensor && t < parts; ++t) {
        if (entry.name == piece_from(t) || entry.name == piece_for(t)) {
          rows[t] = entry.tensor.shape()[0];
        }
      }
    }
  }
  std::int64_t all = 0;
  bool equal = true;
  for (const auto& [part, count] : rows) {
    all += count;
    equal = equal && count == rows.begin()->second;
  }
  return equal || std::ranges::all_of(rows, [&](const auto& row) {
           return std::ssize(rows) == parts ? row.second == rows_of(all, {row.first, parts}).count
                                            : std::abs(row.second - rows.begin()->second) <= 1;
         });
}

}  // namespace troupe
