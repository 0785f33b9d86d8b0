// The values of the flags of `ebb train` (train_flags.h declares the flags), and the checks of
// their combinations.
//
// Values that depend on the model or the data (the length of a sequence, the vocabulary, chunk
// sizes) are checked later, when these are known. Errors: ConfigError, which names the flag, the
// value and the allowed values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/process_ranks.h"
#include "device/device.h"
#include "device/dtype.h"
#include "io/sample_order.h"
#include "io/token_file.h"
#include "scheduler/run/learning_rate.h"
#include "scheduler/run/trainer.h"
#include "tools/size_parse.h"

namespace ebb {

enum class DeviceChoice : uint8_t { Auto, Host, Cuda };

struct TrainOptions {
  std::string preset;
  std::string model;         ///< a Hugging Face folder, instead of a preset
  bool random_init = false;  ///< use only the configuration of the folder

  std::vector<std::string> data;
  TokenType token_type = TokenType::Auto;
  std::string labels;         ///< a file; empty: the next tokens
  std::string documents;      ///< a file; empty: each sample is one document
  std::string tokenizer;      ///< a folder, or train:N; empty: that of the model
  std::string chat_template;  ///< a file; empty: that of the tokenizer
  DataOrder order = DataOrder::Shuffled;
  std::optional<uint64_t> steps;  ///< 100 if neither steps nor epochs are given
  std::optional<uint64_t> epochs;
  uint64_t micro_batch_size = 4;
  uint64_t gradient_accumulation = 1;
  std::optional<uint64_t> seq_length;  ///< the smaller of 1024 and the model's positions
  std::vector<std::string> eval_data;
  std::string eval_labels, eval_documents;
  std::optional<double> eval_split;  ///< the share of the samples that is held out
  std::optional<uint64_t> eval_steps;
  std::optional<uint64_t> eval_batches;
  std::optional<uint64_t> early_stop;  ///< evaluations without a lower loss
  std::optional<uint64_t> sample_steps;
  std::string sample_prompt = "The";
  uint64_t seed = 1;

  std::optional<double> learning_rate;
  std::optional<double> min_learning_rate;
  std::optional<uint64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  ScheduleShape lr_schedule = ScheduleShape::Cosine;
  std::optional<double> weight_decay;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< 0 = off
  double dropout = 0;

  DType dtype = DType::BF16;
  std::optional<DType> gradient_dtype;  ///< the same as dtype
  DeviceChoice device = DeviceChoice::Auto;
  std::optional<size_t> device_memory;  ///< bytes
  std::optional<size_t> host_memory;    ///< bytes
  std::optional<size_t> pinned;         ///< bytes of host memory; the host device pins none
  size_t chunk_size = size_t{64} << 20;
  ScheduleRequest schedule;
  bool delayed_updates = false;
  LinkRates link;
  std::optional<ComputeRates> emulate_compute;  ///< kernels sleep instead of computing
  uint64_t threads = 0;                         ///< 0: all cores
  std::optional<Arithmetic> arithmetic;         ///< nullopt: the faster one on this processor
  std::optional<AttentionKernels> attention;    ///< nullopt: cuDNN's, if it is installed

  uint64_t ranks = 0;  ///< processes that train together; 0: as the environment says, or one
  std::vector<int> devices = {};   ///< GPUs of the ranks of a machine, in turn; empty: all GPUs
  std::optional<uint64_t> groups;  ///< of micro-batches; nullopt: as many as micro-batches
  DType group_dtype = DType::F32;  ///< of the stored sums of groups: F32 or BF16
  uint64_t nodes = 1;              ///< machines on which the ranks of a plan are
  uint64_t rank_timeout_s = 60;
  RankTransport rank_transport = RankTransport::Auto;
  double network_bytes_per_s = 0;  ///< of an emulated network, or of a plan; 0: not given
  RankPlace place = {};            ///< of this process; no flag sets it
  uint32_t ranks_on_cores = 1;     ///< that use the cores of this process; no flag sets it

  std::string log;
  std::string trace;
  std::string save;  ///< folder of checkpoints; empty: none are saved
  std::optional<uint64_t> save_steps;
  std::optional<uint64_t> save_keep;  ///< nullopt: all
  bool save_weights_only = false;
  bool save_best = false;
  std::optional<DType> save_dtype;    ///< the same as dtype
  std::optional<std::string> resume;  ///< empty: the newest checkpoint in `save`
  bool dry_run = false;

  /// What tokenize_text() found (text_data.h); no flag sets it.
  struct Text {
    std::string tokenizer;   ///< the folder of a tokenizer other than the model's; empty: none
    int64_t vocabulary = 0;  ///< of that tokenizer
    bool has_conversations = false;  ///< --data is conversations
    std::vector<std::string> notices;
  } text = {};

  bool is_packed() const { return !documents.empty() || !eval_documents.empty(); }
  bool evaluates() const { return !eval_data.empty() || eval_split; }
  bool loads_weights() const { return !model.empty() && !random_init; }

  // The given value, or the default. Loaded weights are fine-tuned, with a lower learning rate that
  // falls to 0 and without weight decay.
  double peak_learning_rate() const {
    return learning_rate.value_or(loads_weights() ? 1e-5 : 3e-4);
  }
  double final_learning_rate() const {
    return min_learning_rate.value_or(loads_weights() ? 0 : peak_learning_rate() / 10);
  }
  double decay() const { return weight_decay.value_or(loads_weights() ? 0 : 0.1); }
  uint64_t steps_per_evaluation() const { return eval_steps.value_or(100); }
  uint64_t batches_per_evaluation() const { return eval_batches.value_or(16); }
  uint64_t steps_per_save() const { return save_steps.value_or(500); }
};

/// --tokenizer train:N trains a vocabulary of N tokens.
inline constexpr std::string_view kTrainPrefix = "train:";
/// Whether --tokenizer is train:N.
bool trains_tokenizer(const TrainOptions& options);

/// Throws ConfigError for a combination of flags that cannot work.
void validate(const TrainOptions& options);
void validate_planned(const TrainOptions& options);

}  // namespace ebb
