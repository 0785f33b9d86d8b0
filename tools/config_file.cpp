#include "tools/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#define TOML_HEADER_ONLY 1  // no shared library, which the package would depend on
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 16  // the text of a correct file has two levels
// toml++ 3.3 asserts what texts like "[{" contradict, although it then refuses them correctly. So
// its assertions must do nothing; with NDEBUG they would be assumptions for clang.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

#include "device/errors.h"
#include "tools/nearest_name.h"

namespace ebb {
namespace {

constexpr size_t kLargestFile = size_t{16} << 20;
constexpr size_t kLongestName = 64;    // in suggestions
constexpr size_t kLongestQuote = 100;  // of the file, in messages
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr int kMostParts = 8;  // of a key with dots

/// The text with TOML's escapes for control characters and for the characters `others`.
std::string escaped(std::string_view text, std::string_view others = "") {
  std::string result;
  for (const char c : text) {
    if (others.find(c) != others.npos) {
      result += {'\\', c};
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

/// The text for a message: escaped, and cut between two characters if it is long.
std::string shown(std::string_view text) {
  if (text.size() <= kLongestQuote) return escaped(text);
  size_t end = kLongestQuote;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return escaped(text.substr(0, end)) + "...";
}

std::string place_of(std::string_view path, const toml::source_position& at) {
  return fmt::format("--config {}:{}:{}", escaped(path), at.line, at.column);
}

/// The end of the string or comment that begins at `at`. It is exact for text that toml++ accepts.
size_t end_of_quoted(std::string_view text, size_t at) {
  const char quote = text[at];
  if (quote == '#') return std::min(text.find('\n', at), text.size());
  const std::string three(3, quote);
  const bool several_lines = text.substr(at).starts_with(three);
  const std::string_view closing = std::string_view(three).substr(several_lines ? 0 : 2);
  for (at += closing.size(); at < text.size(); ++at) {
    if (text.substr(at).starts_with(closing)) {
      at += closing.size();
      // A string of several lines may end with one or two quotes before the closing ones.
      for (int i = 0; several_lines && i < 2 && text.substr(at).starts_with(quote); ++i) ++at;
      return at;
    }
    if (quote == '"' && text[at] == '\\') ++at;
    if (!several_lines && at < text.size() && text[at] == '\n') return at;
  }
  return text.size();
}

/// Refuses, outside of strings and comments, what toml++ 3.3 cannot process safely: letters beyond
/// ASCII, for some of which it reaches __builtin_unreachable(), and keys of many parts, as its
/// destructor calls itself for each part.
void check_unquoted(std::string_view path, std::string_view text) {
  int64_t line = 1;
  int parts = 1;
  for (size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < text.size();
       ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'' || c == '#') {
      const size_t end = end_of_quoted(text, at);
      line += std::ranges::count(text.substr(at, end - at), '\n');
      at = end - 1;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      throw ConfigError(fmt::format(
          "--config {}:{}: not TOML 1.0: letters that are not ASCII are allowed only in "
          "quotes and in comments",
          escaped(path), line));
    } else if (c == '.') {
      if (++parts <= kMostParts) continue;
      throw ConfigError(fmt::format("--config {}:{}: a key has more than {} parts", escaped(path),
                                    line, kMostParts));
    } else if (std::string_view("\n,=[]{}").find(c) != std::string_view::npos) {
      line += c == '\n' ? 1 : 0;
      parts = 1;
    }
  }
}

toml::table parse(std::string_view path, std::string_view text) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw ConfigError(fmt::format(
        "--config {}: the text is UTF-16, but TOML is UTF-8: save it as UTF-8", escaped(path)));
  }
  check_unquoted(path, text);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}: not TOML 1.0: {}", place_of(path, error.source().begin),
                                  shown(error.description())));
  }
}

struct Entry {
  const toml::key* table;  ///< null at the top of the file
  const toml::key* key;
  const toml::node* value;
};

/// The keys of the file, in its order.
std::vector<Entry> entries_of(const toml::table& root) {
  std::vector<Entry> entries;
  for (const auto& [key, value] : root) {
    if (!value.is_table()) {
      entries.push_back({nullptr, &key, &value});
      continue;
    }
    for (const auto& [inner, inner_value] : *value.as_table()) {
      entries.push_back({&key, &inner, &inner_value});
    }
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) {
    const toml::source_position at = entry.key->source().begin;
    return std::pair(at.line, at.column);
  });
  return entries;
}

std::string_view kind_of(const toml::node& value) {
  switch (value.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::boolean:
      return value.as_boolean()->get() ? "true" : "false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or a time";
    case toml::node_type::string:
      return "a string";
    default:
      return "a number";
  }
}

/// Nothing if the value is neither a string nor a number.
std::optional<std::string> text_of(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* whole = value.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = value.as_floating_point()) return fmt::format("{}", real->get());
  return std::nullopt;
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

const Flag* find_flag(std::span<const Flag> flags, std::string_view key) {
  const std::string name = fmt::format("--{}", key);
  const auto found = std::ranges::find_if(
      flags, [&](const Flag& flag) { return std::ranges::count(flag.names, name) > 0; });
  return found != flags.end() ? &*found : nullptr;
}

std::string without_dashes(std::string_view name) {
  return std::string(name.substr(std::min(name.find_first_not_of('-'), name.size())));
}

std::string first_long_name(const Flag& flag) {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto found = std::ranges::find_if(flag.names, is_long);
  return found != flag.names.end() ? without_dashes(*found) : std::string();
}

bool is_for_command_line(const Flag& flag) {
  return first_long_name(flag) == "help" || first_long_name(flag) == "config";
}

std::string suggestion(std::string_view name, const std::vector<std::string>& names,
                       std::string_view before = "", std::string_view after = "") {
  const std::string nearest =
      name.size() > kLongestName ? std::string() : nearest_name(name, names);
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}{}?", before, nearest, after);
}

std::vector<std::string> groups_of(std::span<const Flag> flags) {
  std::vector<std::string> groups;
  for (const Flag& flag : flags) {
    if (is_for_command_line(flag) || std::ranges::count(groups, flag.group) > 0) continue;
    groups.push_back(flag.group);
  }
  return groups;
}

class Reader {
 public:
  Reader(std::string_view path, std::span<const Flag> flags) : path_(path), flags_(flags) {}

  std::vector<ConfigValue> read(const toml::table& root) {
    for (const auto& [key, value] : root) {
      if (value.is_table()) check_table(key);
    }
    std::vector<ConfigValue> values;
    for (const Entry& entry : entries_of(root)) {
      const Flag& flag = flag_of(entry);
      std::optional<FlagValue> value = convert(entry, flag);
      if (value) values.push_back({std::move(*value), place_of(path_, entry.key->source().begin)});
    }
    return values;
  }

 private:
  [[noreturn]] void refuse(const toml::key& key, std::string_view what) const {
    throw ConfigError(fmt::format("{}: {}", place_of(path_, key.source().begin), what));
  }

  void check_table(const toml::key& key) const {
    const std::vector<std::string> groups = groups_of(flags_);
    const auto is_named = [&](const std::string& group) {
      return equal_but_for_case(key.str(), group);
    };
    if (std::ranges::any_of(groups, is_named)) return;
    if (find_flag(flags_, key.str()) != nullptr) {
      refuse(key, fmt::format("'{}' is a flag, and its value is a table", shown(key.str())));
    }
    refuse(key, fmt::format("unknown table [{}]{}; tables are named like the groups of --help: {}",
                            shown(key.str()), suggestion(key.str(), groups, "[", "]"),
                            fmt::join(groups, ", ")));
  }

  const Flag& flag_of(const Entry& entry) {
    const std::string_view name = entry.key->str();
    const Flag* const flag = find_flag(flags_, name);
    if (flag == nullptr) {
      std::vector<std::string> names;
      for (const Flag& other : flags_) {
        if (is_for_command_line(other)) continue;
        for (const std::string& dashed : other.names) names.push_back(without_dashes(dashed));
      }
      refuse(*entry.key, fmt::format("unknown key '{}'{}", shown(name), suggestion(name, names)));
    }
    if (is_for_command_line(*flag)) {
      refuse(*entry.key, fmt::format("--{} is allowed only on the command line", name));
    }
    if (entry.table != nullptr && !equal_but_for_case(entry.table->str(), flag->group)) {
      refuse(*entry.key, fmt::format("'{}' is not in the group [{}]; did you mean [{}]?", name,
                                     entry.table->str(), flag->group));
    }
    if (!given_.insert(flag).second) {
      const std::string first = first_long_name(*flag);
      const std::string other = first == name ? "" : fmt::format(" ({} is the same flag)", first);
      refuse(*entry.key, fmt::format("'{}' is given twice{}", name, other));
    }
    return *flag;
  }

  /// Nothing if a flag without a value is false.
  std::optional<FlagValue> convert(const Entry& entry, const Flag& flag) const {
    FlagValue result{.name = first_long_name(flag), .values = {}};
    const toml::node& value = *entry.value;
    if (flag.takes == Flag::Takes::Nothing || flag.takes == Flag::Takes::Perhaps) {
      const bool may_have_value = flag.takes == Flag::Takes::Perhaps;
      if (const auto* is_on = value.as_boolean()) {
        if (!is_on->get()) return std::nullopt;
        result.values = {may_have_value ? "" : "true"};
        return result;
      }
      if (!may_have_value) refuse_value(entry, value, "true or false");
    }
    if (const auto* list = value.as_array(); list && flag.takes == Flag::Takes::Several) {
      if (list->empty()) refuse_value(entry, value, "at least one value");
      for (const toml::node& one : *list) {
        result.values.push_back(checked_text(entry, one, "an array of strings and numbers"));
      }
      return result;
    }
    result.values = {checked_text(entry, value, allowed_by(flag))};
    return result;
  }

  static std::string_view allowed_by(const Flag& flag) {
    switch (flag.takes) {
      case Flag::Takes::Several:
        return "a string, a number, or an array of them";
      case Flag::Takes::Perhaps:
        return "a string, a number, true or false";
      default:
        return "one string or number";
    }
  }

  std::string checked_text(const Entry& entry, const toml::node& value,
                           std::string_view allowed) const {
    std::optional<std::string> text = text_of(value);
    if (!text) refuse_value(entry, value, allowed);
    if (text->find('\0') != text->npos) {
      refuse(*entry.key, fmt::format("'{}' contains the character U+0000, which no value of a flag "
                                     "can contain",
                                     entry.key->str()));
    }
    return *std::move(text);
  }

  [[noreturn]] void refuse_value(const Entry& entry, const toml::node& value,
                                 std::string_view allowed) const {
    const auto* list = value.as_array();
    refuse(*entry.key,
           fmt::format("'{}' is {}: allowed is {}", entry.key->str(),
                       list && list->empty() ? "an empty array" : kind_of(value), allowed));
  }

  std::string_view path_;
  std::span<const Flag> flags_;
  std::set<const Flag*> given_;
};

[[noreturn]] void refuse_file(const std::string& path, std::string_view why) {
  throw ConfigError(fmt::format("--config '{}': {}", escaped(path), why));
}

std::string_view kind_of(std::filesystem::file_type type) {
  switch (type) {
    case std::filesystem::file_type::directory:
      return "a folder";
    case std::filesystem::file_type::fifo:
      return "a pipe";
    default:
      return "a device or a socket";
  }
}

std::string text_of_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) refuse_file(path, error.message());
  if (!std::filesystem::is_regular_file(status)) {
    refuse_file(path, fmt::format("this is {}: allowed is a regular file", kind_of(status.type())));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) refuse_file(path, std::strerror(errno));
  std::string text;
  std::array<char, 1 << 14> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), file.get())) {
    text.append(part.data(), count);
    if (text.size() <= kLargestFile) continue;
    refuse_file(path, fmt::format("the file is larger than {}, so it is no configuration file",
                                  format_bytes(kLargestFile)));
  }
  if (std::ferror(file.get()) != 0) refuse_file(path, std::strerror(errno));
  return text;
}

/// The text that the reader makes from this number; empty if the text is not a number.
template <class T>
std::string canonical(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? fmt::format("{}", value) : std::string();
}

}  // namespace

std::vector<ConfigValue> read_config_text(std::string_view path, std::string_view text,
                                          std::span<const Flag> flags) {
  return Reader(path, flags).read(parse(path, text));
}

std::vector<ConfigValue> read_config_file(const std::string& path, std::span<const Flag> flags) {
  return read_config_text(path, text_of_file(path), flags);
}

std::string toml_value(std::string_view text) {
  const bool ends_with_digit = !text.empty() && text.back() >= '0' && text.back() <= '9';
  const bool is_number = ends_with_digit && text != "-0" &&
                         (canonical<int64_t>(text) == text || canonical<double>(text) == text);
  return is_number ? std::string(text) : '"' + escaped(text, "\"\\") + '"';
}

}  // namespace ebb
