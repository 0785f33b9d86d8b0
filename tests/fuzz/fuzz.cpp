#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <system_error>
#include <typeinfo>

namespace ebb::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::clock_t kMostProcessorTime = CLOCKS_PER_SEC;

/// A folder in /dev/shm, or in $TMPDIR where the system has no /dev/shm. The destructor removes it.
class Folder {
 public:
  Folder() {
    const fs::path parent =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
    path_ = (parent / "ebb-fuzz-XXXXXX").string();
    require(::mkdtemp(path_.data()) != nullptr, "a folder for the inputs can be made");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

[[noreturn]] void fail(std::string_view what) {
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace

void require(bool holds, std::string_view property) {
  if (!holds) fail(property);
}

std::string folder() {
  static const Folder folder;
  return folder.path();
}

std::string write_file(const std::string& name, Bytes content) {
  const std::string path = folder() + "/" + name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(file >= 0, "the file of an input can be opened");
  const ssize_t written = ::write(file, content.data(), content.size());
  ::close(file);
  require(written == static_cast<ssize_t>(content.size()), "the file of an input can be written");
  return path;
}

}  // namespace ebb::fuzz

/// The entry point of libFuzzer and of mutations.cpp.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ebb::fuzz;
  const std::clock_t start = std::clock();
  try {
    test_input(std::as_bytes(std::span(data, size)));
  } catch (const std::exception& error) {
    fail(std::string("an exception that parsers do not promise: ") + typeid(error).name() + ": " +
         error.what());
  }
  require(std::clock() - start <= kMostProcessorTime, "an input takes at most a second");
  return 0;
}
