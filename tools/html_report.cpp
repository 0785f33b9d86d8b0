#include "tools/html_report.h"

#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "io/new_file.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/traffic.h"
#include "scheduler/plan/wait_causes.h"
#include "tools/report_page.h"
#include "tools/residency_intervals.h"
#include "tools/step_names.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

Json causes_json() {
  Json json = Json::array();
  for (int i = 0; i < kNumWaitCauses; ++i) {
    const auto cause = static_cast<WaitCause>(i);
    json.push_back({name_of(cause), resource_of(cause)});
  }
  return json;
}

/// [class, reason, loads, loaded bytes, stores, stored bytes]. State planes are always among them.
Json traffic_json(const Traffic& traffic) {
  Json json = Json::array();
  const auto row = [&](TrafficClass traffic_class, std::string_view reason,
                       const MovedBytes& moved) {
    json.push_back({name_of(traffic_class), reason, moved.loads, moved.loaded_bytes, moved.stores,
                    moved.stored_bytes});
  };
  for (const TrafficRow& r : traffic.rows()) row(r.traffic_class, name_of(r.reason), r.moved);
  if (traffic.of(TrafficClass::State).is_empty()) row(TrafficClass::State, "never copied", {});
  return json;
}

/// [layer, bytes of each class]
Json layers_json(const StepNames& names) {
  Json json = Json::array();
  for (const StepNames::LayerTraffic& layer : names.traffic_by_layer()) {
    Json row = {layer.layer};
    for (const MovedBytes& moved : layer.by_class) row.push_back(moved.bytes());
    json.push_back(std::move(row));
  }
  return json;
}

/// [space][chunk] its layers and its parameters
Json chunks_json(const StepNames& names, const Layout& layout) {
  Json json = Json::array();
  for (int s = 0; s < kNumSpaces; ++s) {
    const auto space = static_cast<Space>(s);
    Json chunks = Json::array();
    for (uint32_t i = 0; i < layout.num_chunks(space); ++i) {
      chunks.push_back({names.layers_of({space, i}), names.parameters_of({space, i})});
    }
    json.push_back(std::move(chunks));
  }
  return json;
}

class ViewJson {
 public:
  ViewJson(const ReportView& view, const Preparation& prepared, const StepNames& names)
      : view_(view), prepared_(prepared), plan_(prepared.plan), names_(names) {}

  Json json() const {
    const std::vector<Stay> all = stays(plan_, view_.times);
    Json json = {{"name", view_.name},         {"step_s", view_.step_s}, {"bound_s", view_.bound_s},
                 {"bound_by", view_.bound_by}, {"ops", ops()},           {"stays", stays_json(all)},
                 {"memory", memory(all)},      {"waits", waits()}};
    if (view_.kernels_s) json["kernels_s"] = *view_.kernels_s;
    return json;
  }

 private:
  Json ops() const {
    Json json = Json::array();
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      if (takes_no_time(op)) continue;
      const size_t bytes = op.kind == OpKind::Move
                               ? bytes_of_move(op, *prepared_.layout, prepared_.division)
                               : size_t{0};
      json.push_back({static_cast<int>(op.stream), view_.times[i].start_s, view_.times[i].end_s,
                      names_.op_name(i), bytes});
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

  std::string name_or(OpIndex op, std::string_view otherwise) const {
    return op == kNone ? std::string(otherwise) : names_.op_name(op);
  }

  /// The operation that waited; for a drop or an allocation, the call that needs the block.
  std::string waiting_name(OpIndex op) const {
    const auto is_work = [this](OpIndex i) {
      return plan_.ops[i].stream == StreamKind::Compute && !takes_no_time(plan_.ops[i]);
    };
    OpIndex work = op;
    while (work < plan_.ops.size() && !is_work(work)) ++work;
    return name_or(work < plan_.ops.size() ? work : op, "the end of the step");
  }

  /// The last one may be the wait for the end of the step.
  Json waits() const {
    Json json = Json::array();
    for_each_wait_share(plan_, view_.times, [&](const WaitShare& share) {
      if (json.empty() || json.back()["start"] != share.start_s) {
        json.push_back({{"start", share.start_s},
                        {"seconds", 0.0},
                        {"at_end", share.waiting == kNone},
                        {"waited", waiting_name(share.waiting)},
                        {"direct", name_or(share.direct, "the program")},
                        {"shares", Json::array()}});
      }
      Json& wait = json.back();
      wait["seconds"] = wait["seconds"].get<double>() + share.seconds;
      wait["shares"].push_back(
          {static_cast<int>(share.cause), share.seconds, name_or(share.by, "the program")});
    });
    return json;
  }

  const ReportView& view_;
  const Preparation& prepared_;
  const Plan& plan_;
  const StepNames& names_;
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
  const Plan& plan = prepared.plan;
  const StepNames names(plan, prepared.trace, *prepared.layout);
  Json json = {{"title", report.title},
               {"facts", report.facts},
               {"tokens_per_step", report.tokens_per_step},
               {"num_blocks", prepared.num_blocks},
               {"chunk_bytes", prepared.layout->chunk_bytes()},
               {"loaded_bytes", plan.loaded_bytes},
               {"stored_bytes", plan.stored_bytes},
               {"causes", causes_json()},
               {"traffic", traffic_json(traffic_of(plan, *prepared.layout))},
               {"layers", layers_json(names)},
               {"chunks", chunks_json(names, *prepared.layout)}};
  json["tiles"] = Json::array();
  for (const ReportTile& tile : report.tiles) {
    json["tiles"].push_back({tile.label, tile.value, tile.unit});
  }
  json["views"] = Json::array();
  for (const ReportView& view : report.views) {
    json["views"].push_back(ViewJson(view, prepared, names).json());
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
