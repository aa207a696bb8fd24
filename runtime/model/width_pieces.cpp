// What parts hand each other at a junction: by part, in bytes, and joined again.
#include "runtime/model/layers/junction.hpp"
#include "runtime/model/width.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe {
namespace {

/// Of one of `parts` parts: all others are no pieces here.
std::optional<PieceName> piece_among(const std::string& name, std::int64_t parts) {
  const auto piece = parts > 1 ? as_piece(name) : std::nullopt;
  return piece && piece->part >= 0 && piece->part < parts ? piece : std::nullopt;
}

}  // namespace

std::vector<Bundle> for_parts(Bundle made, const WidthPart& from) {
  std::vector<Bundle> all(static_cast<std::size_t>(from.parts));
  for (NamedTensor& entry : made) {
    std::int64_t to = from.rank;
    if (const auto piece = piece_among(entry.name, from.parts)) {
      entry.name = piece->is_for ? piece_from(from.rank) : piece_for(from.rank);
      to = piece->part;
    }
    all[static_cast<std::size_t>(to)].push_back(std::move(entry));
  }
  return all;
}

std::int64_t bytes_for(const BundleShape& made, const WidthPart& from, std::int64_t to) {
  std::int64_t bytes = 0;
  for (const NamedShape& entry : made) {
    const auto piece = piece_among(entry.name, from.parts);
    const std::int64_t part = piece && piece->is_for ? piece->part : from.rank;
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
      if (const auto piece = piece_among(entry.name, parts); piece && entry.tensor) {
        rows[piece->part] = entry.tensor.shape()[0];
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
