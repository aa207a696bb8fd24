// What a machine reads back of a file that is not believed: lists that the run has given their length, and what else has to
// hold before the machine goes on with it.
#pragma once

#include "messages/archive.hpp"

#include <array>
#include <cstddef>

namespace troupe {

/// ArchiveError with the words where what was read is not sound.
inline void expect_archived(bool sound, const char* what) {
  if (!sound) {
    throw ArchiveError(what);
  }
}

/// Archives lists by replica, chunk, slice, ...: ArchiveError where one that is read has another length.
template <class A, class... Lists>
void archive_sized(A& a, Lists&... lists) {
  const std::array<std::size_t, sizeof...(Lists)> before{lists.size()...};
  a(lists...);
  const std::array<std::size_t, sizeof...(Lists)> after{lists.size()...};
  expect_archived(before == after, "the state has a list of another length than this run");
}

}  // namespace troupe
