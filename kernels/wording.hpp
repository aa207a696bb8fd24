// Sentences with values in them: "micro_batches: {} does not divide batch_size {}".
#pragma once

#include "kernels/check.hpp"
#include "kernels/result.hpp"

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace troupe {

/// A text that is known when it is compiled, with a {} for each of `Values`; one with more or fewer does not compile.
template <class... Values>
struct Wording {
  template <std::size_t N>
  consteval Wording(const char (&words)[N]) : text(words) {  // NOLINT: implicit by design
    std::size_t places = 0;
    for (std::size_t at = text.find("{}"); at != text.npos; at = text.find("{}", at + 2)) {
      ++places;
    }
    if (places != sizeof...(Values)) {
      throw "a wording has as many {} as there are values";
    }
  }

  std::string_view text;
};

/// The wording with the values in the places of its {}, each written as concat() writes it.
template <class... Values>
std::string fill_in(Wording<std::type_identity_t<Values>...> wording, const Values&... values) {
  std::ostringstream out;
  std::string_view rest = wording.text;
  [[maybe_unused]] const auto write = [&](const auto& value) {
    const std::size_t place = rest.find("{}");
    out << rest.substr(0, place) << value;
    rest.remove_prefix(place + 2);
  };
  (write(values), ...);
  out << rest;
  return out.str();
}

/// What is wrong with a command line or an experiment, worded by fill_in().
template <class... Values>
Error usage_error(Wording<std::type_identity_t<Values>...> wording, const Values&... values) {
  return {ErrorKind::usage, fill_in<Values...>(wording, values...)};
}

/// ... with data.
template <class... Values>
Error data_error(Wording<std::type_identity_t<Values>...> wording, const Values&... values) {
  return {ErrorKind::data, fill_in<Values...>(wording, values...)};
}

/// What was lost for good, or could not be written.
template <class... Values>
Error lost_error(Wording<std::type_identity_t<Values>...> wording, const Values&... values) {
  return {ErrorKind::lost, fill_in<Values...>(wording, values...)};
}

}  // namespace troupe
