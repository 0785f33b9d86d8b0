#include "tools/checkpoint_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "device/errors.h"
#include "io/new_file.h"
#include "model_zoo/checkpoint.h"

namespace ebb {

CheckpointWriter::CheckpointWriter(const SaveFolder& folder, uint64_t keep,
                                   CheckpointContents contents, Notice notice)
    : folder_(folder), keep_(keep), contents_(std::move(contents)), notice_(std::move(notice)) {
  folder_.check_room(contents_.bytes);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::check() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::finish() {
  if (thread_.joinable()) thread_.join();
  check();
}

void CheckpointWriter::save(SavedRun run, Trainer& trainer) {
  finish();  // only one save may lock the state
  thread_ = std::thread([this, run = std::move(run), reader = trainer.lock_state()]() mutable {
    try {
      write(run, std::move(reader));
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  });
}

void CheckpointWriter::write(const SavedRun& run, StateReader reader) const {
  try {
    folder_.check_room(contents_.bytes);
    write_files(run, std::move(reader));
  } catch (const IoError& error) {
    throw IoError(fmt::format("{} is not saved, earlier checkpoints are unchanged; it needs {}, "
                              "and {} are free; cannot write",
                              checkpoint_name(run.position.step), format_bytes(contents_.bytes),
                              format_bytes(folder_.free_bytes())),
                  error.path, error.error_number);
  } catch (const ConfigError& error) {  // the name was free when the run started
    throw Error(
        fmt::format("{} is not saved: {}", checkpoint_name(run.position.step), error.what()));
  }
  const uint64_t step = run.position.step;
  const bool is_best = contents_.keeps_best && std::isfinite(run.best.loss);
  if (is_best && run.best.step == step) link_best(folder_.path(), step, notice_);
  remove_old_checkpoints(folder_.path(), step, keep_,
                         is_best ? std::optional(run.best.step) : std::nullopt, notice_);
}

void CheckpointWriter::write_files(const SavedRun& run, StateReader reader) const {
  const std::string path = checkpoint_path(folder_.path(), run.position.step);
  NewFolder folder(path);
  const std::string state = (std::filesystem::path(folder.path()) / kStateFile).string();
  if (contents_.write_weights) contents_.write_weights(reader, folder.path());
  if (contents_.with_state) {
    write_state(std::move(reader), state, numbers_of(run));
  } else {
    const StateReader ends = std::move(reader);
  }
  write_saved_run(folder.path(), run);
  folder.commit();
  notice_("saved '" + path + "'");
}

}  // namespace ebb
