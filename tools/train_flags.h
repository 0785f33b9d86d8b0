// Declares the flags of `ebb train`, in groups that other commands use too. Parsing checks each
// value and writes it to `options`, which must outlive the parsing (train_options.h checks
// combinations).
#pragma once

#include <string>

#include "tools/train_options.h"

namespace ebb {

class CommandLine;

/// All flags of `ebb train`.
void add_train_flags(CommandLine& line, TrainOptions& options);
/// The flags on which a plan depends: model, shape of a step, clipping and memory.
void add_planned_flags(CommandLine& line, TrainOptions& options);
/// The flags of a run without gradients: model and memory; the second function, its data.
void add_inference_flags(CommandLine& line, TrainOptions& options);
void add_evaluated_data_flags(CommandLine& line, TrainOptions& options);

/// The flags of a command that makes text with a tokenizer, and no tokenizer of text.
void add_tokenizer_flags(CommandLine& line, const std::string& group, TrainOptions& options);

}  // namespace ebb
