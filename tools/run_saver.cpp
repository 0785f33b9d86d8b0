#include "tools/run_saver.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "model_zoo/checkpoint.h"
#include "model_zoo/model_files.h"

namespace ebb {
namespace {

// Allowance for config.json, flags, headers and folders. A tokenizer may need more.
constexpr uint64_t kSmallFilesBytes = uint64_t{1} << 20;

/// The folder of the tokenizer and similar files. If the model's folder is a checkpoint that
/// --save-keep has removed, the newest checkpoint has these files too. If there is none, the
/// checkpoint is saved without these files, with a newly written config.json.
std::string model_files(const std::string& model, const std::string& saves) {
  std::error_code error;
  if (model.empty() || std::filesystem::exists(model, error)) return model;
  const std::vector<uint64_t> steps = saved_steps(saves);
  return steps.empty() ? "" : checkpoint_path(saves, steps.back());
}

CheckpointContents contents_of(const TrainOptions& options, const TrainSetup& setup) {
  const Layout& layout = *setup.prepared.layout;
  const DType type = options.save_dtype.value_or(options.dtype);
  const auto write_companions = [&setup, type, saves = options.save](const std::string& folder) {
    write_model_files(model_files(setup.source.folder, saves), setup.source.config, type, folder);
    const std::string& tokenizer = setup.source.tokenizer;
    if (tokenizer.empty() || tokenizer == setup.source.folder) return;
    replace_companions(model_files(tokenizer, saves), folder);
  };
  const bool with_state = !options.save_weights_only;
  return {.files = {.tensors = map_tensors(setup.source.config, setup.model->parameters()),
                    .weight_type = type,
                    .state_file = with_state ? kStateFile : ""},
          .write_companions = write_companions,
          .keeps_best = options.save_best,
          .bytes = kSmallFilesBytes + layout.num_model_parameters() * size_of(type) +
                   (with_state ? state_file_bytes(layout) : 0)};
}

}  // namespace

RunPosition position_at(uint64_t step, const RunPosition& start, const BatchShape& shape) {
  const uint64_t steps = step - start.step;
  return {.step = step,
          .num_samples = start.num_samples + steps * shape.num_samples(),
          .num_tokens = start.num_tokens + steps * shape.num_tokens()};
}

RunSaver::RunSaver(const TrainOptions& options, const TrainSetup& setup, const SaveFolder* folder,
                   RunConfig config, std::string run_id, const RunPosition& start, Notice notice)
    : setup_(setup),
      config_(std::move(config)),
      run_id_(std::move(run_id)),
      hashes_(folder != nullptr ? data_hashes(setup) : DataHashes{}),
      written_by_(written_by(options, setup)),
      saved_step_(start.step),
      writer_(folder, setup.ranks, options.save_keep.value_or(0), contents_of(options, setup),
              std::move(notice)) {}

void RunSaver::save(Trainer& trainer, const RunPosition& position, std::string log_line,
                    const BestEvaluation& best) {
  if (position.step == saved_step_) return;
  saved_step_ = position.step;
  writer_.save({.position = position,
                .data_tokens = setup_.data.tokens->num_tokens(),
                .data_hash = hashes_.data,
                .labels_hash = hashes_.labels,
                .written_by = written_by_,
                .config = config_,
                .run_id = run_id_,
                .log_line = std::move(log_line),
                .best = best},
               trainer);
}

}  // namespace ebb
