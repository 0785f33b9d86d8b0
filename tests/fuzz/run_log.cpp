// The JSON lines of an existing log, which a resumed run continues.
#include "tools/run_log.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fuzz/fuzz.h"

namespace ebb::fuzz {
namespace {

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

constexpr const char* kId = "0123456789abcdef";

void check(const std::string& before, const LoggedRun& run) {
  const std::string path = write_file("log.jsonl", bytes_of(before));
  const LogOwner owner = owner_of_log(path, run);
  require((owner == LogOwner::Nobody) == before.empty(), "only an empty log is nobody's");
  RunLog(path).begin(run);
  const std::string aside = path + ".1";
  const bool is_aside = std::filesystem::exists(aside);
  if (is_aside) {
    require(content_of(aside) == before, "the old log is kept");
    std::filesystem::remove(aside);
  }
  std::string after = content_of(path);
  const std::string added = run.last_line + "\n";
  if (after.ends_with(added) && !before.starts_with(after))
    after.resize(after.size() - added.size());
  require(before.starts_with(after), "complete lines of the old log remain");
  require(after.empty() || after.back() == '\n', "the log ends with a line");
  require(is_aside || before.empty() || !after.empty(), "an old log is not lost");
  require(is_aside || run.is_same_run || after == before, "lines of another run are not cut");
  if (owner == LogOwner::Ours) note_accepted();
}

}  // namespace

void test_input(Bytes input) {
  const std::string before = text_of(input);
  for (const uint64_t step : {0, 2}) {
    for (const bool is_same_run : {true, false}) {
      const LoggedRun run = {.run_id = kId,
                             .step = step,
                             .tokens_seen = 32 * step,
                             .last_line = R"({"step": 2})",
                             .is_same_run = is_same_run};
      must_accept([&] { check(before, run); });
    }
  }
}

}  // namespace ebb::fuzz
