#include "tools/commands.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "device/errors.h"
#include "system/pages.h"
#include "tools/cli.h"
#include "tools/flags_json.h"
#include "tools/nearest_name.h"
#include "tools/nearest_path.h"
#include "tools/option_flags.h"
#include "tools/printable.h"

namespace ebb {
namespace {

struct Command {
  std::string_view name;
  std::string_view description;
  int (*run)(std::vector<std::string>);
};

constexpr Command kCommands[] = {
    {"train", "train a model on text or token files", train_command},
    {"plan", "plan a run for this machine or another, before it starts", plan_command},
    {"profile", "train a few steps and show how they spend their time", profile_command},
    {"eval", "measure the mean loss and perplexity of a model on data", eval_command},
    {"generate", "continue a text", generate_command},
    {"convert", "write a model folder's weights in another type or in other files",
     convert_command},
    {"models", "list the presets", models_command},
    {"devices", "show CPU, memory, limits and GPUs of this machine", devices_command},
};

std::string usage() {
  std::string text =
      "ebb trains transformers that are larger than the memory of the device.\n\n"
      "Usage: ebb COMMAND [FLAGS]\n       ebb COMMAND --help\n       ebb --version\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<12}{}\n", command.name, command.description);
  }
  return text;
}

int report(std::string_view error, int exit_code) {
  say(fmt::format("ebb: error: {}\n", with_flags(error)));
  return exit_code;
}

/// An error with the list of commands.
int report_usage(const std::string& error) {
  return report(printable(error) + "\n\n" + usage(), kExitBadArguments);
}

/// A suggestion if there is no such file.
std::string suggestion_for(const InputError& error) {
  return error.error_number == ENOENT ? did_you_mean(nearest_path(error.path, Among::All)) : "";
}

/// An allocation failed that is not part of a plan.
std::string out_of_memory_text() {
  const std::string limit = address_limit_text();
  return "out of host memory: the system refused an allocation; " +
         (limit.empty() ? "give a smaller --host-memory, or stop other programs" : limit);
}

/// A thread cannot start. oneTBB throws a runtime_error with this text instead of a system_error.
bool is_of_thread(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr) return system->code() == std::errc::resource_unavailable_try_again;
  return std::string_view(error.what()).starts_with("pthread_create");
}

std::string no_thread_text(const std::exception& error) {
  const std::string addresses = address_limit_text();
  rlimit limit = {};
  const bool is_limited = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format(
      "cannot start a thread: {}; give a smaller --threads, or raise the limit of threads (ulimit "
      "-u is {}; a cgroup may have a lower pids.max){}",
      error.what(), is_limited ? fmt::to_string(limit.rlim_cur) : "unlimited",
      addresses.empty() ? "" : "; the stack of a thread needs addresses, and " + addresses);
}

/// Every command with its flags, as its --help shows them.
std::vector<CommandFlags> described_commands() {
  std::vector<CommandFlags> all;
  for (const Command& command : kCommands) {
    try {
      command.run({kAskForFlags});
    } catch (FlagsAsked& asked) {
      asked.command.name = command.name;
      asked.command.summary = command.description;
      all.push_back(std::move(asked.command));
    }
  }
  return all;
}

/// "; it is a flag of `ebb train`" if other commands have the flag.
std::string owners_text(const std::string& flag) {
  std::string owners;
  for (const CommandFlags& command : described_commands()) {
    const auto has_name = [&](const Flag& f) {
      return std::ranges::count(f.names, "--" + flag) > 0;
    };
    if (!std::ranges::any_of(command.flags, has_name)) continue;
    owners += fmt::format("{}`ebb {}`", owners.empty() ? "" : ", ", command.name);
  }
  return owners.empty() ? "" : "; it is a flag of " + owners;
}

int dispatch(std::vector<std::string> arguments) {
  if (arguments.empty()) return report_usage("a command is missing");
  if (arguments.front() == "help") {  // `ebb help train` is `ebb train --help`
    std::ranges::rotate(arguments, arguments.begin() + 1);
    arguments.back() = "--help";
  }
  const std::string name = arguments.front();
  if (name == "--version") return fmt::print("ebb {}\n", EBB_VERSION), 0;
  if (name == "--help" || name == "-h") return fmt::print("{}", usage()), 0;
  if (name == "--flags-json") {  // for make_texts.py, so usage() leaves it out
    return fmt::print("{}", flags_json(described_commands(), EBB_VERSION)), 0;
  }
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    arguments.erase(arguments.begin());
    try {
      return command.run(std::move(arguments));
    } catch (const UnknownFlag& error) {
      throw ConfigError(error.what() + owners_text(error.name));
    }
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return report_usage(
      fmt::format("unknown command '{}'{}", name, did_you_mean(nearest_name(name, names))));
}

int run_and_report(std::vector<std::string> arguments, int& stdout_error) {
  try {
    return dispatch(std::move(arguments));
  } catch (const PlanError& error) {
    return report(printable_lines(error.what()), kExitDoesNotFit);  // it contains a table
  } catch (const OutOfMemory& error) {
    return report(printable_lines(error.what()), kExitDoesNotFit);
  } catch (const ConfigError& error) {
    return report(printable(error.what()), kExitBadArguments);
  } catch (const FormatError& error) {
    return report(printable(error.what()), kExitBadArguments);
  } catch (const InputError& error) {
    return report(printable(error.what() + suggestion_for(error)), kExitBadArguments);
  } catch (const std::bad_alloc&) {
    return report(out_of_memory_text(), kExitDoesNotFit);
  } catch (const std::exception& error) {
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) {
      stdout_error = system->code().value();  // fmt's message names no file
      return kExitFailed;
    }
    if (!is_of_thread(error)) return report(printable(error.what()), kExitFailed);
    return report(no_thread_text(error),
                  address_limit_text().empty() ? kExitFailed : kExitDoesNotFit);
  }
}

/// Changes what the library must not change for the programs that embed it.
void prepare_process() {
  // A write beyond the limit of file sizes (ulimit -f) is then an error of write().
  std::signal(SIGXFSZ, SIG_IGN);
  // Each file of a data set stays open. The usual limit of 1024 is for programs that use select().
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int run_command(std::vector<std::string> arguments) {
  prepare_process();
  int stdout_error = 0;
  const int exit_code = run_and_report(std::move(arguments), stdout_error);
  if (std::fflush(stdout) != 0) stdout_error = errno;
  if (stdout_error == 0) return exit_code;
  say(fmt::format("ebb: error: cannot write to standard output: {}\n",
                  std::strerror(stdout_error)));
  return exit_code != 0 ? exit_code : kExitFailed;
}

}  // namespace ebb
