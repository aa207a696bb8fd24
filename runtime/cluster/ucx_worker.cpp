#include "runtime/cluster/ucx_worker.hpp"

#include "kernels/wording.hpp"
#include "runtime/cluster/ucx_plane.hpp"

#include <dlfcn.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace troupe {
namespace {

constexpr const char* kFile = "libucp.so.0";
constexpr const char* kNotLoaded = "libucp.so.0 of UCX cannot be loaded; install libucx0";

UcxLibrary load() {
  // UCX reads these when it is loaded; the user's own values count. It is not to catch signals, nor to write where results are,
  // nor to warn of what was on its way when a channel closed.
  for (const auto& [name, value] : {std::pair{"UCX_HANDLE_ERRORS", "none"},
                                    {"UCX_LOG_FILE", "stderr"},
                                    {"UCX_LOG_LEVEL", "error"}}) {
    ::setenv(name, value, 0);
  }
  UcxLibrary all;
  void* const file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  all.loaded = file != nullptr;
#define TROUPE_UCX_FIND(name)                                                             \
  all.name = file ? reinterpret_cast<decltype(all.name)>(::dlsym(file, #name)) : nullptr; \
  all.loaded = all.loaded && all.name;
  TROUPE_UCX_FUNCTIONS(TROUPE_UCX_FIND)
#undef TROUPE_UCX_FIND
  return all;
}

void expect_ok(ucs_status_t status, const char* what) {
  if (status != UCS_OK) {
    throw std::runtime_error(
        fill_in("UCX cannot {}: {}", what, ucx_library().ucs_status_string(status)));
  }
}

}  // namespace

const UcxLibrary& ucx_library() {
  static const UcxLibrary library = load();
  return library;
}

UcxWorker::UcxWorker() {
  try {
    make();
  } catch (...) {
    unmake();
    throw;
  }
}

UcxWorker::~UcxWorker() {
  unmake();
}

void UcxWorker::make() {
  const UcxLibrary& ucx = ucx_library();
  if (!ucx.loaded) {
    throw std::runtime_error(kNotLoaded);
  }
  ucp_config_t* config = nullptr;
  expect_ok(ucx.ucp_config_read(nullptr, nullptr, &config), "read its settings");
  // A tensor leaves when the other end has memory for it, which its header has announced. What left before would take memory
  // there that nobody has checked.
  ucs_status_t status = ucx.ucp_config_modify(config, "RNDV_THRESH", "1");
  if (status == UCS_OK) {
    ucp_params_t wanted{};
    wanted.field_mask = UCP_PARAM_FIELD_FEATURES;
    wanted.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &wanted, config, &context_);
  }
  ucx.ucp_config_release(config);
  expect_ok(status, "begin (UCX_TLS names its transports)");
  ucp_worker_params_t how{};
  how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  expect_ok(ucx.ucp_worker_create(context_, &how, &worker_), "make a worker");
  expect_ok(ucx.ucp_worker_get_efd(worker_, &events_), "wait (a transport tells no events)");
}

void UcxWorker::unmake() {
  if (worker_) {
    ucx_library().ucp_worker_destroy(worker_);
  }
  if (context_) {
    ucx_library().ucp_cleanup(context_);
  }
}

std::string UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  expect_ok(ucx_library().ucp_worker_get_address(worker_, &address, &size), "tell its address");
  const std::string bytes(reinterpret_cast<const char*>(address), size);
  ucx_library().ucp_worker_release_address(worker_, address);
  return bytes;
}

std::string UcxWorker::transports() const {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const told = ::open_memstream(&text, &size);
  if (!told) {
    return "";
  }
  ucx_library().ucp_context_print_info(context_, told);
  std::fclose(told);
  std::istringstream lines(std::string(text, size));
  std::free(text);
  std::string all;
  for (std::string line;
       std::getline(lines, line);) {  // "# resource 0 : md 0 dev 0 flags -- tcp/lo"
    if (const auto end = line.rfind('/');
        line.find(" resource ") != std::string::npos && end != std::string::npos) {
      all += (all.empty() ? "" : ", ") + line.substr(line.rfind(' ') + 1);
    }
  }
  return all;
}

void UcxWorker::await() const {
  const ucs_status_t armed = ucx_library().ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) {
    return;
  }
  expect_ok(armed, "wait");
  pollfd events{events_, POLLIN, 0};
  ::poll(&events, 1, -1);
}

std::string ucx_version() {
  return ucx_library().loaded ? ucx_library().ucp_get_version_string() : "";
}

Result<void> check_ucx(const std::string& version) {
  try {
    const UcxWorker tried;
  } catch (const std::exception& error) {
    return Error{ErrorKind::usage, error.what()};
  }
  return version.empty() || version == ucx_version()
             ? Result<void>()
             : usage_error("this host has UCX {}, the lead {}; all processes need the same",
                           ucx_version(),
                           version);
}

std::string ucx_words() {
  try {
    return concat(ucx_version(), ": ", UcxWorker().transports());
  } catch (const std::exception& error) {
    return concat("none: ", error.what());
  }
}

}  // namespace troupe
