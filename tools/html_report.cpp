#include "tools/html_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "io/new_file.h"
#include "scheduler/plan/timeline.h"
#include "tools/chrome_trace.h"
#include "tools/report_page.h"
#include "tools/residency_intervals.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

/// The kind of a stall. Stalls of one kind are added up.
std::string kind_of_cause(const Plan& plan, OpIndex cause) {
  if (cause == kNone) return "kernels not submitted yet";
  const Op& op = plan.ops[cause];
  switch (op.kind) {
    case OpKind::Move:
      if (op.from == Tier::None) return "a free block";
      return fmt::format("a load of {}", name_of(op.chunk.space));
    case OpKind::Norm:
      return "the norm";
    case OpKind::Update:
    case OpKind::Speculate:
      return "an update";
    default:
      return fmt::format("{}", name_of(op.kind));
  }
}

class ViewJson {
 public:
  ViewJson(const ReportView& view, const Preparation& prepared)
      : view_(view), prepared_(prepared), plan_(prepared.plan) {}

  Json json() const {
    const std::vector<Stay> all = stays(plan_, view_.times);
    return {{"name", view_.name},         {"step_s", view_.step_s}, {"bound_s", view_.bound_s},
            {"bound_by", view_.bound_by}, {"ops", ops()},           {"stays", stays_json(all)},
            {"memory", memory(all)},      {"stalls", stalls()}};
  }

 private:
  Json ops() const {
    Json json = Json::array();
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      if (takes_no_time(op)) continue;
      const size_t bytes =
          op.kind == OpKind::Move ? prepared_.layout->used_bytes(op.chunk) : size_t{0};
      json.push_back({static_cast<int>(op.stream), view_.times[i].start_s, view_.times[i].end_s,
                      op_name(op, prepared_.trace), bytes});
    }
    return json;
  }

  static Json stays_json(std::span<const Stay> all) {
    Json json = Json::array();
    for (const Stay& stay : all) {
      json.push_back({static_cast<int>(stay.chunk.space), stay.chunk.index, uint32_t{stay.block},
                      stay.start_s, stay.loaded_s, stay.end_s});
    }
    return json;
  }

  Json memory(std::span<const Stay> all) const {
    Json json = Json::array();
    for (const BytesOnDevice& now : bytes_on_device(all, prepared_.layout->chunk_bytes())) {
      Json row = {now.time_s};
      for (const size_t bytes : now.bytes) row.push_back(bytes);
      json.push_back(std::move(row));
    }
    return json;
  }

  Json stalls() const {
    Json json = Json::array();
    for (const Stall& stall : compute_stalls(plan_, view_.times)) {
      json.push_back(
          {{"start", stall.start_s},
           {"seconds", stall.seconds},
           {"cause", kind_of_cause(plan_, stall.cause)},
           {"waited", op_name(plan_.ops[stall.op], prepared_.trace)},
           {"by", stall.cause == kNone ? "the program"
                                       : op_name(plan_.ops[stall.cause], prepared_.trace)}});
    }
    return json;
  }

  const ReportView& view_;
  const Preparation& prepared_;
  const Plan& plan_;
};

/// JSON inside a page must not contain the end tag of its element.
std::string as_script(const Json& json) {
  std::string text = json_text(json);
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) {
    text.replace(at, 2, "<\\/");
  }
  return text;
}

}  // namespace

std::string html_report(const Report& report, const Preparation& prepared) {
  Json json = {{"title", report.title},
               {"facts", report.facts},
               {"num_blocks", prepared.num_blocks},
               {"chunk_bytes", prepared.layout->chunk_bytes()},
               {"loaded_bytes", prepared.plan.loaded_bytes},
               {"stored_bytes", prepared.plan.stored_bytes}};
  json["tiles"] = Json::array();
  for (const auto& [value, label] : report.tiles) json["tiles"].push_back({value, label});
  json["views"] = Json::array();
  for (const ReportView& view : report.views) {
    json["views"].push_back(ViewJson(view, prepared).json());
  }
  constexpr std::string_view kPlace = "@REPORT_DATA@";
  const std::string_view page = kReportPage;
  const size_t at = page.find(kPlace);
  return std::string(page.substr(0, at)) + as_script(json) +
         std::string(page.substr(at + kPlace.size()));
}

void write_report(const std::string& path, const Report& report, const Preparation& prepared) {
  write_new_file(path, html_report(report, prepared));
}

ReportView simulated_view(const Preparation& prepared, const Machine& machine) {
  const Bound& bound = prepared.candidates[prepared.chosen].bound;
  Simulation simulation = simulate(prepared.plan, prepared.trace, *prepared.layout, machine);
  return {.name = "predicted",
          .step_s = simulation.seconds,
          .bound_s = bound.seconds,
          .bound_by = bound.bound_by,
          .times = std::move(simulation.ops)};
}

}  // namespace ebb
