// Ends a text before its first occurrence of another text (`ebb generate --stop`).
//
// The parts of the text come one after the other, and the stop text may begin in one part and end
// in a later one. So text that may be the beginning of the stop text is held back until more is
// known. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace ebb {

class StopText {
 public:
  /// `stop`: where the text ends; empty: nowhere.
  explicit StopText(std::string stop) : stop_(std::move(stop)) {}

  /// Adds a part of the text. Returns what is certainly before the stop text and was not returned
  /// yet. After the part with the stop text, further parts are ignored.
  std::string add(std::string_view part);
  /// To be called after the last part. Returns what is still held back.
  std::string rest() { return std::exchange(held_, ""); }
  /// Was the stop text found?
  bool is_found() const { return is_found_; }

 private:
  const std::string stop_;
  std::string held_;
  bool is_found_ = false;
};

}  // namespace ebb
