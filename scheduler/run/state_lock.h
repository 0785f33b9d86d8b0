// A read lock on the training state. A reader locks the whole state and releases it parameter by
// parameter; updates and other writers wait until the parameters that they change are released.
//
// Thread-safety: the reader's thread calls release() and close(). Any other thread may call the
// other functions.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "chunk/index.h"

namespace ebb {

class StateLock {
 public:
  /// Locks the state. A part is one parameter. An update of chunk c waits until
  /// `parts_of_chunk[c]` parts are released. Throws LogicError if the state is locked already.
  void open(std::vector<uint32_t> parts_of_chunk);
  /// Releases the first `num_parts` parts. Throws LogicError if the state is not locked, or if more
  /// parts were released before.
  void release(size_t num_parts);
  /// Releases all parts and ends the lock.
  void close() noexcept;

  bool is_locked();
  /// Waits until an update may change the chunk.
  void wait_for(ChunkIndex chunk);
  /// Whether wait_for() would return at once.
  bool is_free(ChunkIndex chunk);
  /// Waits until the state is not locked.
  void wait_for_all();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint32_t> parts_of_chunk_;
  size_t num_released_ = 0;
  bool is_locked_ = false;
};

}  // namespace ebb
