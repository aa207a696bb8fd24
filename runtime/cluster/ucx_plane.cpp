// One thread has a worker of UCX, and no other touches that. What a link is to send or expects waits in its route until the
// thread takes it up. A tensor has a tag that no other one on its way to the same process has; its memory is made when UCX tells
// that the sender has it ready, and it is as long as its header says. So UCX never waits for anything that nobody has sent, and
// whatever it has begun is ended by the end of the endpoint.
#include "runtime/cluster/ucx_plane.hpp"

#include "kernels/check.hpp"
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/ucx_worker.hpp"

#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kComingMax = std::size_t{16}
                                   << 20;  // bytes of a peer at a time, or one tensor
constexpr int kProgressInATurn = 64;
constexpr int kProgressAtEnd = 1000;
// UCX reads an address without knowing its length. Whatever stands in one that it takes, it reads no more than this beyond.
constexpr std::size_t kBeyondAddress = std::size_t{1} << 20;
constexpr const char* kNoWay = "UCX finds no way to it, or its address is none";
constexpr const char* kCut = "UCX has lost it";

/// Whether UCX takes it for an address at all: the first byte is that of its form.
bool is_address(const std::string& said, const std::string& own) {
  return said.size() > sizeof(std::uint64_t) && said.size() <= kAddressBytesMax &&
         said.front() == own.front();
}

/// 16 bits of the sender, 20 of the life, 28 of the tensor's number: none is on its way when that many others have been.
ucp_tag_t tag_of(int sender, std::uint32_t life, std::uint64_t number) {
  return static_cast<ucp_tag_t>(sender) << 48 | (life & 0xfffffULL) << 28 | (number & 0xfffffffULL);
}

class UcxPlane final : public TensorPlane {
 public:
  explicit UcxPlane(Events events)
      : events_(std::move(events)), address_(worker_.address()), thread_([this] { work(); }) {}

  ~UcxPlane() override {
    change([this] { over_ = true; });
    thread_.join();
  }

  std::string address() const override { return address_; }

  std::unique_ptr<TensorLink> link(const Ends& ends,
                                   const Greeting& said,
                                   std::shared_ptr<PeerTraffic> traffic) override;

 private:
  /// To a peer and from there.
  struct Route {
    Ends ends;
    std::string address;
    std::shared_ptr<PeerTraffic> traffic;

    // Guarded by the mutex.
    std::deque<Tensor> out{};
    std::deque<std::shared_ptr<Incoming>> in{};
    bool closed = false;

    // Of the thread.
    ucp_ep_h endpoint = nullptr;
    bool cut = false;
    std::uint64_t sent = 0;
    std::uint64_t came = 0;
    std::size_t coming = 0;  // bytes
  };

  /// What UCX is at: it keeps the tensor's memory until UCX is done with that, whatever becomes of the link.
  struct Transfer {
    UcxPlane& plane;
    std::shared_ptr<Route> route;
    Tensor out{};
    std::shared_ptr<Incoming> in{};
    std::list<Transfer>::iterator place{};
  };

  class Link;

  template <class Done>
  void change(Done done) {
    const std::lock_guard lock(mutex_);
    done();
    worker_.signal();
  }

  template <class Piece>
  std::optional<Piece> next(Route& route, std::deque<Piece> Route::*pieces);

  void work();
  bool living(std::vector<std::shared_ptr<Route>>& all);
  bool turn(const std::shared_ptr<Route>& route);
  bool connect(Route& route) const;
  static void lose(Route& route, const char* why);
  void close(Route& route) const;
  Transfer& begin(const std::shared_ptr<Route>& route);
  void send(const std::shared_ptr<Route>& route, Tensor tensor);
  bool receive(const std::shared_ptr<Route>& route);
  void begun(Transfer& transfer, void* request);
  void end(Transfer& transfer, ucs_status_t status);
  static void done(void* request, ucs_status_t status, Transfer& transfer);

  const Events events_;
  const UcxLibrary& ucx_ = ucx_library();
  std::list<Transfer>
      transfers_{};  // longer-lived than the worker, which may be at them until its end
  UcxWorker worker_{};
  const std::string address_;
  std::optional<Stream> host_{};  // allocates
  std::mutex mutex_{};
  std::vector<std::shared_ptr<Route>> routes_{};  // guarded by the mutex
  bool over_ = false;                             // the same
  std::thread thread_;                            // last: it uses all the others
};

// -- the thread ------------------------------------------------------------------------------------

void UcxPlane::work() {
  std::vector<std::shared_ptr<Route>> all;
  try {
    host_.emplace(Device{});
    while (living(all)) {
      bool moved = false;
      for (int i = 0; i < kProgressInATurn && ucx_.ucp_worker_progress(worker_.get()) > 0; ++i) {
        moved = true;
      }
      for (const auto& route : all) {
        moved = turn(route) || moved;
      }
      if (!moved) {
        worker_.await();
      }
    }
  } catch (const std::exception& error) {
    events_.failed(error.what());
  }
  for (const auto& route : all) {
    close(*route);
  }
  for (int i = 0; i < kProgressAtEnd && !transfers_.empty(); ++i) {
    ucx_.ucp_worker_progress(worker_.get());
  }
}

/// Those that are there; false where the thread is to end.
bool UcxPlane::living(std::vector<std::shared_ptr<Route>>& all) {
  std::vector<std::shared_ptr<Route>> gone;
  bool go_on = true;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(routes_, [&](const auto& route) {
      if (route->closed) {
        gone.push_back(route);
      }
      return route->closed;
    });
    all = routes_;
    go_on = !over_;
  }
  for (const auto& route : gone) {  // UCX may end what it is at, which needs the mutex of nobody
    close(*route);
  }
  return go_on;
}

template <class Piece>
std::optional<Piece> UcxPlane::next(Route& route, std::deque<Piece> Route::*pieces) {
  const std::lock_guard lock(mutex_);
  if (route.closed || (route.*pieces).empty()) {
    return {};
  }
  std::optional<Piece> first(std::move((route.*pieces).front()));
  (route.*pieces).pop_front();
  return first;
}

/// Whether anything has begun.
bool UcxPlane::turn(const std::shared_ptr<Route>& route) {
  bool moved = false;
  while (!route->cut) {
    auto tensor = next(*route, &Route::out);
    if (!tensor || !connect(*route)) {
      break;
    }
    send(route, *std::move(tensor));
    moved = true;
  }
  while (!route->cut && receive(route)) {
    moved = true;
  }
  return moved;
}

/// Both ends have an endpoint to the other, so that the death of either ends what is on its way.
bool UcxPlane::connect(Route& route) const {
  if (route.endpoint) {
    return true;
  }
  std::string padded = route.address;
  padded.resize(padded.size() + kBeyondAddress);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* of, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {
    lose(*static_cast<Route*>(of), kCut);
  };
  params.err_handler.arg = &route;
  if (ucx_.ucp_ep_create(worker_.get(), &params, &route.endpoint) != UCS_OK) {
    route.endpoint = nullptr;
    lose(route, kNoWay);
  }
  return route.endpoint != nullptr;
}

void UcxPlane::lose(Route& route, const char* why) {
  route.cut = true;
  route.traffic->lost_stream(why);
}

/// At once: whatever is on its way ends with an error.
void UcxPlane::close(Route& route) const {
  if (const ucp_ep_h endpoint = std::exchange(route.endpoint, nullptr)) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const closing = ucx_.ucp_ep_close_nbx(endpoint, &param);
    if (UCS_PTR_IS_PTR(closing)) {
      ucx_.ucp_request_free(closing);
    }
  }
}

// -- tensors ---------------------------------------------------------------------------------------

UcxPlane::Transfer& UcxPlane::begin(const std::shared_ptr<Route>& route) {
  Transfer& transfer = transfers_.emplace_back(Transfer{*this, route});
  transfer.place = std::prev(transfers_.end());
  return transfer;
}

void UcxPlane::send(const std::shared_ptr<Route>& route, Tensor tensor) {
  Transfer& transfer = begin(route);
  transfer.out = std::move(tensor);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &transfer;
  param.cb.send = [](void* request, ucs_status_t status, void* of) {
    done(request, status, *static_cast<Transfer*>(of));
  };
  const auto bytes = bytes_of(transfer.out);
  begun(transfer,
        ucx_.ucp_tag_send_nbx(route->endpoint,
                              bytes.data(),
                              bytes.size(),
                              tag_of(route->ends.self, route->ends.life, route->sent++),
                              &param));
}

/// The next one that is expected, where the peer has it ready and there is room.
bool UcxPlane::receive(const std::shared_ptr<Route>& route) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (route->closed || route->in.empty()) {
      return false;
    }
    bytes = route->in.front()->what.bytes;
  }
  if (!connect(*route) || (route->coming > 0 && route->coming + bytes > kComingMax)) {
    return false;
  }
  const ucp_tag_t tag = tag_of(route->ends.peer, route->ends.life, route->came);
  ucp_tag_recv_info_t info{};
  const ucp_tag_message_h message =
      ucx_.ucp_tag_probe_nb(worker_.get(), tag, ~ucp_tag_t{0}, 1, &info);
  if (!message) {
    return false;
  }
  if (info.length != bytes) {
    lose(*route, "a tensor over UCX is not as long as its header says");
    return false;
  }
  auto expected = next(*route, &Route::in);
  if (!expected) {  // closed meanwhile
    return false;
  }
  Transfer& transfer = begin(route);
  transfer.in = *std::move(expected);
  Incoming& of = *transfer.in;
  of.tensor = host_->allocate(of.what.shape, of.what.type);
  ++route->came;
  route->coming += bytes;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &transfer;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t*, void* to) {
    done(request, status, *static_cast<Transfer*>(to));
  };
  begun(
      transfer,
      ucx_.ucp_tag_msg_recv_nbx(worker_.get(), bytes_of(of.tensor).data(), bytes, message, &param));
  return true;
}

/// UCX has taken it up; or it is at its end, and nobody will be called.
void UcxPlane::begun(Transfer& transfer, void* request) {
  if (!UCS_PTR_IS_PTR(request)) {
    end(transfer, UCS_PTR_STATUS(request));
  }
}

void UcxPlane::done(void* request, ucs_status_t status, Transfer& transfer) {
  transfer.plane.ucx_.ucp_request_free(request);
  transfer.plane.end(transfer, status);
}

void UcxPlane::end(Transfer& transfer, ucs_status_t status) {
  const std::shared_ptr<Route> route = transfer.route;
  const std::shared_ptr<Incoming> in = transfer.in;
  const std::size_t bytes = in ? in->what.bytes : bytes_of(transfer.out).size();
  transfers_.erase(transfer.place);
  if (in) {
    route->coming -= bytes;
  }
  if (status != UCS_OK) {
    lose(*route, kCut);
  } else if (in) {
    route->traffic->came(bytes);
    in->left.store(0, std::memory_order_release);
    events_.arrived();
  } else {
    route->traffic->sent += bytes;
  }
}

// -- links -----------------------------------------------------------------------------------------

class UcxPlane::Link final : public TensorLink {
 public:
  Link(UcxPlane& plane, std::shared_ptr<Route> route) : plane_(plane), route_(std::move(route)) {
    plane_.change([&] { plane_.routes_.push_back(route_); });
  }

  ~Link() override {
    std::deque<Tensor> out;  // these go when the mutex is free
    std::deque<std::shared_ptr<Incoming>> in;
    plane_.change([&] {
      route_->closed = true;
      out.swap(route_->out);
      in.swap(route_->in);
    });
  }

  void send(Tensor tensor) override {
    plane_.change([&] { route_->out.push_back(std::move(tensor)); });
  }

  void expect(std::shared_ptr<Incoming> incoming) override {
    plane_.change([&] { route_->in.push_back(std::move(incoming)); });
  }

 private:
  UcxPlane& plane_;
  std::shared_ptr<Route> route_;
};

std::unique_ptr<TensorLink> UcxPlane::link(const Ends& ends,
                                           const Greeting& said,
                                           std::shared_ptr<PeerTraffic> traffic) {
  if (!is_address(said.address, address_)) {
    throw WireError("it has told no address of UCX");
  }
  return std::make_unique<Link>(
      *this, std::make_shared<Route>(Route{ends, said.address, std::move(traffic)}));
}

}  // namespace

std::unique_ptr<TensorPlane> make_ucx_plane(TensorPlane::Events events) {
  return std::make_unique<UcxPlane>(std::move(events));
}

}  // namespace troupe
