// The data of a report: each wait has its true cause, and all sums are those of the plan. Only a
// browser shows whether the page can be read: test_pages.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

// In "ops".
constexpr int kComputeStream = 0, kLoadStream = 1, kStoreStream = 2, kUpdateStream = 3;
constexpr double kRounding = 1e-12;  // seconds

/// Returns the data in a report.
Json report_data(const std::string& page) {
  const std::string begin = R"(<script id="data" type="application/json">)";
  const size_t from = page.find(begin) + begin.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from));
}

/// An RTX 4090 whose link is not slowed by the optimizer.
constexpr std::string_view kMachine = R"({"name": "fast link", "device": "NVIDIA GeForce RTX 4090",
  "device_memory_bytes": 24696061952, "host_memory_bytes": 128000000000, "flops_per_s": 150e12,
  "attention_flops_per_s": 75e12, "vector_flops_per_s": 420e9, "kernel_s": 4e-6, "device_bytes_per_s": 850e9,
  "load_bytes_per_s": 25e9, "store_bytes_per_s": 25e9, "update_bytes_per_s": 65e9})";

/// A step of an 8B model, whose loads wait for the optimizer. With other recomputation the planner
/// chooses speculative updates, and some waits have other causes.
Json make_plan_of_8b() {
  const TemporaryFolder folder;
  const std::string machine = folder.write("machine.json", std::string(kMachine));
  const std::string page = (folder.path() / "plan.html").string();
  const Outcome outcome =
      run_ebb({"plan", "--preset", "llama-3.1-8b", "--machine", machine, "--micro-batch-size", "4",
               "--recompute", "layer", "--html", page},
              folder.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return report_data(content_of(page));
}

const Json& plan_of_8b() {
  static const Json data = make_plan_of_8b();
  return data;
}

double seconds_of(const Json& wait, const Json& data, const std::string& cause) {
  double seconds = 0;
  for (const Json& share : wait["shares"]) {
    if (data["causes"][share[0].get<size_t>()][0] == cause) seconds += share[1].get<double>();
  }
  return seconds;
}

/// The idle time of the compute stream between its operations.
double idle_s(const Json& view) {
  double idle = 0, free = 0;
  for (const Json& op : view["ops"]) {
    if (op[0] != kComputeStream) continue;
    idle += op[1].get<double>() - free;
    free = op[2];
  }
  return idle;
}

/// Whether a wait names the call that begins when it ends, and each cause an operation of its
/// stream. Returns what is wrong; empty if nothing is.
std::string wrong_names(const Json& data) {
  const std::map<std::string, int> stream_of_cause = {{"updates", kUpdateStream},
                                                      {"loads", kLoadStream},
                                                      {"stores", kStoreStream},
                                                      {"free blocks", kComputeStream},
                                                      {"the norm", kUpdateStream}};
  std::set<std::pair<int, std::string>> operations;
  std::map<double, std::string> call_by_start;
  const Json& view = data["views"][0];
  for (const Json& op : view["ops"]) {
    operations.emplace(op[0], op[3]);
    if (op[0] == kComputeStream) call_by_start[op[1]] = op[3];
  }
  for (const Json& wait : view["waits"]) {
    const double end = wait["start"].get<double>() + wait["seconds"].get<double>();
    const auto call = call_by_start.lower_bound(end - kRounding);
    if (call == call_by_start.end() || call->second != wait["waited"]) {
      return wait["waited"].get<std::string>() + " does not begin when its wait ends";
    }
    for (const Json& share : wait["shares"]) {
      const std::string cause = data["causes"][share[0].get<size_t>()][0], by = share[2];
      if (!operations.contains({stream_of_cause.at(cause), by})) return cause + " by " + by;
    }
  }
  return "";
}

/// What is wrong with the waits of a page; empty if nothing is.
std::string wrong_waits(const Json& data) {
  const Json& view = data["views"][0];
  double waited = 0, shared = 0;
  for (const Json& wait : view["waits"]) {
    if (wait["at_end"]) continue;
    waited += wait["seconds"].get<double>();
    for (const Json& share : wait["shares"]) shared += share[1].get<double>();
  }
  if (std::abs(waited - idle_s(view)) > kRounding) return "the waits are not the idle time";
  if (std::abs(shared - waited) > kRounding) return "the causes are not the waits";

  std::map<double, double> idle_before_load;  // by the end of the load: the link was idle before
  std::map<double, double> start_of_load;
  double free = 0;
  for (const Json& op : view["ops"]) {
    if (op[0] != kLoadStream) continue;
    idle_before_load[op[2]] = op[1].get<double>() - free;
    start_of_load[op[2]] = op[1];
    free = op[2];
  }
  std::map<double, std::string> update_by_end;
  for (const Json& op : view["ops"]) {
    if (op[0] == kUpdateStream) update_by_end[op[2]] = op[3];
  }
  for (const Json& wait : view["waits"]) {
    const std::string direct = wait["direct"];
    if (!direct.starts_with("load ")) continue;
    const double end = wait["start"].get<double>() + wait["seconds"].get<double>();
    const auto load = std::ranges::find_if(
        start_of_load, [end](const auto& l) { return std::abs(l.first - end) < kRounding; });
    if (load == start_of_load.end()) return "no load ends with the wait for " + direct;
    // A load that begins with the end of an update, on a link that was idle, waited for the update.
    const auto update = std::ranges::find_if(update_by_end, [load](const auto& u) {
      return std::abs(u.first - load->second) < kRounding;
    });
    if (update == update_by_end.end()) continue;
    const double late_s = std::min(wait["seconds"].get<double>(), idle_before_load[load->first]);
    if (seconds_of(wait, data, "updates") < late_s - kRounding) {
      return direct + " waited for " + update->second + ", which is not named";
    }
  }
  return wrong_names(data);
}

/// Sources give a range of rates for this GPU, so the step has two ends, as in the text of the
/// plan.
TEST(ReportPage, HasBothEndsOfThePrediction) {
  const TemporaryFolder folder;
  const std::string page = (folder.path() / "plan.html").string();
  const Outcome outcome =
      run_ebb({"plan", "--preset", "gpt2", "--machine", "rtx4090", "--html", page, "--json"},
              folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json plan = parse_json(outcome.out);
  std::map<std::string, double> tiles;
  const Json data = report_data(content_of(page));
  for (const Json& tile : data["tiles"]) tiles[tile[0]] = tile[1];
  EXPECT_EQ(tiles.at("a step, at best"), plan["optimistic_seconds"]);
  EXPECT_EQ(tiles.at("tokens a second, at best"), plan["optimistic_tokens_per_second"]);
  for (const Json& tile : plan_of_8b()["tiles"]) {  // these rates have one end
    EXPECT_EQ(tile[0].get<std::string>().find("at best"), std::string::npos);
  }
}

TEST(ReportPage, WaitsForTheOptimizerAreNamed) {
  const Json& data = plan_of_8b();
  EXPECT_EQ(wrong_waits(data), "");
  EXPECT_EQ(data["causes"][0], Json({"updates", "host memory bandwidth"}));
  size_t num_waits = 0, num_loads = 0, num_updates = 0;
  double updates_s = 0;
  for (const Json& wait : data["views"][0]["waits"]) {
    if (wait["at_end"]) continue;
    ++num_waits;
    num_loads += wait["direct"].get<std::string>().starts_with("load weights ");
    const double seconds = seconds_of(wait, data, "updates");
    num_updates += seconds > wait["seconds"].get<double>() / 2;
    updates_s += seconds;
  }
  // Nearly all waits end with a load, and nearly all are the optimizer's.
  EXPECT_GT(num_loads, num_waits * 9 / 10);
  EXPECT_GT(num_updates, num_waits * 9 / 10);
  EXPECT_GT(updates_s, 0.75 * idle_s(data["views"][0]));
}

TEST(ReportPage, WrongCausesAreFound) {
  const Json& good = plan_of_8b();
  Json direct = good;  // as if the load that ended last were the cause
  for (Json& wait : direct["views"][0]["waits"]) {
    wait["shares"] = {{1, wait["seconds"], wait["direct"]}};
  }
  EXPECT_SAYS(wrong_waits(direct), "which is not named");
  Json by_direct = good;
  for (Json& wait : by_direct["views"][0]["waits"]) {
    for (Json& share : wait["shares"]) share[2] = wait["direct"];
  }
  EXPECT_SAYS(wrong_waits(by_direct), "updates by load ");
  Json later = good;
  later["views"][0]["waits"][3]["waited"] = later["views"][0]["waits"].back()["waited"];
  EXPECT_SAYS(wrong_waits(later), "does not begin when its wait ends");
  Json longer = good;
  Json& share = longer["views"][0]["waits"][3]["shares"][0][1];
  share = share.get<double>() + 1e-6;
  EXPECT_SAYS(wrong_waits(longer), "the causes are not the waits");
  Json fewer = good;
  fewer["views"][0]["waits"].erase(5);
  EXPECT_SAYS(wrong_waits(fewer), "the waits are not the idle time");
}

TEST(ReportPage, TheTrafficIsThatOfThePlan) {
  const Json& data = plan_of_8b();
  uint64_t loaded = 0, stored = 0, of_layers = 0;
  for (const Json& row : data["traffic"]) {
    loaded += row[3].get<uint64_t>();
    stored += row[5].get<uint64_t>();
  }
  for (const Json& row : data["layers"]) {
    for (size_t i = 1; i < row.size(); ++i) of_layers += row[i].get<uint64_t>();
  }
  EXPECT_EQ(data["loaded_bytes"], loaded);
  EXPECT_EQ(data["stored_bytes"], stored);
  EXPECT_EQ(of_layers, loaded + stored);
  EXPECT_GT(loaded, 0u);
  EXPECT_EQ(data["layers"].back()[0], "lm_head");
  EXPECT_EQ(data["chunks"][0][0], Json({"model.embed_tokens", "model.embed_tokens.weight"}));
}

}  // namespace
}  // namespace ebb
