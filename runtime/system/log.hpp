// What a person may have to look at, on stderr: event first, then key=value. One logger a
// component.
//
//   log::recorder().warn("metrics_not_written", {{"path", path}, {"cause", why}});
//
// error: a person must look. warn: degraded but handled. info: life cycle. debug: per message.
// Kernels log nothing.
#pragma once

#include "kernels/check.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace troupe::log {

enum class Level : std::uint8_t { debug, info, warn, error, off };

/// A value as it is logged.
struct Value {
  std::string_view key;
  std::string text;

  template <class T>
  Value(std::string_view name, const T& value) : key(name), text(concat(value)) {}
};

/// Cheap to copy; usable from every thread.
class Logger {
 public:
  explicit constexpr Logger(const char* component) : component_(component) {}

  void debug(std::string_view event, std::initializer_list<Value> values = {}) const {
    write(Level::debug, event, values);
  }

  void info(std::string_view event, std::initializer_list<Value> values = {}) const {
    write(Level::info, event, values);
  }

  void warn(std::string_view event, std::initializer_list<Value> values = {}) const {
    write(Level::warn, event, values);
  }

  void error(std::string_view event, std::initializer_list<Value> values = {}) const {
    write(Level::error, event, values);
  }

 private:
  void write(Level level, std::string_view event, std::initializer_list<Value> values) const;

  const char* component_;
};

constexpr Logger run() {
  return Logger("run");
}

constexpr Logger shell() {
  return Logger("shell");
}

/// Nothing below `level` is written. At start: warn.
void set_level(Level level);

}  // namespace troupe::log
