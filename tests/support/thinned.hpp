// How much of a long list a test goes through.
#pragma once

namespace troupe::test {

#ifdef TROUPE_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Whether the `i`-th case of a list is tried: each one, but under sanitizers one of `of`. There a case takes ten
/// times as long, what it says has been seen without them, and the memory that it touches is that of the others.
constexpr bool tried(int i, int of) {
  return !kSanitized || i % of == 0;
}

}  // namespace troupe::test
