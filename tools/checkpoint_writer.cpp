#include "tools/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "device/errors.h"
#include "io/input_file.h"
#include "tools/rank_processes.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

// Begins as the name of a file of a checkpoint, so that what a killed run leaves is removed.
constexpr const char* kNonceFile = "training.json.nonce";

constexpr size_t kNonceLength = 16;

std::string new_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// Whether the folder is the one in which rank 0 wrote this nonce.
bool has_nonce(const std::string& folder, const std::string& nonce) {
  try {
    return read_input_file((fs::path(folder) / kNonceFile).string(), "nonce", 64) == nonce;
  } catch (const Error&) {
    return false;
  }
}

std::string as_text(const std::vector<uint64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint64_t)};
}

std::vector<uint64_t> as_numbers(const std::string& text) {
  std::vector<uint64_t> numbers(text.size() / sizeof(uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(uint64_t));
  return numbers;
}

}  // namespace

/// A save that has begun.
struct CheckpointWriter::Save {
  SavedRun run;
  std::string path = {};                           // of the unfinished folder
  std::optional<NewFolder> folder = {};            // on rank 0
  std::optional<CheckpointPart> part = {};         // none: this rank does not see the files
  OwnerSet owners = {true};                        // whose chunks this rank writes
  std::vector<std::vector<uint64_t>> others = {};  // on rank 0: what the other ranks have written
};

CheckpointWriter::CheckpointWriter(const SaveFolder* folder, Ranks* ranks, uint64_t keep,
                                   CheckpointContents contents, Notice notice)
    : folder_(folder),
      ranks_(ranks),
      keep_(keep),
      contents_(std::move(contents)),
      notice_(std::move(notice)) {
  if (folder_ != nullptr) folder_->check_room(contents_.bytes);
}

CheckpointWriter::~CheckpointWriter() {
  is_abandoned_ = ranks_ != nullptr;
  if (thread_.joinable()) thread_.join();
}

template <class Work>
void CheckpointWriter::start(Save& save, Work work) {
  is_ended_ = false;
  thread_ = std::thread([this, &save, work = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      naming_step(save, work);
    } catch (const RankLost&) {
      // The next collective call throws it, with the reason.
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard lock(mutex_);
      is_ended_ = true;
      error_ = error;
    }
    ended_.notify_all();
  });
}

/// While rank 0 completes a checkpoint, other ranks may wait for it.
void CheckpointWriter::join() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::seconds(1), [&] { return is_ended_; })) {
      if (ranks_ != nullptr && !is_writing_) ranks_->progress();
    }
  }
  thread_.join();
}

void CheckpointWriter::rethrow() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool CheckpointWriter::has_ended() {
  std::lock_guard lock(mutex_);
  return is_ended_;
}

/// Removes the files before it says how much is free.
template <class Work>
void CheckpointWriter::naming_step(Save& save, Work&& work) const {
  const std::string name = checkpoint_name(save.run.position.step);
  const auto remove_files = [&] {
    save.part.reset();
    save.folder.reset();
  };
  try {
    work();
  } catch (const IoError& error) {
    remove_files();
    throw IoError(fmt::format("{} is not saved, earlier checkpoints are unchanged; it needs {}, "
                              "and {} are free; cannot write",
                              name, format_bytes(contents_.bytes), format_bytes(free_bytes(save))),
                  error.path, error.error_number);
  } catch (const ConfigError& error) {  // the name was free when the run started
    remove_files();
    throw Error(fmt::format("{} is not saved: {}", name, error.what()));
  } catch (...) {
    remove_files();
    throw;
  }
}

uint64_t CheckpointWriter::free_bytes(const Save& save) const {
  if (folder_ != nullptr) return folder_->free_bytes();
  std::error_code ignored;
  return fs::space(save.path, ignored).available;
}

/// A rank that is lost must not wait until all is written.
void CheckpointWriter::progress() const {
  if (ranks_ == nullptr) return;
  if (is_abandoned_ || ranks_->has_failed()) throw RankLost("a rank has failed during a save");
  ranks_->progress();
}

void CheckpointWriter::save(SavedRun run, Trainer& trainer) {
  finish();  // only one save may lock the state
  StateReader reader = trainer.lock_state();
  save_ = std::make_unique<Save>();
  save_->run = std::move(run);
  Save& save = *save_;
  if (ranks_ == nullptr) {
    return start(save, [this, &save, reader = std::move(reader)]() mutable {
      begin(save, reader);
      write(save, std::move(reader));
      complete(save);
    });
  }
  bool each_writes = false;
  naming_step(save, [&] {
    if (folder_ != nullptr) begin(save, reader);
    each_writes = share_out(save, reader);
  });
  is_writing_ = true;
  start(save,
        [this, &save, reader = std::move(reader)]() mutable { write(save, std::move(reader)); });
  if (!each_writes) finish();  // rank 0 reads the state of others
}

void CheckpointWriter::check() {
  rethrow();
  if (is_writing_ && greatest_of_ranks(ranks_, has_ended() ? 0 : 1) == 0) gather();
}

void CheckpointWriter::finish() {
  if (is_writing_) gather();
  join();
  rethrow();
  save_.reset();
}

/// Makes the files.
void CheckpointWriter::begin(Save& save, const StateReader& reader) const {
  folder_->check_room(contents_.bytes);
  save.folder.emplace(checkpoint_path(folder_->path(), save.run.position.step));
  save.path = fs::absolute(save.folder->path()).string();
  save.part.emplace(save.path, FileUse::Create, contents_.files, reader, numbers_of(save.run));
}

/// Finds out which ranks see the files. A folder of the same name may be on another disk, so rank 0
/// leaves a number in it. Returns whether each rank writes its own chunks. Collective.
bool CheckpointWriter::share_out(Save& save, const StateReader& reader) {
  const bool is_first = ranks_->rank() == 0;
  const std::string nonce = is_first ? new_nonce() : "";
  const std::string nonce_file = save.path + "/" + kNonceFile;
  if (is_first) write_new_file(nonce_file, nonce);
  const std::string announced = texts_of_ranks(ranks_, nonce + save.path)[0];
  if (!is_first) {
    save.path = announced.substr(kNonceLength);
    if (has_nonce(save.path, announced.substr(0, kNonceLength))) {
      save.part.emplace(save.path, FileUse::Join, contents_.files, reader, numbers_of(save.run));
    }
  }
  const auto sees = all_of_ranks(*ranks_, static_cast<uint8_t>(save.part.has_value()));
  save.owners.assign(ranks_->size(), false);
  save.owners[ranks_->rank()] = save.part.has_value();
  const auto blind = static_cast<uint32_t>(std::ranges::find(sees, 0) - sees.begin());
  if (is_first) {
    std::error_code ignored;
    fs::remove(nonce_file, ignored);
    for (uint32_t r = 0; r < ranks_->size(); ++r) save.owners[r] = r == 0 || sees[r] == 0;
  }
  if (blind == ranks_->size()) return true;
  if (is_first && !std::exchange(has_said_, true)) {
    notice_(
        fmt::format("rank {} does not see '{}' (its machine has another file system there), so "
                    "rank 0 writes the state of such ranks, and all wait for it",
                    blind, folder_->path()));
  }
  return false;
}

void CheckpointWriter::write(Save& save, StateReader reader) const {
  if (save.part) save.part->write(std::move(reader), save.owners, [this] { progress(); });
}

/// Waits until all ranks have written. Then rank 0 begins to complete the checkpoint. Collective.
void CheckpointWriter::gather() {
  join();
  rethrow();
  const std::vector<std::string> all =
      texts_of_ranks(ranks_, save_->part ? as_text(save_->part->summary()) : "");
  is_writing_ = false;
  if (folder_ == nullptr) return save_.reset();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (!all[rank].empty()) save_->others.push_back(as_numbers(all[rank]));
  }
  start(*save_, [this] { complete(*save_); });
}

void CheckpointWriter::complete(Save& save) const {
  const uint64_t step = save.run.position.step;
  save.part->finish(save.others);
  contents_.write_companions(save.path);
  write_saved_run(save.path, save.run);
  save.folder->commit();
  notice_("saved '" + checkpoint_path(folder_->path(), step) + "'");
  const bool is_best = contents_.keeps_best && std::isfinite(save.run.best.loss);
  if (is_best && save.run.best.step == step) link_best(folder_->path(), step, notice_);
  remove_old_checkpoints(folder_->path(), step, keep_,
                         is_best ? std::optional(save.run.best.step) : std::nullopt, notice_);
}

}  // namespace ebb
