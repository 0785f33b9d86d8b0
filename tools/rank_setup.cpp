#include "tools/rank_setup.h"

#include <chrono>
#include <exception>
#include <utility>

#include "tools/advice.h"
#include "tools/rank_agreement.h"
#include "tools/rank_cores.h"
#include "tools/text_data.h"

namespace ebb {

int run_on_ranks(const TrainOptions& options, const std::string& command,
                 const std::vector<std::string>& arguments,
                 const std::function<int(const RankProcesses&)>& work) {
  std::vector<std::string> words = {command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto timeout_s = static_cast<double>(options.rank_timeout_s);
  RankProcesses processes(static_cast<uint32_t>(options.ranks),
                          static_cast<uint32_t>(options.devices.size()), words,
                          {.timeout_s = timeout_s,
                           .silence_s = timeout_s / 3,
                           .transport = options.rank_transport,
                           .network_bytes_per_s = options.network_bytes_per_s});
  try {
    return work(processes);
  } catch (const std::exception& error) {
    processes.fail(error.what());
    throw;
  }
}

void take_place(TrainOptions& options, const RankProcesses& processes) {
  options.place = processes.place();
  if (Ranks* const ranks = processes.ranks()) options.ranks_on_cores = take_cores(*ranks);
}

Signals watch_signals(const RankProcesses& processes,
                      std::function<void(const char* name)> on_first) {
  return Signals(std::move(on_first), std::chrono::seconds(1),
                 [ranks = processes.ranks()] { return ranks != nullptr && ranks->has_failed(); });
}

uint8_t signal_of_ranks(const RankProcesses& processes, const Signals& signals) {
  return greatest_of_ranks(processes.ranks(), static_cast<uint8_t>(signals.pending()));
}

std::optional<TrainSetup> set_up_ranks(TrainRequest& request, const RankProcesses& processes,
                                       const Signals& signals) {
  Ranks* const ranks = processes.ranks();
  const auto tokenize = [&] {
    naming_origin(request.resumed, [&] {
      return tokenize_text(request.options, [&signals] { return signals.pending() != 0; });
    });
  };
  on_first_rank(ranks, tokenize);
  if (signal_of_ranks(processes, signals) != 0) return std::nullopt;
  if (!processes.is_first()) tokenize();  // finds the tokens of rank 0
  if (signal_of_ranks(processes, signals) != 0) return std::nullopt;
  std::optional<TrainSetup> setup = naming_origin(request.resumed, [&] {
    std::optional<TrainSetup> made = set_up(request.options, request.resumed.has_value());
    made->ranks = ranks;
    if (ranks != nullptr) check_ranks_agree(*ranks, describe_rank(request, *made));
    plan_or_advise(request.options, *made);
    return made;
  });
  if (signal_of_ranks(processes, signals) != 0) return std::nullopt;
  return setup;
}

}  // namespace ebb
