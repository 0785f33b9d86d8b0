// How fast is a GPU, and which share of its speed does Ebb reach?
//
//   bench_gpu copy|map|gemm|attention|memory|step|all [--small] [--preset NAME]
//
// copy       pinned copies each way alone, together, and while the CPU runs AdamW; time of pinning
// map        mapping a block, idle and while kernels run; whether it stalls them; host-signalled
//            events
// gemm       TFLOP/s of linear layers of GPT and Llama shapes: forward, gradients
// attention  TFLOP/s, forward and backward, 1k to 32k tokens
// memory     GB/s of norms, GELU, SwiGLU, the loss, the finished gradient and AdamW
// step       step time, model-FLOP utilisation and share of the bound; resident and under a budget
//
// Every result is verified. Without a GPU it says "no GPU: ..." and ends with 0, or, with
// EBB_REQUIRE_CUDA=1 in the environment, with 1. --small: sizes for an emulated GPU.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "bench/exit_code.h"
#include "bench/gpu/gpu.h"
#include "device/errors.h"

namespace ebb::bench {
namespace {

using Question = void (*)(const Options&);

const std::map<std::string_view, Question> kQuestions = {
    {"copy", measure_copies},         {"map", measure_mapping},   {"gemm", measure_products},
    {"attention", measure_attention}, {"memory", measure_memory}, {"step", measure_steps}};

struct Arguments {
  std::string question;
  Options options;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--small") {
      arguments.options.small = true;
    } else if (word == "--preset" && i + 1 < argc) {
      arguments.options.preset = argv[++i];
    } else if (arguments.question.empty() && (word == "all" || kQuestions.contains(word))) {
      arguments.question = word;
    } else {
      arguments.question.clear();
      break;
    }
  }
  if (arguments.question.empty()) {
    throw ConfigError(
        "usage: bench_gpu copy|map|gemm|attention|memory|step|all [--small] [--preset NAME]");
  }
  return arguments;
}

int run(const Arguments& arguments) {
  const CudaProbe probe = probe_cuda();
  if (probe.devices.empty()) {
    fmt::print("no GPU: {}\n", probe.note);
    const char* required = std::getenv("EBB_REQUIRE_CUDA");
    return required != nullptr && std::string_view(required) == "1" ? 1 : 0;
  }
  fmt::print("{}\n", probe.devices.front());
  for (const auto& [name, question] : kQuestions) {
    if (arguments.question != "all" && arguments.question != name) continue;
    fmt::print("\n{}\n", name);
    question(arguments.options);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_gpu",
                                  [&] { return ebb::bench::run(ebb::bench::parse(argc, argv)); });
}
