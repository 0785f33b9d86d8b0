#include "comm/rank_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/rank_watch.h"
#include "device/errors.h"
#include "system/pages.h"

namespace ebb {
namespace {

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Only the first part of the file is mapped, which is that of the control block.
size_t control_bytes(uint32_t size) {
  return rounded_up(control_block_bytes(size), kHugePageBytes);
}

void grow(int memory, size_t bytes) {
  if (ftruncate(memory, static_cast<off_t>(bytes)) == 0) return;
  throw Error(fmt::format("cannot share {} of memory with other ranks: {}", format_bytes(bytes),
                          std::strerror(errno)));
}

/// The number of ranks. Throws ConfigError if the file is not the memory of a run.
uint32_t size_in(int memory) {
  uint32_t start[2] = {};  // ControlBlock::format and size
  static_assert(offsetof(ControlBlock, size) == 4);
  struct stat status = {};
  if (pread(memory, start, sizeof start, 0) != sizeof start || start[0] != kControlBlockFormat ||
      fstat(memory, &status) != 0 ||
      static_cast<size_t>(status.st_size) < control_bytes(start[1])) {
    throw ConfigError(fmt::format(
        "file descriptor {} is not the memory of ranks of this version of Ebb", memory));
  }
  return start[1];
}

}  // namespace

/// A part of the memory of a run, mapped into this process.
class RankMemory::Mapping {
 public:
  /// REQUIRES: begin and end are multiples of kHugePageBytes, and the file is large enough.
  Mapping(int memory, size_t begin, size_t end)
      : bytes_(end - begin), data_(reserve_addresses(bytes_)) {
    if (mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
             static_cast<off_t>(begin)) == MAP_FAILED) {
      const int error = errno;
      release_addresses(data_, bytes_);
      throw Error(fmt::format("cannot map {} of memory that ranks share: {}", format_bytes(bytes_),
                              std::strerror(error)));
    }
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Mapping() { release_addresses(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }

 private:
  const size_t bytes_;
  std::byte* const data_;
};

RankMemory::RankMemory(int memory)
    : memory_(fcntl(memory, F_DUPFD_CLOEXEC, 0)), end_(control_bytes(size_in(memory))) {
  control_ = std::make_unique<Mapping>(memory_.get(), 0, end_);
}

RankMemory::~RankMemory() = default;

ControlBlock& RankMemory::block() const {
  return *reinterpret_cast<ControlBlock*>(control_->data());
}

// A rank makes the file large enough before it arrives at its next collective call, and the file
// grows further only after that call. So no rank makes it smaller again.
std::vector<std::byte*> RankMemory::add(std::span<const size_t> sizes) {
  std::vector<size_t> offsets;
  size_t all_bytes = 0;
  for (const size_t wanted : sizes) {
    offsets.push_back(all_bytes);
    all_bytes += rounded_up(wanted, kHugePageBytes);
  }
  if (all_bytes == 0) return std::vector<std::byte*>(sizes.size(), control_->data());
  grow(memory_.get(), end_ + all_bytes);
  added_.push_back(std::make_unique<Mapping>(memory_.get(), end_, end_ + all_bytes));
  end_ += all_bytes;
  std::vector<std::byte*> memory;
  for (const size_t offset : offsets) memory.push_back(added_.back()->data() + offset);
  return memory;
}

int create_rank_memory(uint32_t size, uint32_t ranks_per_machine) {
  EBB_CHECK(size >= 1, "a run has at least one rank");
  UniqueFd memory(memfd_create("ebb-ranks", 0));
  if (memory.get() < 0) {
    throw Error(fmt::format("cannot make memory for ranks: {}", std::strerror(errno)));
  }
  grow(memory.get(), control_bytes(size));
  const ControlBlock start = {.format = kControlBlockFormat,
                              .size = size,
                              .ranks_per_machine = ranks_per_machine,
                              .failed = 0};
  if (pwrite(memory.get(), &start, sizeof start, 0) != sizeof start) {
    throw Error(fmt::format("cannot write memory for ranks: {}", std::strerror(errno)));
  }
  prepare_watched_slots(RankMemory(memory.get()).block());
  return memory.release();
}

}  // namespace ebb
