#include "messages/archive.hpp"

#include "kernels/check.hpp"
#include "kernels/sequences.hpp"
#include "kernels/stream.hpp"
#include "messages/tensor_bytes.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;

std::vector<std::int64_t> extents_of(const Tensor& tensor) {
  return tabulated<std::int64_t>(tensor.shape().dimensions(),
                                 [&](int i) { return tensor.shape()[i]; });
}

}  // namespace

Archive::Archive() = default;

Archive::Archive(Archived from) : data_(std::move(from)), reading_(true) {}

Archive::~Archive() = default;

void Archive::raw(void* data, std::size_t size) {
  if (!reading_) {
    data_.bytes.append(static_cast<const char*>(data), size);
    return;
  }
  if (size > data_.bytes.size() - at_) {
    throw ArchiveError("the state ends before all of it was read");
  }
  std::memcpy(data, data_.bytes.data() + at_, size);
  at_ += size;
}

std::size_t Archive::count(std::size_t size) {
  std::uint64_t n = size;
  raw(&n, sizeof n);
  if (reading_ && n > data_.bytes.size() - at_) {
    throw ArchiveError("the state names more elements than it has bytes");
  }
  return static_cast<std::size_t>(n);
}

void Archive::expect_end() const {
  if (at_ != data_.bytes.size()) {
    throw ArchiveError("the state has more than was read");
  }
}

void Archive::value(bool& x) {
  std::uint8_t byte = x ? 1 : 0;
  raw(&byte, 1);
  if (byte > 1) {
    throw ArchiveError("the state has a flag that is neither 0 nor 1");
  }
  x = byte == 1;
}

void Archive::value(std::vector<bool>& all) {
  std::vector<std::uint8_t> bytes(all.begin(), all.end());
  value(bytes);
  all.assign(bytes.begin(), bytes.end());
}

void Archive::value(std::string& text) {
  text.resize(count(text.size()));
  raw(text.data(), text.size());
}

void Archive::shared(const void* key, std::shared_ptr<void>& held) {
  const auto how = lent_.find(key);
  TROUPE_CHECK(how != lent_.end(), "[Archive] nobody has lent what is shared here");
  how->second(*this, held);
}

void Archive::value(Tensor& tensor) {
  std::uint32_t place = reading_ || !tensor ? kNone : place_of(tensor);
  bool host = !tensor || tensor.device().kind == DeviceKind::cpu;
  (*this)(place, host);
  if (!reading_) {
    return;
  }
  if (place == kNone) {
    tensor = {};
  } else if (place >= data_.tensors.size()) {
    throw ArchiveError("the state names a tensor that is not there");
  } else {
    tensor = host ? data_.tensors[place] : on_device(place);
  }
}

std::uint32_t Archive::place_of(const Tensor& tensor) {
  const auto [found, fresh] =
      written_.try_emplace({bytes_of(tensor).data(), tensor.type(), extents_of(tensor)},
                           static_cast<std::uint32_t>(data_.tensors.size()));
  if (fresh) {
    const bool as_it_is = shares_ && tensor.device().kind == DeviceKind::cpu;
    if (as_it_is) {
      tensor.ready().wait();
    }
    data_.tensors.push_back(as_it_is ? tensor : copied(tensor, Device{}));
    kept_.push_back(tensor);  // so that no other tensor gets its place in memory meanwhile
  }
  return found->second;
}

Tensor Archive::on_device(std::uint32_t place) {
  if (device_.kind == DeviceKind::cpu) {
    return data_.tensors[place];
  }
  Tensor& there = read_[{place, device_}];
  if (!there && stream_) {
    const Tensor& from = data_.tensors[place];
    there = stream_->allocate(from.shape(), from.type());
    copy(*stream_, from, there);  // what it is copied from may go now
    there.set_ready(stream_->record());
  } else if (!there) {
    there = copied(data_.tensors[place], device_);
  }
  return there;
}

/// The same contents in a buffer of its own.
Tensor Archive::copied(const Tensor& from, Device to) {
  Stream& on = stream(to);  // to the host that of the host, so that none is made on the device
  Tensor made = on.allocate(from.shape(), from.type());
  from.ready().wait();
  copy(on, from, made);
  on.synchronize();
  return made;
}

Stream& Archive::stream(Device device) {
  std::unique_ptr<Stream>& stream = streams_[device];
  if (!stream) {
    stream = std::make_unique<Stream>(device);
  }
  return *stream;
}

}  // namespace troupe
