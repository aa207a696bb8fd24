// The verbs of the command line, which do the work of run(), compare() and the others of troupe/runs.py:
// what they write comes back as text, with the Python exception that a sentence of theirs is about.
#include "apps/python/command.hpp"

#include "apps/cli/command_line.hpp"
#include "apps/cli/interrupts.hpp"
#include "apps/cli/program.hpp"
#include "apps/conformance/conformance.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::python {
namespace {

/// Keeps what is written, and says it to a Python callable whenever it is flushed.
class Said final : public std::streambuf {
 public:
  explicit Said(nb::handle tell) : tell_(hold(tell)) {}

  const std::string& text() const { return text_; }

 protected:
  int_type overflow(int_type c) override {
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      text_.push_back(traits_type::to_char_type(c));
    }
    return traits_type::not_eof(c);
  }

  std::streamsize xsputn(const char* text, std::streamsize count) override {
    text_.append(text, static_cast<std::size_t>(count));
    return count;
  }

  int sync() override {
    if (!tell_->get().is_none() && told_ < text_.size()) {
      with_python("progress", [&] { tell_->get()(text_.substr(told_)); });
      told_ = text_.size();
    }
    return 0;
  }

 private:
  HeldRef tell_;
  std::string text_;
  std::size_t told_ = 0;
};

std::vector<const char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<const char*> all;
  for (const std::string& word : words) {
    all.push_back(word.c_str());
  }
  return all;
}

/// -> exit code, standard output, standard error, the exception behind its sentence or None.
/// `line`: called with each line of metrics.jsonl; what it returns that is false asks the run to end, once.
nb::tuple command(const std::vector<std::string>& words,
                  nb::handle tell,
                  bool terminal,
                  nb::handle line) {
  std::ostringstream out;
  Said said(tell);
  std::ostream err(&said);
  Console console{out, err, terminal};
  bool ended = false;  // by on_metric, and not by Ctrl-C before
  if (!line.is_none()) {
    console.line = [watcher = hold(line), asked = false, &ended](std::string_view text) mutable {
      const bool on = with_python("on_metric", [&] {
        return nb::cast<bool>(watcher->get()(nb::str(text.data(), text.size())));
      });
      if (!on && !std::exchange(asked, true)) {
        ended = Interrupts::ask();
      }
    };
  }
  const std::vector<const char*> argv = pointers_to(words);
  int code = 0;
  {
    const nb::gil_scoped_release release;
    code = run_command_line(static_cast<int>(argv.size()), argv.data(), console);
    err.flush();
  }
  bury();
  return nb::make_tuple(code, out.str(), said.text(), exception_of(said.text() + out.str()), ended);
}

nb::list conformance(std::string name,
                     std::vector<std::string> values,
                     std::optional<std::int64_t> bound) {
  const ConformanceOptions options{std::move(name), std::move(values), bound};
  std::optional<Result<std::vector<Finding>>> found;
  {
    const nb::gil_scoped_release release;
    found.emplace(check_conformance(options));
  }
  if (!*found) {
    throw nb::value_error(found->error().message.c_str());
  }
  nb::list all;
  for (const Finding& finding : **found) {
    all.append(nb::make_tuple(finding.check, finding.holds, finding.applies, finding.what));
  }
  return all;
}

}  // namespace

void bind_command(nb::module_& m) {
  m.def("command",
        &command,
        nb::arg("words"),
        nb::arg("tell").none(),
        nb::arg("terminal"),
        nb::arg("line").none());
  m.def("conformance", &conformance, nb::arg("name"), nb::arg("values"), nb::arg("bound").none());
  m.def(
      "main",
      [](const std::vector<std::string>& words, nb::handle prepare) {
        const std::vector<const char*> argv = pointers_to(words);
        std::function<Result<void>()> called;
        if (!prepare.is_none()) {
          called = [held = hold(prepare)]() -> Result<void> {
            try {
              with_python("--import", [&] { held->get()(); });
              return {};
            } catch (const PythonFailed& failed) {
              return Error{ErrorKind::usage, failed.what()};
            }
          };
        }
        const nb::gil_scoped_release release;
        return run_command_line(static_cast<int>(argv.size()), argv.data(), std::move(called));
      },
      nb::arg("words"),
      nb::arg("prepare").none());
}

}  // namespace troupe::python
