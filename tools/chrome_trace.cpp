#include "tools/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "device/errors.h"
#include "io/json_text.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/plan/traffic.h"
#include "tools/rank_processes.h"
#include "tools/residency_intervals.h"
#include "tools/step_names.h"

namespace ebb {
namespace {

std::string thread_name(uint32_t rank, int id, std::string_view name) {
  return fmt::format(
      R"(,{{"ph":"M","name":"thread_name","pid":{0},"tid":{1},"args":{{"name":"{2}"}}}},)"
      R"({{"ph":"M","name":"thread_sort_index","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})"
      "\n",
      rank, id, name);
}

std::string thread_names(uint32_t rank) {
  std::string text;
  for (const StreamInfo& info : kStreams) {
    text += thread_name(rank, static_cast<int>(info.kind), info.name);
  }
  return text + thread_name(rank, kNumStreamKinds, "steps");
}

/// The process of a rank other than the first, which run_event() names.
std::string process_name(uint32_t rank) {
  return fmt::format(
      R"(,{{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
}

std::string run_event(const std::string& run_id) {
  return fmt::format(
      R"({{"ph":"M","name":"process_name","pid":0,"args":{{"name":"ebb","run_id":"{}"}}}})",
      run_id);
}

using OpEvent = ChromeTrace::OpEvent;

nlohmann::ordered_json details_of(OpIndex i, const Preparation& prepared, const StepNames& names,
                                  MoveReason reason) {
  const Op& op = prepared.plan.ops[i];
  nlohmann::ordered_json json = {{"op", uint32_t{i}}};
  if (op.kind == OpKind::Move) {
    json["bytes"] = bytes_of_move(op, *prepared.layout, prepared.division);
    json["reason"] = name_of(reason);
  }
  if (op.kind == OpKind::Call || op.kind == OpKind::Norm) return json;
  const std::string parameters = names.parameters_of(op.chunk);
  if (!parameters.empty()) json["parameters"] = parameters;
  return json;
}

std::vector<OpEvent> make_op_events(const Preparation& prepared) {
  const StepNames names(prepared.plan, prepared.trace, *prepared.layout);
  const std::vector<MoveReason> reasons = reasons_of_moves(prepared.plan);
  std::vector<OpEvent> events(prepared.plan.ops.size());
  for (OpIndex i{0}; i < events.size(); ++i) {
    const Op& op = prepared.plan.ops[i];
    if (takes_no_time(op)) continue;
    events[i] = {.begin = fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},)",
                                      json_text(nlohmann::json(names.op_name(i))), name_of(op.kind),
                                      prepared.division.place.rank, static_cast<int>(op.stream)),
                 .end = fmt::format(R"(,"args":{}}})",
                                    json_text(details_of(i, prepared, names, reasons[i])))};
  }
  return events;
}

/// One step's events, times from `begin_s` on.
class StepEvents {
 public:
  StepEvents(const Preparation& prepared, std::span<const OpTime> times, double begin_s,
             uint64_t& num_flows, std::span<const OpEvent> op_events)
      : prepared_(prepared),
        plan_(prepared.plan),
        place_(prepared.division.place),
        times_(times),
        begin_s_(begin_s),
        num_flows_(num_flows),
        op_events_(op_events) {}

  std::string text(uint64_t step, double step_s) {
    add(R"({{"ph":"X","name":"step {}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})", step,
        place_.rank, kNumStreamKinds, us(0), step_s * 1e6);
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      if (!takes_no_time(plan_.ops[i])) add_op(i);
    }
    add_flows();
    add_counters();
    return std::move(text_);
  }

 private:
  double us(double time_s) const { return (begin_s_ + time_s) * 1e6; }

  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    text_ += ",\n";
    fmt::vformat_to(std::back_inserter(text_), format, fmt::make_format_args(values...));
  }

  void add_op(OpIndex i) {
    text_ += ",\n";
    text_ += op_events_[i].begin;
    fmt::format_to(std::back_inserter(text_), R"("ts":{:.3f},"dur":{:.3f})", us(times_[i].start_s),
                   (times_[i].end_s - times_[i].start_s) * 1e6);
    text_ += op_events_[i].end;
  }

  /// From each load to the first operation of the compute stream that waits for it.
  void add_flows() {
    std::vector<bool> used(plan_.ops.size(), false);
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      if (op.stream != StreamKind::Compute) continue;
      for (const OpIndex w : plan_.waits_of(op)) {
        const Op& load = plan_.ops[w];
        const bool is_load = load.kind == OpKind::Move && load.to == Tier::Device;
        if (!is_load || takes_no_time(load) || used[w]) continue;
        used[w] = true;
        add_flow(w, i);
      }
    }
  }

  void add_flow(OpIndex from, OpIndex to) {
    // An arrow begins and ends inside the events that it connects.
    const auto middle = [&](OpIndex op) { return us((times_[op].start_s + times_[op].end_s) / 2); };
    const uint64_t id = num_flows_++ * place_.num_ranks + place_.rank;
    add(R"({{"ph":"s","name":"load","cat":"first use","id":{},"pid":{},"tid":{},"ts":{:.3f}}})", id,
        place_.rank, static_cast<int>(StreamKind::Load), middle(from));
    add(R"({{"ph":"f","bp":"e","name":"load","cat":"first use","id":{},"pid":{},"tid":{},"ts":{:.3f}}})",
        id, place_.rank, static_cast<int>(StreamKind::Compute), middle(to));
  }

  void add_counters() {
    const std::vector<Stay> all = stays(plan_, times_);
    for (const BytesOnDevice& now : bytes_on_device(all, prepared_.layout->chunk_bytes())) {
      std::string values;
      for (int s = 0; s < kNumSpaces; ++s) {
        values += fmt::format(R"({}"{}":{})", s == 0 ? "" : ",", name_of(static_cast<Space>(s)),
                              now.bytes[static_cast<size_t>(s)]);
      }
      add(R"({{"ph":"C","name":"bytes on the device","pid":{},"ts":{:.3f},"args":{{{}}}}})",
          place_.rank, us(now.time_s), values);
    }
  }

  const Preparation& prepared_;
  const Plan& plan_;
  const RankPlace& place_;
  std::span<const OpTime> times_;
  double begin_s_;
  uint64_t& num_flows_;
  std::span<const OpEvent> op_events_;
  std::string text_;
};

}  // namespace

ChromeTrace::ChromeTrace(const std::string& path) : file_(std::in_place, path, "trace") {}

ChromeTrace::~ChromeTrace() {
  if (!file_ || !has_begun_) return;
  try {
    file_->append("\n]\n");
  } catch (const IoError&) {  // readers also accept an array without its end
  }
}

std::optional<std::string> ChromeTrace::begin(const std::string& run_id, bool keeps_old,
                                              Ranks* ranks) {
  ranks_ = ranks;
  has_begun_ = true;
  if (!file_) return std::nullopt;
  auto aside = keeps_old ? file_->set_aside() : std::nullopt;
  file_->cut(0);
  file_->append(fmt::format("[\n{}{}", run_event(run_id), thread_names(0)));
  for (uint32_t rank = 1; ranks != nullptr && rank < ranks->size(); ++rank) {
    file_->append(process_name(rank) + thread_names(rank));
  }
  return aside;
}

void ChromeTrace::add_step(const Preparation& prepared, std::span<const OpTime> times,
                           uint64_t step, double step_s) {
  if (op_events_.empty()) op_events_ = make_op_events(prepared);
  const std::string mine =
      StepEvents(prepared, times, begin_s_, num_flows_, op_events_).text(step, step_s);
  const std::vector<std::string> texts = texts_of_ranks(ranks_, mine);
  if (file_) file_->append(fmt::format("{}", fmt::join(texts, "")));
  begin_s_ += greatest_of_ranks(ranks_, step_s);
}

std::unique_ptr<ChromeTrace> trace_of_ranks(std::unique_ptr<ChromeTrace> trace, Ranks* ranks) {
  if (ranks == nullptr) return trace;
  const bool traces = all_of_ranks(*ranks, static_cast<uint8_t>(trace != nullptr))[0] != 0;
  if (!traces) return nullptr;
  return trace ? std::move(trace) : std::make_unique<ChromeTrace>();
}

bool is_trace_of(const std::string& path, const std::string& run_id) {
  std::ifstream file(path, std::ios::binary);
  const std::string beginning = "[\n" + run_event(run_id);
  std::string found(beginning.size(), ' ');
  return !run_id.empty() && file.read(found.data(), static_cast<std::streamsize>(found.size())) &&
         found == beginning;
}

}  // namespace ebb
