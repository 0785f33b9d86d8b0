#include "comm/process_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/local_ranks.h"
#include "comm/rank_watch.h"
#include "device/errors.h"
#include "system/pages.h"
#include "system/unique_fd.h"

namespace ebb {
namespace {

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A part of the memory of a run, mapped into this process.
class Mapping {
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

// Only the first part of the file is mapped, which is that of the control block.
size_t control_bytes(uint32_t size) {
  return rounded_up(control_block_bytes(size), kHugePageBytes);
}

void grow(int memory, size_t bytes) {
  if (ftruncate(memory, static_cast<off_t>(bytes)) == 0) return;
  throw Error(fmt::format("cannot share {} of memory with other ranks: {}", format_bytes(bytes),
                          std::strerror(errno)));
}

ControlBlock& block_of(const Mapping& mapping) {
  return *reinterpret_cast<ControlBlock*>(mapping.data());
}

std::unique_ptr<Mapping> map_control_block(int memory) {
  uint32_t start[2] = {};  // ControlBlock::format and size
  static_assert(offsetof(ControlBlock, size) == 4);
  struct stat status = {};
  if (pread(memory, start, sizeof start, 0) != sizeof start || start[0] != kControlBlockFormat ||
      fstat(memory, &status) != 0 ||
      static_cast<size_t>(status.st_size) < control_bytes(start[1])) {
    throw ConfigError(fmt::format(
        "file descriptor {} is not the memory of ranks of this version of Ebb", memory));
  }
  return std::make_unique<Mapping>(memory, 0, control_bytes(start[1]));
}

class ProcessRanks final : public LocalRanks {
 public:
  ProcessRanks(UniqueFd memory, std::unique_ptr<Mapping> control, uint32_t rank,
               const ProcessRanksOptions& options)
      : LocalRanks(block_of(*control), rank, block_of(*control).size, options.timeout_s),
        memory_(std::move(memory)),
        end_(control_bytes(size())),
        control_(std::move(control)),
        watch_(block_of(*control_), rank, options.silence_s,
               [this](const std::string& text) { announce(text); }) {}

 private:
  // A rank makes the file large enough before it arrives at its next collective call, and the file
  // grows further only after that call. So no rank makes it smaller again.
  std::vector<std::byte*> share_with_all(size_t bytes) override {
    const std::vector<size_t> bytes_of = collect(Operation::Share, bytes);
    std::vector<size_t> offsets;
    size_t all_bytes = 0;
    for (const size_t wanted : bytes_of) {
      offsets.push_back(all_bytes);
      all_bytes += rounded_up(wanted, kHugePageBytes);
    }
    if (all_bytes == 0) return std::vector<std::byte*>(size(), control_->data());
    grow(memory_.get(), end_ + all_bytes);
    shared_.push_back(std::make_unique<Mapping>(memory_.get(), end_, end_ + all_bytes));
    end_ += all_bytes;
    std::vector<std::byte*> memory;
    for (const size_t offset : offsets) memory.push_back(shared_.back()->data() + offset);
    return memory;
  }

  const UniqueFd memory_;
  size_t end_;  // of the memory that is shared so far
  std::unique_ptr<Mapping> control_;
  std::vector<std::unique_ptr<Mapping>> shared_;
  RankWatch watch_;
};

}  // namespace

int create_rank_memory(uint32_t size) {
  EBB_CHECK(size >= 1, "a run has at least one rank");
  UniqueFd memory(memfd_create("ebb-ranks", 0));
  if (memory.get() < 0) {
    throw Error(fmt::format("cannot make memory for ranks: {}", std::strerror(errno)));
  }
  grow(memory.get(), control_bytes(size));
  const Mapping mapping(memory.get(), 0, control_bytes(size));
  ControlBlock& block = block_of(mapping);
  block.size = size;
  prepare_watched_slots(block);
  block.format = kControlBlockFormat;
  return memory.release();
}

std::unique_ptr<Ranks> join_ranks(int memory, uint32_t rank, const ProcessRanksOptions& options) {
  UniqueFd own(fcntl(memory, F_DUPFD_CLOEXEC, 0));
  std::unique_ptr<Mapping> control = map_control_block(own.get());
  const uint32_t size = block_of(*control).size;
  if (rank >= size) throw ConfigError(fmt::format("there is no rank {} of {}", rank, size));
  return std::make_unique<ProcessRanks>(std::move(own), std::move(control), rank, options);
}

void fail_ranks(int memory, std::string_view message) {
  const std::unique_ptr<Mapping> control = map_control_block(memory);
  announce_failure(block_of(*control), block_of(*control).size, message);
}

}  // namespace ebb
