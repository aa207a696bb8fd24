// UCX's library as it is loaded, and a worker of it: what a process sends and receives with.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#define TROUPE_UCX_FUNCTIONS(f)                                                                \
  f(ucp_cleanup) f(ucp_config_modify) f(ucp_config_read) f(ucp_config_release)                 \
      f(ucp_context_print_info) f(ucp_ep_close_nbx) f(ucp_ep_create) f(ucp_get_version_string) \
          f(ucp_init_version) f(ucp_request_free) f(ucp_tag_msg_recv_nbx) f(ucp_tag_probe_nb)  \
              f(ucp_tag_send_nbx) f(ucp_worker_arm) f(ucp_worker_create) f(ucp_worker_destroy) \
                  f(ucp_worker_get_address) f(ucp_worker_get_efd) f(ucp_worker_progress)       \
                      f(ucp_worker_release_address) f(ucp_worker_signal) f(ucs_status_string)

namespace troupe {

/// The functions that are called here, by their own names.
struct UcxLibrary {
#define TROUPE_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  TROUPE_UCX_FUNCTIONS(TROUPE_UCX_MEMBER)
#undef TROUPE_UCX_MEMBER
  bool loaded = false;
};

const UcxLibrary& ucx_library();

/// With the context that it is of. For one thread at a time; but for signal(), which any may call.
class UcxWorker {
 public:
  /// Throws std::runtime_error where UCX cannot be loaded, or finds nothing that could carry tensors.
  UcxWorker();
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }

  /// Where others reach it: bytes that UCX alone can read.
  std::string address() const;

  /// "tcp, posix": by their order in UCX.
  std::string transports() const;

  /// Returns when there is something to do.
  void await() const;

  void signal() const { ucx_library().ucp_worker_signal(worker_); }

 private:
  void make();
  void unmake();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;
};

}  // namespace troupe
