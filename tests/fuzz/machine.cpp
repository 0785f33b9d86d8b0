// Machine files (--machine FILE), and the rates of this machine that are kept in the cache folder.
#include "fuzz/fuzz.h"
#include "tools/kept_file.h"
#include "tools/machine_rates.h"
#include "tools/planned_machine.h"

namespace ebb::fuzz {
namespace {

void check_machine_file(const std::string& path) {
  PlannedMachine machine;
  if (!is_accepted([&] { machine = find_machine(path); })) return;
  note_accepted();
  require(machine.device_memory_bytes > 0 && machine.host_memory_bytes > 0, "memory is above 0");
  require(machine.num_threads > 0, "there is a thread");
  const std::string text = to_json(machine);
  must_accept([&] {
    const PlannedMachine again = find_machine(write_file("machine.json", bytes_of(text)));
    require(to_json(again) == text, "a machine that was written is the same");
  });
}

void check_kept_rates(const std::string& path) {
  const RatesKey key{.cpu = "cpu", .device = "device"};
  const auto machine = rates_from_json(read_kept(path), key);
  if (!machine) return;
  const std::string text = to_json(key, *machine);
  const auto again = rates_from_json(text, key);
  require(again && to_json(key, *again) == text, "rates that were written are the same");
}

}  // namespace

void test_input(Bytes input) {
  const std::string path = write_file("machine.json", input);
  check_kept_rates(path);
  check_machine_file(path);
}

}  // namespace ebb::fuzz
