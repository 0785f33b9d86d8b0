#include "tools/completion.h"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace ebb {
namespace {

/// Inside single quotes of bash and zsh: a quote ends them, is escaped, and begins them again.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string names_of_flags(const CommandFlags& command) {
  std::string names;
  for (const Flag& flag : command.flags) {
    if (flag.positional) {
      names += fmt::format("{} ", fmt::join(flag.choices, " "));
    } else {
      names += fmt::format("{} ", fmt::join(flag.names, " "));
    }
  }
  if (!names.empty()) names.pop_back();
  return names;
}

/// A case of bash's `case "$command $before"`: the flags of all commands that propose the same.
std::map<std::string, std::vector<std::string>> bash_cases(std::span<const CommandFlags> commands) {
  std::map<std::string, std::vector<std::string>> flags_by_action;
  for (const CommandFlags& command : commands) {
    for (const Flag& flag : command.flags) {
      if (flag.positional || flag.takes == Flag::Takes::Nothing) continue;
      std::string action;
      if (!flag.choices.empty())
        action +=
            fmt::format("_ebb_words {}; ", quoted(fmt::to_string(fmt::join(flag.choices, " "))));
      if (flag.file) action += "_ebb_files; ";
      for (const std::string& name : flag.names) {
        flags_by_action[action].push_back(fmt::format("'{} {}'", command.name, name));
      }
    }
  }
  return flags_by_action;
}

std::string zsh_flag(const Flag& flag) {
  std::string value;
  if (flag.takes != Flag::Takes::Nothing) {
    const std::string proposals = !flag.choices.empty()
                                      ? fmt::format("({})", fmt::join(flag.choices, " "))
                                      : std::string(flag.file ? "_files" : " ");
    const std::string placeholder = escaped(flag.value.substr(0, flag.value.find(' ')), "[]:");
    // Two colons: the value may be left out.
    const char* gap = flag.takes == Flag::Takes::Perhaps ? "::" : ":";
    value = fmt::format("{}{}:{}", gap, placeholder, proposals);
  }
  if (flag.positional) return fmt::format("      {} \\\n", quoted(value));
  const char* again = flag.takes == Flag::Takes::Several ? "*" : "";
  std::string text;
  for (const std::string& name : flag.names) {
    text += fmt::format(
        "      {} \\\n",
        quoted(fmt::format("{}{}[{}]{}", again, name, escaped(flag.description, "[]:"), value)));
  }
  return text;
}

/// A name without its dashes, as fish wants it.
std::string fish_name(const std::string& name) {
  return name.starts_with("--") ? fmt::format("-l {}", name.substr(2))
                                : fmt::format("-s {}", name.substr(1));
}

std::string fish_flag(const std::string& command, const Flag& flag) {
  std::string line = fmt::format("complete -c ebb -n '__fish_seen_subcommand_from {}'", command);
  if (!flag.positional) {
    for (const std::string& name : flag.names) line += fmt::format(" {}", fish_name(name));
  }
  if (flag.file) {
    line += " -r -F";
  } else if (flag.takes == Flag::Takes::One || flag.takes == Flag::Takes::Several) {
    line += flag.positional ? "" : " -x";
  }
  if (!flag.choices.empty()) line += fmt::format(" -a '{}'", fmt::join(flag.choices, " "));
  return line + fmt::format(" -d '{}'\n", escaped(flag.description, "\\'"));
}

}  // namespace

std::string bash_completion(std::span<const CommandFlags> commands) {
  std::string names, flags;
  for (const CommandFlags& command : commands) {
    names += command.name + " ";
    flags +=
        fmt::format("    {}) _ebb_words {} ;;\n", command.name, quoted(names_of_flags(command)));
  }
  std::string values;
  for (const auto& [action, names_of_case] : bash_cases(commands)) {
    values += fmt::format("    {}) {}return ;;\n", fmt::join(names_of_case, " | "), action);
  }
  return fmt::format(
      R"(# Completion of ebb for bash: source it, or put it into a folder of bash-completion.
_ebb_words() {{ COMPREPLY+=($(compgen -W "$1" -- "$word")); }}
_ebb_files() {{ compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$word")); }}
_ebb() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _ebb_words '{}--help --version'
    return
  fi
  # --flag=value comes as three words.
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  case "$command $before" in
{}  esac
  case "$word" in
    -* | '') ;;
    *) _ebb_files ;;
  esac
  case "$command" in
{}  esac
}}
complete -F _ebb ebb
)",
      names, values, flags);
}

std::string zsh_completion(std::span<const CommandFlags> commands) {
  std::string names, flags;
  for (const CommandFlags& command : commands) {
    names += fmt::format("    {}\n", quoted(command.name + ":" + escaped(command.summary, ":")));
    flags += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const Flag& flag : command.flags) flags += zsh_flag(flag);
    flags += "      && return\n      ;;\n";
  }
  return fmt::format(R"(#compdef ebb
# Completion of ebb for zsh: a file _ebb in a folder of $fpath, or source it.
_ebb() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    return
  fi
  local command=${{words[2]}}
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _ebb ]; then
  _ebb "$@"
else
  compdef _ebb ebb
fi
)",
                     names, flags);
}

std::string fish_completion(std::span<const CommandFlags> commands) {
  std::string text =
      "# Completion of ebb for fish: a file ebb.fish in a folder of $fish_complete_path.\n"
      "complete -c ebb -f\n";
  for (const CommandFlags& command : commands) {
    text += fmt::format("complete -c ebb -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        escaped(command.summary, "\\'"));
  }
  for (const CommandFlags& command : commands) {
    for (const Flag& flag : command.flags) text += fish_flag(command.name, flag);
  }
  return text;
}

}  // namespace ebb
