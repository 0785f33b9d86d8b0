#include "tools/rank_agreement.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "device/errors.h"
#include "io/input_file.h"
#include "tools/rank_processes.h"
#include "tools/resume.h"
#include "tools/training_run.h"

namespace ebb {
namespace {

// Each rank may have its own. The data and the device are compared by what they are, not by name.
constexpr std::string_view kOfEachRank[] = {
    "device-memory", "host-memory", "pinned", "threads",   "link",        "log",
    "trace",         "data",        "labels", "eval-data", "eval-labels", "device"};

uint64_t hash_of_text(std::string_view text) { return XXH64(text.data(), text.size(), 0); }

std::string data_text(const RunData& data) {
  const LabelFile* const labels = data.annotations.labels.get();
  std::string text = fmt::format("of {} tokens with hash {:016x}", data.tokens->num_tokens(),
                                 data.tokens->fingerprint());
  if (labels != nullptr)
    text += fmt::format(" and labels with hash {:016x}", labels->fingerprint());
  return text;
}

/// Names and texts, each with a 0 behind it.
std::string joined_text(const RankDescription& description) {
  std::string text;
  for (const auto& [name, value] : description) text += name + '\0' + value + '\0';
  return text;
}

RankDescription description_of(std::string_view text) {
  const auto take = [&text] {
    const size_t end = text.find('\0');
    const std::string part(text.substr(0, end));
    text.remove_prefix(end + 1);
    return part;
  };
  RankDescription description;
  while (!text.empty()) {
    std::string name = take();
    description[std::move(name)] = take();
  }
  return description;
}

}  // namespace

RankDescription describe_rank(const TrainRequest& request, const TrainSetup& setup) {
  const TrainOptions& options = request.options;
  RankDescription description;
  for (const FlagValue& flag : resolved_config(request.given, options, setup)) {
    if (std::ranges::find(kOfEachRank, flag.name) != std::end(kOfEachRank)) continue;
    description["--" + flag.name] = fmt::format("{}", fmt::join(flag.values, " "));
  }
  description["--groups"] = fmt::to_string(options.groups.value_or(options.gradient_accumulation));
  description["--group-dtype"] = name_of(options.group_dtype);
  description["--dry-run"] = options.dry_run ? "true" : "false";
  if (request.resumed) description["--resume"] = request.resumed->checkpoint;
  description["data"] = data_text(setup.data);
  if (setup.eval_data) description["evaluation data"] = data_text(*setup.eval_data);
  description["arithmetic"] = "of " + written_by(options, setup);
  if (setup.device.profile.kind == DeviceKind::Cuda) {
    description["GPU"] = probe_cuda().devices.at(static_cast<size_t>(setup.device.cuda_index));
  }
  description["program"] = fmt::format(
      "with hash {:016x}", hash_of_text(read_input_file("/proc/self/exe", "program", UINT64_MAX)));
  return description;
}

std::string first_difference(std::span<const RankDescription> ranks) {
  const auto text_in = [](const RankDescription& rank, const std::string& name) {
    const auto found = rank.find(name);
    return found == rank.end() ? "no " + name : fmt::format("{} {}", name, found->second);
  };
  for (size_t r = 1; r < ranks.size(); ++r) {
    RankDescription names = ranks[0];
    names.insert(ranks[r].begin(), ranks[r].end());
    for (const auto& [name, unused] : names) {
      const std::string first = text_in(ranks[0], name), other = text_in(ranks[r], name);
      if (first != other) return fmt::format("rank {} has {}, rank 0 has {}", r, other, first);
    }
  }
  return {};
}

void check_ranks_agree(Ranks& ranks, const RankDescription& mine) {
  const std::string text = joined_text(mine);
  const std::vector<uint64_t> hashes = all_of_ranks(ranks, hash_of_text(text));
  if (std::ranges::count(hashes, hashes[0]) == std::ssize(hashes)) return;
  std::vector<RankDescription> all;
  for (const std::string& of_rank : texts_of_ranks(&ranks, text)) {
    all.push_back(description_of(of_rank));
  }
  throw ConfigError(
      fmt::format("{}: all ranks of a run need the same options, data, program and arithmetic",
                  first_difference(all)));
}

}  // namespace ebb
