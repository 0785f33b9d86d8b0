// training.json of a checkpoint.
#include "fuzz/fuzz.h"
#include "tools/saved_run.h"

namespace ebb::fuzz {

void test_input(Bytes input) {
  write_file(kTrainingFile, input);
  SavedRun run;
  if (!is_accepted([&] { run = read_saved_run(folder()); })) return;
  note_accepted();
  must_accept([&] {
    write_saved_run(folder(), run);
    run.is_protected = true;
    require(read_saved_run(folder()) == run, "a run that was written is the same");
  });
}

}  // namespace ebb::fuzz
