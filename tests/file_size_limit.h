// Limits the size of written files, like a disk that is full.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace ebb::test {

/// Holds for this process and for those that it starts, until destroyed. A write beyond the limit
/// raises SIGXFSZ; where that signal is ignored, as by default here, the write fails.
class FileSizeLimit {
 public:
  using Handler = void (*)(int);

  explicit FileSizeLimit(rlim_t bytes, Handler handler = SIG_IGN)
      : handler_(std::signal(SIGXFSZ, handler)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  Handler handler_;
  rlimit before_ = {};
};

}  // namespace ebb::test
