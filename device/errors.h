// The exceptions of Ebb. Messages about options, sizes and the contents of files say what is
// allowed or what to do. A message names an option between backquotes, as in "lower
// `device_memory`"; the program `ebb` prints its flag instead (tools/option_flags.h). An IoError
// says what failed, the path and the error of the operating system. A LogicError of EBB_CHECK names
// the source line.
//
// An exception ends the run; expected outcomes are return values. All exceptions of this header
// derive from Error, so a caller that only reports errors catches one type. Plain values: several
// threads may read one exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ebb {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An allocation exceeds a budget or the memory of the machine. Sizes are bytes.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string kind, size_t requested, size_t used, size_t limit, std::string tag,
              std::string_view advice = {});
  std::string kind;  ///< "device", "host" or "pinned"
  size_t requested;
  size_t used;
  size_t limit;
  std::string tag;  ///< the purpose of the bytes
};

/// A device operation failed: a copy, a launch, a lost device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// The operating system refused a file operation.
class IoError : public Error {
 public:
  IoError(std::string_view doing, std::string path, int error_number);
  std::string path;
  int error_number;
};

/// The operating system refused to open or list an input, or to open a log or a trace.
class InputError : public IoError {
 public:
  using IoError::IoError;
};

/// The content of a file violates its format.
class FormatError : public Error {
 public:
  FormatError(std::string path, uint64_t offset, std::string_view what);
  std::string path;
  uint64_t offset;
};

/// A flag, a configuration, a shape or a path is invalid, or another run uses the file.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// No plan fits the budgets. The message names budgets with which a plan would fit, if there are
/// any.
class PlanError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The home is too small for all plans that were tried. `least_bytes` is the home of the smallest.
class HomeTooSmall : public PlanError {
 public:
  HomeTooSmall(const std::string& message, size_t least_bytes)
      : PlanError(message), least_bytes_(least_bytes) {}
  size_t least_bytes() const { return least_bytes_; }

 private:
  size_t least_bytes_;
};

/// A gradient, a loss or a logit is not finite, or there are no targets; the run cannot continue.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A contract between parts of the program is broken: a defect in Ebb or in the code that embeds
/// it.
class LogicError : public Error {
 public:
  using Error::Error;
};

/// The shapes or the types of tensors do not fit together. The message has the rule, all tensors
/// with their shapes and types, and the layer of the model (autograd/micro_batches.h), instead of
/// the source line.
class ShapeError : public LogicError {
 public:
  using LogicError::LogicError;
};

[[noreturn]] void throw_logic_error(const char* file, int line, const char* condition,
                                    std::string_view detail);

/// "64 MiB", "1.50 GiB", "37 B": for messages.
std::string format_bytes(size_t bytes);

}  // namespace ebb

/// Broken contract = LogicError. `detail` is anything convertible to std::string_view.
#define EBB_CHECK(condition, detail)                                                    \
  do {                                                                                  \
    if (!(condition)) ::ebb::throw_logic_error(__FILE__, __LINE__, #condition, detail); \
  } while (0)
