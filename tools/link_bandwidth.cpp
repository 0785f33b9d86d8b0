#include <algorithm>
#include <memory>

#include "device/device.h"
#include "tools/machine.h"

namespace ebb {
namespace {

constexpr int kRounds = 4;

/// One direction of the link: pinned memory, device memory, and a stream for copies between them.
struct Direction {
  CopyKind kind;
  Buffer home, there;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> begin, end;

  Direction(Device& device, size_t bytes, CopyKind copy_kind)
      : kind(copy_kind),
        home(device.allocate(MemoryKind::Pinned, bytes, "measurement")),
        there(device.allocate(MemoryKind::Device, bytes, "measurement")),
        stream(device.create_stream(kind == CopyKind::Load ? StreamKind::Load : StreamKind::Store)),
        begin(device.create_event()),
        end(device.create_event()) {}

  void submit() {
    Buffer& to = kind == CopyKind::Load ? there : home;
    const Buffer& from = kind == CopyKind::Load ? home : there;
    stream->record(*begin);
    stream->copy(to.data(), from.data(), to.bytes(), kind);
    stream->record(*end);
  }
  /// Bytes a second of the last submitted copies.
  double rate() {
    stream->synchronize();
    return static_cast<double>(home.bytes()) / (end->time_s() - begin->time_s());
  }
};

}  // namespace

LinkBandwidth measure_link(Device& device, size_t bytes) {
  Direction up(device, bytes, CopyKind::Load), down(device, bytes, CopyKind::Store);
  LinkBandwidth best;
  for (int round = 0; round < kRounds; ++round) {
    up.submit();
    best.load_bytes_per_s = std::max(best.load_bytes_per_s, up.rate());
    down.submit();
    best.store_bytes_per_s = std::max(best.store_bytes_per_s, down.rate());
    const double begin_s = device.now_s();
    up.submit();
    down.submit();
    (void)up.rate();
    (void)down.rate();
    const double taken_s = device.now_s() - begin_s;
    best.both_bytes_per_s =
        std::max(best.both_bytes_per_s, 2 * static_cast<double>(bytes) / taken_s);
  }
  return best;
}

}  // namespace ebb
