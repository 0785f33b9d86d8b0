#include "tools/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <span>
#include <system_error>

#include "device/errors.h"
#include "io/plain_text.h"
#include "tools/command_flags.h"
#include "tools/config_file.h"
#include "tools/flag_values.h"
#include "tools/nearest_name.h"

namespace ebb {
namespace {

std::function<void(const std::string&)> with_flag(const std::string& names, Setter setter) {
  return [setter = std::move(setter),
          flag = names.substr(0, names.find(','))](const std::string& text) { setter(flag, text); };
}

/// Expands a leading "~" in paths, wherever they come from.
CLI::Option* expand_home(CLI::Option* option, const std::string& names, const std::string& value) {
  if (!takes_path(value)) return option;
  return option->transform(
      [option, flag = names.substr(0, names.find(','))](const std::string& path) {
        const bool has_no_value = path.empty() && option->get_items_expected_min() == 0;
        return has_no_value ? path : path_value(flag, path, std::getenv("HOME"));
      });
}

Flag describe(const CLI::Option& option) {
  Flag flag{.names = {},
            .value = option.get_option_text(),
            .description = option.get_description(),
            .group = option.get_group()};
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() > 1) {
    flag.takes = Flag::Takes::Several;
  } else if (option.get_items_expected_max() == 1) {
    const bool needed = option.get_items_expected_min() > 0;
    flag.takes = needed ? Flag::Takes::One : Flag::Takes::Perhaps;
  }
  return flag;
}

/// Flags are in the order of --help: by group, and groups in the order of their first flag.
CommandFlags describe(const CLI::App& app) {
  CommandFlags command{
      .name = "", .summary = "", .description = app.get_description(), .flags = {}};
  for (const std::string& group : app.get_groups()) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group) command.flags.push_back(describe(*option));
    }
  }
  return command;
}

FlagValue::Kind kind_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return FlagValue::Kind::Switch;
  return takes_path(option.get_option_text()) ? FlagValue::Kind::Path : FlagValue::Kind::Text;
}

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? std::string() : option.get_lnames().front();
}

/// "; did you mean --steps?" if a flag has a similar name.
std::string suggestion(const CLI::App& app, std::string_view name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string nearest = nearest_name(name, names);
  return nearest.empty() ? "" : did_you_mean("--" + nearest);
}

const CLI::Option* flag_in(const CLI::App& app, const std::string& argument) {
  return app.get_option_no_throw(argument.substr(0, argument.find('=')));
}

/// Refuses a flag that needs a value and has none, and an empty value where a flag may have none.
/// `arguments` begin with the flag. A value may begin with --, but it is not a flag of the command.
void check_value(const CLI::App& app, const CLI::Option& option, const std::string& flag,
                 std::span<const std::string> arguments) {
  const std::string& first = arguments.front();
  const bool has_equals = first.size() > flag.size();
  const bool has_next = arguments.size() > 1 && flag_in(app, arguments[1]) == nullptr;
  if (option.get_items_expected_min() > 0 && !has_equals && !has_next) {
    throw ConfigError(
        fmt::format("{}: its value is missing: {} {}", flag, flag, option.get_option_text()));
  }
  if (option.get_items_expected_min() > 0 || option.get_items_expected_max() == 0) return;
  const bool is_empty =
      has_equals ? first.size() == flag.size() + 1 : has_next && arguments[1].empty();
  if (is_empty) {
    throw_bad_value(flag, "", fmt::format("a path, or {} without a value", flag));
  }
}

/// Reports unknown and repeated flags by name, and the first value without a flag. CLI11's own
/// messages do not name the flags.
void check_flags(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::set<const CLI::Option*> given;
  int num_values = 0;  // that may follow
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i].starts_with('-') && !arguments[i].starts_with("--")) continue;
    if (!arguments[i].starts_with("--")) {
      if (--num_values >= 0) continue;
      throw ConfigError(
          fmt::format("'{}' belongs to no flag: write each value after its flag (`{} --help`), "
                      "and put quotes around a text with spaces",
                      shortened(arguments[i]), app.get_name()));
    }
    const size_t end = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, end);
    const CLI::Option* const option = app.get_option_no_throw(flag);
    if (option == nullptr) {
      throw UnknownFlag(fmt::format("{} is not a flag of '{}'{}", flag, app.get_name(),
                                    suggestion(app, flag.substr(2))),
                        flag.substr(2));
    }
    if (option->get_items_expected_max() == 1 && !given.insert(option).second) {
      throw ConfigError(flag + " is given twice");
    }
    check_value(app, *option, flag, std::span(arguments).subspan(i));
    num_values = end == flag.npos ? option->get_items_expected_max() : 0;
    if (end != flag.npos) continue;
    i += static_cast<size_t>(option->get_items_expected_min());
    num_values -= option->get_items_expected_min();
  }
}

/// --help leaves out the flags that are in no group.
void hide_others(CLI::App& app, const std::vector<std::string>& most_used) {
  std::set<const CLI::Option*> shown;
  for (const std::string& name : most_used) shown.insert(app.get_option("--" + name));
  for (CLI::Option* option : app.get_options()) {
    if (option->get_group() != "General" && !shown.contains(option)) option->group("");
  }
}

/// Gives the flags of the file, except those that the command line gives or excludes.
void give_config(CommandLine& line, const std::string& path, const std::vector<Flag>& flags) {
  const std::vector<FlagValue> given = line.given();
  for (const ConfigValue& value : read_config_file(path, flags)) {
    if (gives_way(value.flag.name, given)) continue;
    try {
      EBB_CHECK(line.give(value.flag), value.flag.name);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", value.place, error.what()));
    }
  }
}

}  // namespace

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

void CommandLine::shorten_help(std::vector<std::string> most_used, const std::string& note) {
  most_used_ = std::move(most_used);
  app_->set_help_all_flag("--help-all", "print all flags and exit")->group("General");
  app_->footer(note);
}

std::vector<FlagValue> CommandLine::given() const {
  std::vector<FlagValue> flags;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->count() == 0) continue;
    flags.push_back(
        {.name = name_of(*option), .values = option->results(), .kind = kind_of(*option)});
  }
  return flags;
}

bool CommandLine::was_given(const std::string& name) const {
  const CLI::Option* option = app_->get_option_no_throw("--" + name);
  return option != nullptr && option->count() > 0;
}

bool CommandLine::give(const FlagValue& flag) {
  CLI::Option* const option = app_->get_option_no_throw("--" + flag.name);
  if (option == nullptr) return false;
  option->allow_extra_args(false);  // CLI11 would read "[x]" as a list
  option->add_result(flag.values);
  option->run_callback();
  return true;
}

void FlagGroup::add(const std::string& names, const std::string& value,
                    const std::string& description, Setter setter) {
  CLI::Option* const option = line.app_->add_option_function<std::string>(
      names, with_flag(names, std::move(setter)), description);
  expand_home(option, names, value)->option_text(value)->group(name);
}

void FlagGroup::add_optional(const std::string& names, const std::string& value,
                             const std::string& description, Setter setter) {
  CLI::Option* const option = line.app_->add_option_function<std::string>(
      names, with_flag(names, std::move(setter)), description);
  expand_home(option, names, value)->expected(0, 1)->option_text(value)->group(name);
}

void FlagGroup::add_list(const std::string& names, const std::string& value,
                         const std::string& description, std::vector<std::string>& target) {
  CLI::Option* const option = line.app_->add_option(names, target, description);
  expand_home(option, names, value)->option_text(value)->group(name);
}

void FlagGroup::add_flag(const std::string& names, const std::string& description,
                         std::function<void()> setter) {
  line.app_->add_flag_callback(names, std::move(setter), description)->group(name);
}

bool parse_arguments(CommandLine& line, std::vector<std::string> arguments, bool config) {
  CLI::App& app = *line.app_;
  app.get_formatter()->column_width(44);
  app.get_help_ptr()->group("General");
  if (config) {
    FlagGroup{line, "General"}.add(
        "--config", "FILE",
        "read any of these flags from a TOML file, at its top or in tables named like the groups "
        "of this help; flags on the command line override the file",
        [](std::string_view, std::string_view) {});
  }
  if (arguments == std::vector<std::string>{kAskForFlags}) throw FlagsAsked{describe(app)};
  check_flags(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the last first
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    if (!line.most_used_.empty()) hide_others(app, line.most_used_);
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  if (line.was_given("config")) {
    give_config(line, app.get_option("--config")->results().front(), describe(app).flags);
  }
  return true;
}

void say(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

void flush_results() {
  if (std::fflush(stdout) == 0) return;
  throw std::system_error(errno, std::generic_category(), "standard output");
}

}  // namespace ebb
