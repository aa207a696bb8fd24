#include "runtime/cluster/shared_memory.hpp"

#include "kernels/check.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kFlagsBytes = 4096;  // before the first block
constexpr std::size_t kAlignment = 4096;   // of blocks
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "flags are of two processes");
static_assert((SharedMemory::kBlocks + 1) * sizeof(std::uint32_t) <= kFlagsBytes);

/// Flag 0 is whether the recipient has joined; the others are the blocks'.
std::atomic<std::uint32_t>& flag(std::byte* data, std::uint32_t number) {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(data)[number];
}

/// A file that is made larger than the limit of this process (ulimit -f) costs it its life.
bool within_limit(std::size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

/// Has the system provide this part of the memory now: where it cannot, the first write there would be a fault.
bool provide(int descriptor, std::size_t offset, std::size_t bytes) {
  return ::fallocate(descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

/// New memory; -1: there is none.
int make_memory() {
  if (!within_limit(SharedMemory::kBytes)) {
    return -1;
  }
  const int descriptor = ::memfd_create("troupe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor >= 0 &&
      (::ftruncate(descriptor, SharedMemory::kBytes) != 0 ||
       ::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0 || !provide(descriptor, 0, kFlagsBytes))) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

}  // namespace

// -- the memory ------------------------------------------------------------------------------------

std::shared_ptr<SharedMemory> SharedMemory::map(int descriptor) {
  if (descriptor < 0) {
    return nullptr;
  }

  struct stat of {};

  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  const bool sound = seals >= 0 && (seals & kSeals) == kSeals && ::fstat(descriptor, &of) == 0 &&
                     static_cast<std::size_t>(of.st_size) == kBytes;
  void* const data =
      sound ? ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
            : MAP_FAILED;
  if (data == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, static_cast<std::byte*>(data)));
}

SharedMemory::~SharedMemory() {
  ::munmap(data_, kBytes);
  ::close(descriptor_);
}

bool SharedMemory::joined() const {
  return flag(data_, 0).load(std::memory_order_acquire) != 0;
}

void SharedMemory::join() const {
  flag(data_, 0).store(1, std::memory_order_release);
}

bool SharedMemory::taken(std::uint32_t block) const {
  return flag(data_, block).load(std::memory_order_acquire) != 0;
}

void SharedMemory::take(std::uint32_t block) const {
  flag(data_, block).store(1, std::memory_order_relaxed);
}

void SharedMemory::give_back(std::uint32_t block) const {
  flag(data_, block).store(0, std::memory_order_release);
}

// -- the sender ------------------------------------------------------------------------------------

Lender::Lender() : memory_(SharedMemory::map(make_memory())), end_(kFlagsBytes) {}

MemoryOffer Lender::offer() const {
  if (!memory_) {
    return {};
  }
  return {static_cast<std::uint32_t>(::getpid()),
          static_cast<std::uint32_t>(memory_->descriptor())};
}

/// One that is free, of just this size: training sends the same few sizes over and over.
std::optional<Place> Lender::block_of(std::size_t size) {
  std::vector<Place>& blocks = blocks_[size];
  for (const Place& place : blocks) {
    if (!memory_->taken(place.block)) {
      return place;
    }
  }
  if (count_ == SharedMemory::kBlocks || size > SharedMemory::kBytes - end_ ||
      !provide(memory_->descriptor(), end_, size)) {
    return std::nullopt;
  }
  blocks.push_back({++count_, end_});
  end_ += size;
  return blocks.back();
}

std::optional<Place> Lender::lend(std::span<const std::byte> bytes) {
  if (!memory_ || bytes.size() < kTensorBytesMin || bytes.size() > kTensorBytesMax ||
      !memory_->joined()) {
    return std::nullopt;
  }
  const std::size_t size = (bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  const std::optional<Place> place = block_of(size);
  if (place) {
    memory_->take(place->block);
    std::memcpy(memory_->data() + place->offset, bytes.data(), bytes.size());
  }
  return place;
}

// -- the recipient ---------------------------------------------------------------------------------

std::optional<Borrower> Borrower::open(const MemoryOffer& offer) {
  if (offer.pid == 0) {
    return std::nullopt;
  }
  const std::string path = concat("/proc/", offer.pid, "/fd/", offer.descriptor);
  auto memory = SharedMemory::map(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memory) {
    return std::nullopt;
  }
  memory->join();
  return Borrower(std::move(memory));
}

Tensor Borrower::adopt(const Place& place, Shape shape, DType type) const {
  const std::size_t bytes = size_bytes(type) * static_cast<std::size_t>(shape.elements());
  if (place.block == 0 || place.block > SharedMemory::kBlocks || place.offset < kFlagsBytes ||
      place.offset % kAlignment != 0 || place.offset > SharedMemory::kBytes ||
      bytes > SharedMemory::kBytes - place.offset) {
    throw WireError("a header names a place in shared memory that does not exist");
  }
  auto let_go = [memory = memory_, block = place.block] {
    memory->give_back(block);
  };
  return {
      BufferPool::adopt({memory_->data() + place.offset, bytes}, std::move(let_go)), shape, type};
}

}  // namespace troupe
