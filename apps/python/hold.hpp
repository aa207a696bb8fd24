// Python objects in the hands of threads that may not have the GIL, and Python exceptions on their way
// through C++.
//
// A thread of the runtime keeps one Python state until it ends. No destructor waits for the GIL: what a
// thread without it drops goes when somebody next has it. Who joins a thread that may be in Python has
// released the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace troupe::python {

namespace nb = nanobind;

/// Gives a reference up. From any thread, never waits for the GIL: the object goes when somebody next
/// has it (bury).
void give_up(PyObject* object) noexcept;
/// What has been given up goes now. With the GIL.
void bury();

/// A reference that any thread may drop.
class Held {
 public:
  explicit Held(nb::handle object) : object_(object.inc_ref().ptr()) {}

  ~Held() { give_up(object_); }

  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  nb::handle get() const { return object_; }

 private:
  PyObject* object_;
};

using HeldRef = std::shared_ptr<const Held>;

inline HeldRef hold(nb::handle object) {
  return std::make_shared<const Held>(object);
}

/// A Python exception has been met; it waits (exception_of) for whoever reads the sentence.
class PythonFailed final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "HalfLife.weight: ZeroDivisionError: division by zero". With the GIL. Keeps the exception.
std::string keep_exception(const std::string& where, nb::python_error& error);
/// The kept exception whose sentence is in `text`; none: None. With the GIL.
nb::object exception_of(const std::string& text);

/// The GIL for as long as it lives. A thread of the runtime keeps the Python state that it gets the first time
/// until it ends: to make one for each call takes 50 us, and would empty threading.local() each time.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Calls `f` with the GIL. PythonFailed where it throws; `where` is the beginning of the sentence.
template <class F>
auto with_python(const std::string& where, F&& f) {
  const WithGil gil;
  bury();
  try {
    return f();
  } catch (nb::python_error& error) {
    throw PythonFailed(keep_exception(where, error));
  } catch (const nb::cast_error&) {
    throw PythonFailed(where + ": what it has returned is of another type than is asked for");
  }
}

/// A method of a Python object, which is looked up once. With the GIL.
class Method {
 public:
  /// `name`: of the scheme, for sentences.
  Method(nb::handle of, const std::string& name, const char* method)
      : where_(name + "." + method),
        bound_(nb::hasattr(of, method) ? hold(of.attr(method)) : nullptr) {}

  /// Whether the object has it.
  explicit operator bool() const { return bound_ != nullptr; }

  const std::string& where() const { return where_; }

  /// From any thread.
  template <class R, class... Arguments>
  R call(const Arguments&... arguments) const {
    return with_python(where_, [&] { return nb::cast<R>(bound_->get()(arguments...)); });
  }

 private:
  std::string where_;
  HeldRef bound_;
};

}  // namespace troupe::python
