#include "tools/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace ebb {
namespace {

/// Text as man takes it: a dash that can be copied, a backslash that is one, no line that begins
/// like a request.
std::string plain(std::string_view text) {
  std::string result;
  if (text.starts_with('.') || text.starts_with('\'')) result += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string flag_text(const Flag& flag) {
  std::string text = ".TP\n";
  if (flag.positional)
    return text + fmt::format("\\fI{}\\fR\n{}\n", plain(flag.value), plain(flag.description));
  std::string_view gap;
  for (const std::string& name : flag.names) {
    text += fmt::format("{}\\fB{}\\fR", gap, plain(name));
    gap = ", ";
  }
  if (!flag.value.empty()) text += fmt::format(" \\fI{}\\fR", plain(flag.value));
  return text + fmt::format("\n{}\n", plain(flag.description));
}

std::vector<std::string> groups_of(const CommandFlags& command) {
  std::vector<std::string> groups;
  for (const Flag& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  }
  return groups;
}

std::string command_text(const CommandFlags& command) {
  std::string text =
      fmt::format(".SH EBB {}\n{}\n", upper(command.name), plain(command.description));
  for (const std::string& group : groups_of(command)) {
    text += fmt::format(".SS {}\n", plain(group));
    for (const Flag& flag : command.flags) {
      if (flag.group == group) text += flag_text(flag);
    }
  }
  return text;
}

}  // namespace

std::string man_page(std::span<const CommandFlags> commands, std::string_view version) {
  std::string text = fmt::format(
      ".TH EBB 1 \"\" \"Ebb {0}\" \"Ebb\"\n"
      ".SH NAME\nebb \\- train transformers that are larger than the memory of the device\n"
      ".SH SYNOPSIS\n\\fBebb\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]\n.br\n\\fBebb\\fR \\fICOMMAND\\fR "
      "\\fB\\-\\-help\\fR\n.br\n\\fBebb \\-\\-version\\fR\n"
      ".SH DESCRIPTION\nEbb keeps the weights, gradients and optimizer state of a model in host "
      "memory, "
      "and moves them to the device in chunks, by a plan that is made before the first step. Sizes "
      "take "
      "binary and decimal units (256MiB, 16GB, plain bytes); defaults are in brackets.\n",
      plain(version));
  for (const CommandFlags& command : commands) {
    text += fmt::format(".TP\n\\fBebb {}\\fR\n{}\n", plain(command.name), plain(command.summary));
  }
  for (const CommandFlags& command : commands) text += command_text(command);
  return text +
         ".SH EXIT STATUS\n"
         ".TP\n0\nit worked\n"
         ".TP\n1\na failure while running\n"
         ".TP\n2\nan unknown flag, an impossible combination, or a value out of range\n"
         ".TP\n3\nthe plan does not fit; the message says what would\n"
         ".TP\n130, 143, 129, 138\nstopped by Ctrl\\-C, SIGTERM, SIGHUP or SIGUSR1, after the step "
         "was finished (and saved, "
         "with "
         "\\fB\\-\\-save\\fR)\n"
         ".SH FILES\n.TP\n\\fI$XDG_CACHE_HOME/ebb\\fR, \\fI~/.cache/ebb\\fR\nwhat was measured of "
         "this "
         "machine; it is measured again where it is removed\n";
}

}  // namespace ebb
