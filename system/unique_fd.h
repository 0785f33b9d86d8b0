// The owner of a file descriptor: closes it when it is destroyed.
//
// Thread-safety: as a plain value.
#pragma once

#include <unistd.h>

#include <utility>

namespace ebb {

class UniqueFd {
 public:
  /// `fd` may be negative: there is no file.
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace ebb
