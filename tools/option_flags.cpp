#include "tools/option_flags.h"

#include <algorithm>
#include <iterator>

namespace ebb {
namespace {

struct OptionFlag {
  std::string_view option, flag;
};
constexpr OptionFlag kFlags[] = {
    {"activations", "--activations"},
    {"arithmetic", "--arithmetic"},
    {"attention", "--attention"},
    {"chunk_bytes", "--chunk-size"},
    {"device", "--device"},
    {"device_memory", "--device-memory"},
    {"dropout", "--dropout"},
    {"dtype", "--dtype"},
    {"evaluation_batches", "--eval-batches"},
    {"gradient_accumulation", "--gradient-accumulation"},
    {"gradient_dtype", "--gradient-dtype"},
    {"group_dtype", "--group-dtype"},
    {"groups", "--groups"},
    {"host_memory", "--host-memory"},
    {"learning_rate", "--lr"},
    {"link", "--link"},
    {"max_grad_norm", "--clip"},
    {"max_tokens", "--max-tokens"},
    {"micro_batch_order", "--micro-batch-order"},
    {"micro_batch_size", "--micro-batch-size"},
    {"model", "--model"},
    {"network", "--network"},
    {"pinned_memory", "--pinned"},
    {"preset", "--preset"},
    {"rank_transport", "--rank-transport"},
    {"recompute", "--recompute"},
    {"save_dtype", "--save-dtype"},
    {"seq_length", "--seq-length"},
    {"token_type", "--token-type"},
};

}  // namespace

std::string with_flags(std::string_view message) {
  std::string text;
  for (;;) {
    const size_t open = message.find('`');
    const size_t close = open == message.npos ? open : message.find('`', open + 1);
    if (close == message.npos) return text.append(message);
    const std::string_view name = message.substr(open + 1, close - open - 1);
    const auto flag = std::ranges::find(kFlags, name, &OptionFlag::option);
    const bool is_option = flag != std::end(kFlags);
    // A backquote that closes no option may open the next one, as in: a ` alone, then `dtype`.
    text.append(message.substr(0, is_option ? open : close));
    if (is_option) text.append(flag->flag);
    message.remove_prefix(is_option ? close + 1 : close);
  }
}

}  // namespace ebb
