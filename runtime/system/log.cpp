#include "runtime/system/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>

namespace troupe::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  constexpr std::array kLevels{spdlog::level::debug,
                               spdlog::level::info,
                               spdlog::level::warn,
                               spdlog::level::err,
                               spdlog::level::off};
  return kLevels[static_cast<std::size_t>(level)];
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> one = [] {
    auto made = std::make_shared<spdlog::logger>("troupe",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::warn);
    return made;
  }();
  return *one;
}

}  // namespace

void Logger::write(Level level, std::string_view event, std::initializer_list<Value> values) const {
  spdlog::logger& to = logger();
  if (!to.should_log(spdlog_level(level))) {
    return;
  }
  std::string line = concat(component_, ": ", event);
  for (const Value& value : values) {
    line.append(" ").append(value.key).append("=").append(value.text);
  }
  to.log(spdlog_level(level), "{}", line);
}

void set_level(Level level) {
  logger().set_level(spdlog_level(level));
}

}  // namespace troupe::log
