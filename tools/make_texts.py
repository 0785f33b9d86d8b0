#!/usr/bin/env python3
"""Writes the manual page and the shell completions of ebb: ebb.1, ebb.bash, _ebb (zsh) and ebb.fish.

Usage: make_texts.py EBB FOLDER
EBB is the program; `EBB --flags-json` describes its commands and their flags, so each flag is declared in one place.
"""

import json
import pathlib
import re
import subprocess
import sys


def add_proposals(flag):
    """What a shell can propose as the value: the words between bars that stand for themselves, and files."""
    words = flag["value"].split(" ")[0].split("|")
    flag["choices"] = [word for word in words if re.fullmatch(r"[a-z0-9-]+", word)] + flag["names_of_value"]
    flag["file"] = any(place in word for word in words for place in ("FILE", "DIR", "PATH"))
    return flag


def read_description(text):
    """The commands and flags as `ebb --flags-json` prints them, with what a shell can propose for each value."""
    description = json.loads(text)
    for command in description["commands"]:
        command["flags"] = [add_proposals(flag) for flag in command["flags"]]
    return description


def quoted(text):
    """In single quotes of bash and zsh. A single quote closes them, is escaped, and opens them again."""
    return "'" + text.replace("'", "'\\''") + "'"


def escaped(text, special):
    return "".join("\\" + c if c in special else c for c in text)


# ---- bash

BASH = r"""# Completion of ebb for bash: source this file, or copy it to a folder of bash-completion.
_ebb_words() { COMPREPLY+=($(compgen -W "$1" -- "$word")); }
_ebb_files() { compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$word")); }
_ebb() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _ebb_words '@COMMANDS@ --help --version'
    return
  fi
  # bash splits --flag=value into three words.
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case "$command $before" in
@VALUES@  esac
  case "$word" in
    -* | '') ;;
    *) _ebb_files ;;
  esac
  case "$command" in
@FLAGS@  esac
}
complete -F _ebb ebb
"""


def bash_values(commands):
    """One line of `case "$command $before"` for all flags that propose the same values."""
    flags_of_action = {}
    for command in commands:
        for flag in command["flags"]:
            if flag["takes"] == "nothing":
                continue
            action = f"_ebb_words {quoted(' '.join(flag['choices']))}; " if flag["choices"] else ""
            action += "_ebb_files; " if flag["file"] else ""
            flags_of_action.setdefault(action, []).extend(f"'{command['name']} {name}'" for name in flag["names"])
    return "".join(f"    {' | '.join(flags)}) {action}return ;;\n" for action, flags in flags_of_action.items())


def bash_completion(commands):
    flags = "".join(f"    {command['name']}) _ebb_words "
                    f"{quoted(' '.join(name for flag in command['flags'] for name in flag['names']))} ;;\n"
                    for command in commands)
    names = " ".join(command["name"] for command in commands)
    return BASH.replace("@COMMANDS@", names).replace("@VALUES@", bash_values(commands)).replace("@FLAGS@", flags)


# ---- zsh

ZSH = r"""#compdef ebb
# Completion of ebb for zsh: copy this file as _ebb to a folder of $fpath, or source it.
_ebb() {
  local -a commands
  commands=(
@COMMANDS@  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    return
  fi
  local command=${words[2]}
  shift words
  (( CURRENT-- ))
  case $command in
@FLAGS@  esac
}
if [ "$funcstack[1]" = _ebb ]; then
  _ebb "$@"
else
  compdef _ebb ebb
fi
"""


def zsh_flag(flag):
    value = ""
    if flag["takes"] != "nothing":
        proposals = f"({' '.join(flag['choices'])})" if flag["choices"] else "_files" if flag["file"] else " "
        gap = "::" if flag["takes"] == "perhaps" else ":"  # two colons: the value is optional
        value = f"{gap}{escaped(flag['value'].split(' ')[0], '[]:')}:{proposals}"
    repeated = "*" if flag["takes"] == "several" else ""
    return "".join(f"      {quoted(repeated + name + '[' + escaped(flag['description'], '[]:') + ']' + value)} \\\n"
                   for name in flag["names"])


def zsh_completion(commands):
    names = "".join(f"    {quoted(command['name'] + ':' + escaped(command['summary'], ':'))}\n" for command in commands)
    flags = "".join(f"    {command['name']})\n      _arguments \\\n{''.join(map(zsh_flag, command['flags']))}"
                    "      && return\n      ;;\n" for command in commands)
    return ZSH.replace("@COMMANDS@", names).replace("@FLAGS@", flags)


# ---- fish

def fish_flag(command, flag):
    line = f"complete -c ebb -n '__fish_seen_subcommand_from {command}'"
    line += "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag["names"])
    line += " -r -F" if flag["file"] else " -x" if flag["takes"] in ("one", "several") else ""
    line += f" -a '{' '.join(flag['choices'])}'" if flag["choices"] else ""
    description = escaped(flag["description"], "\\'")
    return f"{line} -d '{description}'\n"


def fish_completion(commands):
    lines = ["# Completion of ebb for fish: copy this file to a folder of $fish_complete_path.\ncomplete -c ebb -f\n"]
    for command in commands:
        summary = escaped(command["summary"], "\\'")
        lines.append(f"complete -c ebb -n __fish_use_subcommand -a {command['name']} -d '{summary}'\n")
    lines += [fish_flag(command["name"], flag) for command in commands for flag in command["flags"]]
    return "".join(lines)


# ---- The manual page, in the language of man

MAN_HEAD = r""".TH EBB 1 "" "Ebb @VERSION@" "Ebb"
.SH NAME
ebb \- train transformers that are larger than the memory of the device
.SH SYNOPSIS
\fBebb\fR \fICOMMAND\fR [\fIFLAGS\fR]
.br
\fBebb\fR \fICOMMAND\fR \fB\-\-help\fR
.br
\fBebb \-\-version\fR
.SH DESCRIPTION
Ebb stores the weights, the gradients and the optimizer state of a model in host memory. It copies them to the device in
chunks, by a plan that is made before the first step. Sizes have binary or decimal units (256MiB, 16GB) or are plain
bytes. Defaults are in brackets.
"""
MAN_TAIL = r""".SH EXIT STATUS
.TP
0
success
.TP
1
a failure while running
.TP
2
an unknown flag, an impossible combination, a wrong value, or an input file that cannot be used
.TP
3
the plan does not fit; the message has the smallest sizes that would fit
.TP
130, 143, 129, 138
stopped by Ctrl\-C, SIGTERM, SIGHUP or SIGUSR1, after the step was finished (and saved, with \fB\-\-save\fR)
.SH FILES
.TP
\fI$XDG_CACHE_HOME/ebb\fR, \fI~/.cache/ebb\fR
the measured rates of this machine; they are measured again when the folder is removed
"""


def man_text(text):
    """A dash that can be copied, a backslash that is printed, and no line that begins like a request."""
    start = "\\&" if text.startswith((".", "'")) else ""
    return start + text.replace("\\", "\\e").replace("-", "\\-")


def man_flag(flag):
    names = ", ".join(f"\\fB{man_text(name)}\\fR" for name in flag["names"])
    value = f" \\fI{man_text(flag['value'])}\\fR" if flag["value"] else ""
    return f".TP\n{names}{value}\n{man_text(flag['description'])}\n"


def man_command(command):
    text = f".SH EBB {command['name'].upper()}\n{man_text(command['description'])}\n"
    for group in dict.fromkeys(flag["group"] for flag in command["flags"]):
        text += f".SS {man_text(group)}\n"
        text += "".join(man_flag(flag) for flag in command["flags"] if flag["group"] == group)
    return text


def man_page(commands, version):
    summaries = "".join(f".TP\n\\fBebb {command['name']}\\fR\n{man_text(command['summary'])}\n" for command in commands)
    return (MAN_HEAD.replace("@VERSION@", man_text(version)) + summaries + "".join(map(man_command, commands)) +
            MAN_TAIL)


def make_texts(description):
    """The content of each file."""
    commands = description["commands"]
    return {
        "ebb.1": man_page(commands, description["version"]),
        "ebb.bash": bash_completion(commands),
        "_ebb": zsh_completion(commands),
        "ebb.fish": fish_completion(commands),
    }


def main(ebb, folder):
    description = read_description(subprocess.run([ebb, "--flags-json"], capture_output=True, text=True, check=True).stdout)
    for name, text in make_texts(description).items():
        (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
