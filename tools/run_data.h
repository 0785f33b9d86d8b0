// Opens the data of a run and checks it against the flags and the model.
//
// Input that cannot be meant is refused, and the message shows the command that makes what is
// needed. Input that is left out or has an unusual meaning is reported in notices.
//
// Errors: ConfigError naming the flag or the file, FormatError and IoError (the files).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/document_file.h"
#include "io/label_file.h"
#include "io/token_data.h"
#include "io/token_record.h"
#include "tools/batches.h"
#include "tools/model_source.h"
#include "tools/train_options.h"

namespace ebb {

/// Files that annotate token data; null if the flag was not given.
struct Annotations {
  std::shared_ptr<const LabelFile> labels;
  std::shared_ptr<const DocumentFile> documents;
};

/// The values of the flags of one data set.
struct DataFlags {
  std::string_view prefix;  ///< "--" or "--eval-"
  const std::vector<std::string>& paths;
  TokenType token_type;
  const std::string &labels, &documents;  ///< files; empty: not given
};
DataFlags training_data(const TrainOptions& options);
DataFlags evaluation_data(const TrainOptions& options);

/// Copies share the files.
struct RunData {
  std::shared_ptr<TokenData> tokens;
  Annotations annotations;
  std::shared_ptr<const std::vector<uint64_t>> chosen;  ///< samples; null: all (SampleSource)
  std::vector<std::string> notices;  ///< those that are not of the training data name the flag

  SampleSource samples() const {
    return {*tokens, annotations.labels.get(), annotations.documents.get(), chosen.get()};
  }
  uint64_t num_samples(int64_t length) const {
    return chosen ? chosen->size() : tokens->num_samples(static_cast<size_t>(length));
  }
};

/// `least_samples`: refuses data that has fewer samples of `shape.length` tokens.
RunData open_run_data(const DataFlags& flags, const ModelSource& source, const BatchShape& shape,
                      uint64_t least_samples);

/// Moves a share of the samples of `training` to the result. Throws ConfigError if none is held
/// out, or if fewer than a micro-batch stay.
RunData hold_out(RunData& training, const BatchShape& shape, double share);

/// Notices about evaluation data beside training data: a file that both read, and annotations that
/// only the training has.
std::vector<std::string> evaluation_notices(const TrainOptions& options, const TokenData& training,
                                            const TokenData& evaluation);

/// "353 tokens (bytes) in 2 files; 11 samples, the last 8 tokens fill no sample". If there is one
/// file, the number of files is left out. Text with a tokenizer is always one file.
std::string samples_text(const TokenData& data, int64_t length);

// Pure functions, for tests.

/// Throws ConfigError if the record of a token file does not match the file, the flags or the
/// model.
void check_record(const TokenRecord& record, const TokenFile& file, const DataFlags& flags,
                  int64_t length, const ModelSource& source);

/// One line for each kind of note: "2 files are not text and left out; the first: 'x' ...".
std::vector<std::string> note_lines(std::span<const NotedFile> notes);

}  // namespace ebb
