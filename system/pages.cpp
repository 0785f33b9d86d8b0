#include "system/pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "device/errors.h"
#include "system/cores.h"
#include "system/thread_team.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_write_range(void* data, long bytes);
#endif

namespace ebb {
namespace {

constexpr uint16_t kPoison = 0x7fa1;
constexpr size_t kTaskBytes = 8 * kHugePageBytes;  // what one task touches
constexpr size_t kTeamBytes = size_t{64}
                              << 20;  // for less, threads cost more than they save (assumed)

[[noreturn]] void throw_no_memory(size_t bytes, std::string_view tag) {
  const auto pages = sysconf(_SC_AVPHYS_PAGES);
  const size_t free_bytes = pages > 0 ? static_cast<size_t>(pages) * kPageBytes : 0;
  const std::string said = std::string("the operating system says: ") + std::strerror(errno);
  const std::string limit = address_limit_text();
  throw OutOfMemory("host", bytes, 0, free_bytes, std::string(tag),
                    limit.empty() ? said : said + "; " + limit);
}

}  // namespace

std::string address_limit_text() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "this process may use " + format_bytes(limit.rlim_cur) +
         " of addresses (ulimit -v, RLIMIT_AS): raise this limit";
}

std::byte* reserve_addresses(size_t bytes) {
  const size_t slack = bytes + kHugePageBytes;
  void* mapped =
      mmap(nullptr, slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw_no_memory(bytes, "addresses");
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t misaligned = reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  const size_t skip = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  if (skip > 0) munmap(begin, skip);
  munmap(begin + skip + bytes, slack - skip - bytes);
  return begin + skip;
}

void release_addresses(std::byte* data, size_t bytes) noexcept { munmap(data, bytes); }

void commit_memory(std::byte* data, size_t bytes, std::string_view tag) {
  if (mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) throw_no_memory(bytes, tag);
  if (bytes >= kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
}

void touch_pages(std::byte* data, size_t bytes) {
  const auto touch = [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kPageBytes) {
      *const_cast<volatile std::byte*>(data + at) = std::byte{0};
    }
  };
  if (bytes < kTeamBytes) return touch(0, bytes);
  ThreadTeam team(num_usable_cores());
  team.for_each(static_cast<int64_t>((bytes + kTaskBytes - 1) / kTaskBytes), [&](int64_t task) {
    const size_t begin = static_cast<size_t>(task) * kTaskBytes;
    touch(begin, std::min(begin + kTaskBytes, bytes));
  });
}

void fill_poison(std::byte* data, size_t bytes) {
  const size_t pairs = bytes / sizeof kPoison;
  for (size_t i = 0; i < pairs; ++i)
    std::memcpy(data + i * sizeof kPoison, &kPoison, sizeof kPoison);
  if (bytes % sizeof kPoison != 0) data[bytes - 1] = std::byte{0x7f};
}

void announce_write([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  __tsan_write_range(data, static_cast<long>(bytes));
#endif
}

}  // namespace ebb
