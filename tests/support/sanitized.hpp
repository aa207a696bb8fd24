// What a test leaves out under a sanitizer, which makes it ten to twenty times as long: some of what differs in numbers
// and not in the code that it runs. Builds without one try everything.
#pragma once

namespace troupe::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace troupe::test
