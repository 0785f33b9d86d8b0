// The page of html_report.h, without its data: tools/report.html.
#pragma once

#include <string_view>

namespace ebb {

extern const std::string_view kReportPage;

}  // namespace ebb
