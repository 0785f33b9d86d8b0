#include "tools/rank_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tools/printable.h"
#include "tools/rank_processes.h"

namespace ebb {
namespace {

struct Report {
  uint64_t signal;
  uint64_t notice_bytes;
  double seconds;
};

}  // namespace

RankReports::RankReports(Ranks* ranks, RunProgress& progress,
                         const std::vector<std::string>& notices)
    : ranks_(ranks), progress_(progress) {
  if (ranks_ == nullptr) return;
  progress_.keep_notices();
  if (ranks_->rank() == 0) {
    said_.insert(notices.begin(), notices.end());
  } else {
    unsaid_ = notices;
  }
}

uint8_t RankReports::exchange(uint8_t signal, double seconds) {
  if (ranks_ == nullptr) return signal;
  const std::vector<std::string> notices = progress_.take_notices();
  std::string mine;  // one notice in each line
  if (ranks_->rank() == 0) {
    said_.insert(notices.begin(), notices.end());
  } else {
    unsaid_.insert(unsaid_.end(), notices.begin(), notices.end());
    for (const std::string& text : unsaid_) mine += printable(text) + "\n";
    unsaid_.clear();
  }
  const std::vector<Report> reports = all_of_ranks(*ranks_, Report{signal, mine.size(), seconds});
  if (std::ranges::max(reports, {}, &Report::notice_bytes).notice_bytes > 0) print_notices(mine);
  std::vector<double> all_seconds;
  for (const Report& report : reports) all_seconds.push_back(report.seconds);
  if (std::ranges::min(all_seconds) > 0) {
    const auto notice = slow_rank_.add(all_seconds);
    if (notice && ranks_->rank() == 0) progress_.notice(*notice);
  }
  return static_cast<uint8_t>(std::ranges::max(reports, {}, &Report::signal).signal);
}

void RankReports::print_notices(const std::string& mine) {
  const std::vector<std::string> all = texts_of_ranks(ranks_, mine);
  if (ranks_->rank() != 0) return;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    for (std::string text; std::getline(lines, text);) {
      if (said_.insert(text).second) progress_.notice(fmt::format("rank {}: {}", rank, text));
    }
  }
}

}  // namespace ebb
