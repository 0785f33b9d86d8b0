// Which CUDA calls block while another thread blocks inside CUDA?
//
//   queue_probe          ends after about 15 s, and after at most 60 s
//
// Ebb's streams wait for words of pinned memory that host threads write (cuda/cuda_event.h). If a
// call of such a thread blocked until the word is written, the program would hang. The probe makes
// a stream wait for a word. A first thread then blocks in one of two calls: a launch that finds the
// queue of the stream full, or cudaStreamSynchronize(). While it blocks, every call of a list is
// made on a thread of its own. After 2 s the probe prints how long each call took, or BLOCKED, and
// writes the word. Before, the probe counts how many entries the queue of a waiting stream holds.
// Exit code: 0, or 1 if a CUDA call fails or the probe itself hangs.
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <string>
#include <thread>

namespace {

constexpr size_t kBlockBytes = size_t{64} << 20;
constexpr int kLaunches = 6000;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}
void check(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  std::printf("%s: CUDA driver error %d\n", what, static_cast<int>(status));
  std::exit(1);
}

__global__ void do_nothing() {}

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}
cudaEvent_t make_event(unsigned int flags = cudaEventBlockingSync) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "making an event");
  return event;
}

/// A word of pinned memory for which a stream waits, and 64 MiB of pinned memory beside it.
struct PinnedMemory {
  char* data = nullptr;
  PinnedMemory() {
    check(cudaHostAlloc(&data, kBlockBytes + 4096, cudaHostAllocPortable), "pinned memory");
  }
  volatile uint32_t* word() const {
    return reinterpret_cast<volatile uint32_t*>(data + kBlockBytes);
  }
};

/// Two blocks of device memory, and addresses at which they can be mapped.
struct MappedMemory {
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle blocks[2] = {};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

  MappedMemory() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    for (auto& block : blocks) check(cuMemCreate(&block, kBlockBytes, &properties, 0), "a block");
    check(cuMemAddressReserve(&range, 4 * kBlockBytes, 0, 0, 0), "addresses");
    map(0, 0);
    map(1, 1);
  }
  void map(int place, int block) const {
    const CUdeviceptr address = range + place * kBlockBytes;
    check(cuMemMap(address, kBlockBytes, 0, blocks[block], 0), "mapping");
    check(cuMemSetAccess(address, kBlockBytes, &access, 1), "access");
  }
  void unmap(int place) const {
    check(cuMemUnmap(range + place * kBlockBytes, kBlockBytes), "unmapping");
  }
};

/// Makes calls on threads of their own, and measures how long they take.
class Calls {
 public:
  void make(const char* name, std::function<void()> call) {
    Call& made = calls_.emplace_back(name);
    threads_.emplace_back([&made, call = std::move(call)] {
      check(cudaSetDevice(0), "cudaSetDevice");
      const auto begin = std::chrono::steady_clock::now();
      call();
      made.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    usleep(100000);
  }
  void print() const {
    for (const Call& call : calls_) {
      const double seconds = call.seconds;
      if (seconds < 0) {
        std::printf("  BLOCKED      %s\n", call.name.c_str());
      } else {
        std::printf("  %8.1f us  %s\n", 1e6 * seconds, call.name.c_str());
      }
    }
    std::fflush(stdout);
  }
  ~Calls() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  struct Call {
    explicit Call(const char* name) : name(name) {}
    const std::string name;
    std::atomic<double> seconds{-1};
  };
  std::list<Call> calls_;
  std::list<std::thread> threads_;
};

/// `block` blocks until the word is written. It gets the stream that waits for the word.
void probe(const char* title, const PinnedMemory& pinned, const MappedMemory& mapped,
           const std::function<void(cudaStream_t)>& block) {
  const cudaStream_t waiting = make_stream(), load = make_stream(), other = make_stream();
  const cudaEvent_t done = make_event(), before = make_event(), later = make_event();
  const auto address = reinterpret_cast<CUdeviceptr>(pinned.word());
  *pinned.word() = 0;
  do_nothing<<<1, 1, 0, other>>>();
  check(cudaEventRecord(done, other), "an event");
  check(cudaEventRecord(before, waiting), "an event");
  check(cudaDeviceSynchronize(), "waiting for the device");
  check(cuStreamWaitValue32(waiting, address, 1, CU_STREAM_WAIT_VALUE_GEQ), "waiting for a word");

  std::thread blocked([&] { block(waiting); });
  usleep(1000000);
  {
    Calls calls;
    calls.make("cudaEventQuery", [&] { (void)cudaEventQuery(done); });
    calls.make("cudaEventSynchronize", [&] { (void)cudaEventSynchronize(done); });
    calls.make("cudaEventSynchronize, an event of the waiting stream",
               [&] { (void)cudaEventSynchronize(before); });
    calls.make("cudaMemcpyAsync", [&] {
      (void)cudaMemcpyAsync(reinterpret_cast<void*>(mapped.range), pinned.data, kBlockBytes,
                            cudaMemcpyHostToDevice, load);
    });
    calls.make("cudaEventRecord", [&] { (void)cudaEventRecord(later, load); });
    calls.make("cudaStreamWaitEvent", [&] { (void)cudaStreamWaitEvent(other, done, 0); });
    calls.make("a launch", [&] { do_nothing<<<1, 1, 0, other>>>(); });
    calls.make("cuStreamWaitValue32",
               [&] { (void)cuStreamWaitValue32(other, address, 0, CU_STREAM_WAIT_VALUE_GEQ); });
    calls.make("cuMemMap and cuMemSetAccess", [&] { mapped.map(2, 1); });
    calls.make("cuMemUnmap", [&] { mapped.unmap(2); });
    calls.make("cudaEventCreate", [] { (void)make_event(); });
    calls.make("cudaEventQuery again", [&] { (void)cudaEventQuery(done); });
    usleep(1000000);
    std::printf("%s\n", title);
    calls.print();
    *pinned.word() = 1;
  }
  blocked.join();
  check(cudaDeviceSynchronize(), "waiting for the device");
}

/// Prints how many entries `add` can put into the queue of a stream that waits for a word.
void count(const char* what, const PinnedMemory& pinned,
           const std::function<void(cudaStream_t)>& add) {
  const cudaStream_t waiting = make_stream();
  add(waiting);  // loads code now: while a stream waits, that may block
  check(cudaDeviceSynchronize(), "waiting for the device");
  const auto address = reinterpret_cast<CUdeviceptr>(pinned.word());
  *pinned.word() = 0;
  check(cuStreamWaitValue32(waiting, address, 1, CU_STREAM_WAIT_VALUE_GEQ), "waiting for a word");
  std::atomic<int> added = 0;
  std::thread adding([&] {
    for (; added < kLaunches; ++added) add(waiting);
  });
  usleep(500000);
  std::printf("%6d  %s\n", added.load(), what);
  std::fflush(stdout);
  *pinned.word() = 1;
  adding.join();
  check(cudaDeviceSynchronize(), "waiting for the device");
}

}  // namespace

int main() {
  std::thread([] {
    sleep(60);
    std::printf("the probe hangs\n");
    std::fflush(stdout);
    _exit(1);
  }).detach();
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaFree(nullptr), "starting CUDA");
  const PinnedMemory pinned;
  const MappedMemory mapped;
  const auto address = reinterpret_cast<CUdeviceptr>(pinned.word());
  const cudaEvent_t plain = make_event(cudaEventDefault), blocking = make_event();
  const cudaEvent_t untimed = make_event(cudaEventDisableTiming);
  std::printf("entries that fit into the queue of a stream that waits for a word\n");
  count("launches", pinned, [](cudaStream_t stream) { do_nothing<<<1, 1, 0, stream>>>(); });
  count("records of an event", pinned,
        [&](cudaStream_t stream) { (void)cudaEventRecord(plain, stream); });
  count("records of an event with cudaEventDisableTiming", pinned,
        [&](cudaStream_t stream) { (void)cudaEventRecord(untimed, stream); });
  count("records of an event with cudaEventBlockingSync", pinned,
        [&](cudaStream_t stream) { (void)cudaEventRecord(blocking, stream); });
  count("waits for a word", pinned, [&](cudaStream_t stream) {
    (void)cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
  });
  count("pairs of a wait for a word and a record of an event", pinned, [&](cudaStream_t stream) {
    (void)cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    (void)cudaEventRecord(plain, stream);
  });
  count("stores of 64 KiB", pinned, [&](cudaStream_t stream) {
    (void)cudaMemcpyAsync(pinned.data, reinterpret_cast<void*>(mapped.range), size_t{64} << 10,
                          cudaMemcpyDeviceToHost, stream);
  });
  count("waits for an event, stores and records of an event", pinned, [&](cudaStream_t stream) {
    (void)cudaStreamWaitEvent(stream, blocking, 0);
    (void)cudaMemcpyAsync(pinned.data, reinterpret_cast<void*>(mapped.range), size_t{64} << 10,
                          cudaMemcpyDeviceToHost, stream);
    (void)cudaEventRecord(plain, stream);
  });
  probe("while a launch blocks because the queue of its stream is full", pinned, mapped,
        [](cudaStream_t stream) {
          for (int i = 0; i < kLaunches; ++i) do_nothing<<<1, 1, 0, stream>>>();
        });
  probe("while cudaStreamSynchronize() waits for the stream", pinned, mapped,
        [](cudaStream_t stream) { (void)cudaStreamSynchronize(stream); });
  return 0;
}
