// Shared parts of the kernel tests: the device under test, arrays between canary bytes, and the
// comparison with fp64.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/arithmetic.h"
#include "device/kernels.h"

namespace ebb::test {

using Values = std::vector<double>;

/// Memory that both the host and the device under test can read and write.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  std::byte* begin() const { return data_; }
  std::byte* end() const { return data_ + bytes_; }
  size_t size() const { return bytes_; }
  bool empty() const { return data_ == nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Memory between canary bytes. It contains NaN patterns until it is written.
class Guarded {
 public:
  /// The memory begins `shift` bytes after an address that is a multiple of 16 bytes.
  explicit Guarded(size_t bytes, size_t shift = 0);
  ~Guarded();  // fails the test if a canary changed
  Guarded(Guarded&&) = default;
  std::byte* data() { return memory_.begin() + bytes_before_; }
  size_t bytes() const { return memory_.size() - bytes_before_ - kCanaryBytes; }
  bool intact() const;

 private:
  static constexpr size_t kCanaryBytes = 64;
  size_t bytes_before_;
  SharedMemory memory_;
};

/// A stream that runs nothing and keeps the cost of the last kernel, as on a simulated device.
class CountingStream final : public Stream {
 public:
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void submit(const Cost& cost, HostFunction) override { last_cost = cost; }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }

  Cost last_cost;
};

/// The device that this program tests: the host, a GPU, or the emulated GPU. A kernel has finished
/// when submit() returns. submit() throws the errors that the device reports.
class Harness {
 public:
  /// The number of threads and the arithmetic apply to the host.
  explicit Harness(int num_threads = 2, Arithmetic arithmetic = Arithmetic::Fp32);
  ~Harness();
  Harness(Harness&&) = delete;

  struct Parts;
  class CurrentStream {
   public:
    operator Stream&() const;  // NOLINT: passed where kernels take streams

   private:
    friend class Harness;
    Parts* parts_ = nullptr;
  };
  /// Waits, in its destructor, for the call that was made through it.
  class Call {
   public:
    explicit Call(Parts* parts) : parts_(parts) {}
    ~Call() noexcept(false);
    Call(const Call&) = delete;
    Kernels* operator->() const;

   private:
    Parts* const parts_;
  };
  class CurrentKernels {
   public:
    Call operator->() const { return Call(parts_); }
    Kernels& operator*() const;

   private:
    friend class Harness;
    Parts* parts_ = nullptr;
  };

  static bool can_compute(Arithmetic arithmetic);
  /// Whether a library multiplies matrices on this device. It may round a product to 16 bits before
  /// it adds a bias or the old value (device/kernels/linear.h).
  static bool has_product_library();

 private:
  const std::unique_ptr<Parts> parts_;

 public:
  CurrentStream stream;
  CurrentKernels kernels;
};

/// An array in guarded memory. The values are rounded to the type.
class Array {
 public:
  Array(DType dtype, Shape shape);
  Array(DType dtype, Shape shape, const Values& values);

  const Tensor& tensor() const { return tensor_; }
  operator Tensor() const {
    return tensor_;
  }  // NOLINT: arrays are passed where kernels take tensors
  Values values() const;
  std::vector<std::byte> raw() const;
  bool intact() const { return memory_.intact(); }

 private:
  Guarded memory_;
  Tensor tensor_;
};

/// New arrays begin at an address that is a multiple of 16 bytes, but one element later during the
/// lifetime of such an object.
class MisalignedArrays {
 public:
  MisalignedArrays();
  ~MisalignedArrays();
  MisalignedArrays(const MisalignedArrays&) = delete;
};

/// Uniform in [-range, range]. The same seed gives the same values.
Values random_values(int64_t n, uint64_t seed, double range = 1.0);
/// random_values, rounded to a type.
Array random_array(DType dtype, Shape shape, uint64_t seed, double range = 1.0);
Array int_array(const std::vector<int32_t>& values);
std::vector<int32_t> random_indices(int64_t n, int64_t limit, uint64_t seed);

/// Half a unit in the last place of a value of this type.
double half_unit(double value, DType dtype);

/// Checks that |got - want| <= relative * scale + half a unit in the last place of `dtype` for each
/// element. `scale` has an entry for each element: the sum of the absolute values of its terms.
/// `rounded_before` has the part of each element that may be rounded to `dtype` before the other
/// part is added; empty: none.
testing::AssertionResult close(const Values& got, const Values& want, const Values& scale,
                               double relative, DType dtype, const Values& rounded_before = {});

inline const char* text(Write write) { return write == Write::Store ? "store" : "add"; }

}  // namespace ebb::test
