// Between a loan of the state and those who would change it: they wait here.
//
// Thread-safety: give_back() and close() from the borrower's thread, the rest from any other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ebb {

class StateLock {
 public:
  /// Lends. `parts_of_chunk[c]`: an update of chunk c waits until so many parts are given back.
  /// LogicError where something is lent already.
  void open(std::vector<uint32_t> parts_of_chunk);
  void give_back(size_t num_parts);
  /// The loan ends.
  void close() noexcept;

  bool is_locked();
  void wait_for(uint32_t chunk);
  /// Would wait_for() return at once?
  bool is_free(uint32_t chunk);
  void wait_for_all();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint32_t> parts_of_chunk_;
  size_t num_given_back_ = 0;
  bool is_locked_ = false;
};

}  // namespace ebb
