#include "apps/python/hold.hpp"

#include <nanobind/stl/string.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

namespace troupe::python {
namespace {

// Never destroyed: registries of the library may outlive the interpreter.
struct Graveyard {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::vector<PyObject*> dead;
};

Graveyard& graveyard() {
  static auto* const one = new Graveyard;
  return *one;
}

struct Kept {
  std::string text;
  PyObject* exception;
};

/// Guarded by the GIL.
std::deque<Kept>& kept() {
  static auto* const one = new std::deque<Kept>;
  return *one;
}

constexpr std::size_t kKeptMax = 64;

/// A thread's Python state, until it ends.
class Attached {
 public:
  Attached() : python_s_own_(PyGILState_GetThisThreadState() != nullptr) {
    if (!python_s_own_) {
      state_ = PyGILState_Ensure();
      saved_ = PyEval_SaveThread();
    }
  }

  ~Attached() {
    if (!python_s_own_) {
      PyEval_RestoreThread(saved_);
      // What threading.local() has for this thread goes while the state still counts as in use: destructors that
      // take the GIL themselves (torch's, of tensors over numpy's memory) would else delete it a second time (before
      // Python 3.12).
      if (PyObject* const own = PyThreadState_GetDict()) {
        PyDict_Clear(own);
      }
      PyGILState_Release(state_);
    }
  }

 private:
  bool python_s_own_;
  PyGILState_STATE state_ = PyGILState_LOCKED;
  PyThreadState* saved_ = nullptr;
};

}  // namespace

WithGil::WithGil() {
  thread_local const Attached attached;
  static_cast<void>(attached);
  state_ = PyGILState_Ensure();
}

WithGil::~WithGil() {
  PyGILState_Release(state_);
}

void give_up(PyObject* object) noexcept {
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  yard.dead.push_back(object);
  yard.any.store(true, std::memory_order_release);
}

void bury() {
  Graveyard& yard = graveyard();
  if (!yard.any.load(std::memory_order_acquire)) {
    return;
  }
  std::vector<PyObject*> dead;
  {
    const std::lock_guard lock(yard.mutex);
    yard.any.store(false, std::memory_order_relaxed);
    dead.swap(yard.dead);
  }
  for (PyObject* object : dead) {
    Py_DECREF(object);
  }
}

std::string keep_exception(const std::string& where, nb::python_error& error) {
  const nb::object value = nb::borrow(error.value());
  const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
  std::string text = where + ": " + type + ": " + nb::str(value).c_str();
  std::deque<Kept>& all = kept();
  all.push_back({text, nb::object(value).release().ptr()});
  if (all.size() > kKeptMax) {
    Py_DECREF(all.front().exception);
    all.pop_front();
  }
  return text;
}

nb::object exception_of(const std::string& text) {
  std::deque<Kept>& all = kept();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (text.find(at->text) != std::string::npos) {
      nb::object found = nb::steal(at->exception);
      all.erase(std::next(at).base());
      return found;
    }
  }
  return nb::none();
}

}  // namespace troupe::python
