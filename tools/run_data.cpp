#include "tools/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "device/errors.h"
#include "io/label_check.h"
#include "tools/held_out.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// The text of a kind of note, for one file and for several.
struct NoteText {
  FileNote note;
  std::string_view one, many, advice;
};
constexpr NoteText kNoteTexts[] = {
    {FileNote::NotText, "file is not text and left out", "files are not text and left out",
     "--token-type bytes reads them too"},
    {FileNote::BrokenLink, "link is broken and left out", "links are broken and left out", ""},
    {FileNote::SpecialFile, "entry is a FIFO, a socket or a device and left out",
     "entries are FIFOs, sockets or devices and left out", ""},
    {FileNote::Hidden, "hidden entry is left out", "hidden entries are left out",
     "its own path reads it"},
    {FileNote::RepeatedFolder, "folder is reached again through a link and read once",
     "folders are reached again through links and read once", ""},
    {FileNote::LoneRecord, "record of a token file is left out, its token file is missing",
     "records of token files are left out, their token files are missing", ""},
    {FileNote::Empty, "file is empty", "files are empty", ""},
    {FileNote::RepeatedFile, "file is read again: its tokens count twice",
     "files are read again: their tokens count twice", ""},
    {FileNote::Json, "file is JSON, and its braces, names and escapes are learned as text",
     "files are JSON, and their braces, names and escapes are learned as text",
     "tools/tokenize.py takes the texts out of .jsonl files"},
    {FileNote::Table, "file is a table, and its separators are learned as text",
     "files are tables, and their separators are learned as text",
     "write its texts as lines of {\"text\": ...} for tools/tokenize.py"},
    {FileNote::ByteOrderMark, "file begins with a byte order mark, which is learned as 3 tokens",
     "files begin with a byte order mark, which is learned as 3 tokens",
     "sed '1s/^\\xef\\xbb\\xbf//' removes it"},
    {FileNote::NotUtf8, "file has bytes that are NUL or not UTF-8, which are learned as they are",
     "files have bytes that are NUL or not UTF-8, which are learned as they are",
     "iconv converts other encodings"}};

std::string note_line(const NoteText& text, uint64_t count, const NotedFile& first) {
  std::string line =
      fmt::format("{} {}; the first: '{}'", count, count == 1 ? text.one : text.many, first.path);
  if (!first.kind.empty()) line += fmt::format(", {}", first.kind);
  return text.advice.empty() ? line : line + fmt::format(" ({})", text.advice);
}

/// Text without a tokenizer is only for models whose tokens are bytes, unless the flag says bytes.
void check_bytes(const DataFlags& flags, const TokenData& tokens, const ModelSource& source) {
  const bool chosen = flags.token_type == TokenType::Bytes;
  if (tokens.type() != TokenType::Bytes || chosen || source.reads_bytes()) return;
  throw ConfigError(fmt::format(
      "{}data '{}' is text, and '{}', with a vocabulary of {}, has no tokenizer: {}. "
      "Models over bytes need none (`ebb models`), and --token-type bytes trains on the values "
      "of the bytes",
      flags.prefix, tokens.file(0).path(), source.name, source.vocabulary(),
      tokenizer_advice(source.folder.empty())));
}

/// JSON is refused where it would be all that is learned, or where the user named it: its texts are
/// meant. In a folder of other text it is reported only.
void refuse_json(const DataFlags& flags, const TokenData& tokens, const ModelSource& source) {
  const auto is_json = [](const NotedFile& file) { return file.note == FileNote::Json; };
  const auto is_named = [&](const NotedFile& file) {
    return is_json(file) && std::ranges::find(flags.paths, file.path) != flags.paths.end();
  };
  const auto notes = tokens.notes();
  auto found = std::ranges::find_if(notes, is_named);
  const auto num_json = static_cast<size_t>(std::ranges::count_if(notes, is_json));
  if (num_json == tokens.num_files()) found = std::ranges::find_if(notes, is_json);
  if (found == notes.end()) return;
  throw ConfigError(fmt::format(
      "{}data '{}' is JSON, and the tokens of '{}' are bytes, so the model would learn braces, "
      "names and escapes: give plain text, or train a preset with --tokenizer train:8192, or a "
      "model with a tokenizer, for which ebb takes the texts out of the JSON; --token-type bytes "
      "learns the file as it is",
      flags.prefix, found->path, source.name));
}

void check_num_samples(const DataFlags& flags, const TokenData& tokens, const BatchShape& shape,
                       uint64_t least) {
  const auto length = static_cast<uint64_t>(shape.length);
  const uint64_t num_samples = tokens.num_samples(length);
  if (num_samples >= least) return;
  if (least == 1) {
    throw ConfigError(fmt::format(
        "{}data has {} tokens, but one sample needs {} (--seq-length {}, and one more): give more "
        "data or a smaller --seq-length",
        flags.prefix, tokens.num_tokens(), length + 1, length));
  }
  throw ConfigError(fmt::format(
      "{}data has {} tokens, but one micro-batch needs {} (--micro-batch-size {} x --seq-length "
      "{}, and one more); the data fills {} sequences of {} tokens: give more data{} or a smaller "
      "--seq-length",
      flags.prefix, tokens.num_tokens(), least * length + 1, shape.batch_size, length, num_samples,
      length, num_samples > 0 ? fmt::format(", --micro-batch-size {}", num_samples) : ""));
}

/// The file that tokenize.py writes beside the record: PREFIX.documents.
std::string beside_record(const TokenRecord& record, std::string_view extension) {
  return fs::path(file_of_record(record.path)).replace_extension(extension).string();
}

/// Data for one kind of model teaches the other nothing.
void check_targets(const TokenRecord& record, const std::string& from, const ModelSource& source) {
  const bool is_causal = predicts_next_token(source.config);
  if (record.targets == Targets::Masked && is_causal) {
    throw ConfigError(fmt::format(
        "{} that its targets are masked words, but the model '{}' predicts the next token: make "
        "the token file again with tools/tokenize.py and the tokenizer of this model, without "
        "--mask-words",
        from, source.name));
  }
  if (record.targets == Targets::Next && !is_causal) {
    throw ConfigError(fmt::format(
        "{} that its targets are the next tokens, but the model '{}' is a masked-language model: "
        "make the token file again with tools/tokenize.py --mask-words 0.15 and the tokenizer of "
        "this "
        "model",
        from, source.name));
  }
}

/// A file that is given although none was made belongs to other tokens, as the files of an earlier
/// call of tokenize.py do.
void check_made_with(const std::string& from, std::string_view name, std::string_view prefix,
                     const std::string& given, bool was_made) {
  if (given.empty() || was_made) return;
  throw ConfigError(fmt::format(
      "{0} that it was made without {1}, so {2}{1} '{3}' is not of these tokens: make the token "
      "file again with tools/tokenize.py --{1}, leave out {2}{1}, or remove the record to use the "
      "file unchecked",
      from, name, prefix, given));
}

/// Each file of rows has one token more than its rows, so the rows of the next file would begin
/// within samples.
void check_single_rows(const TokenRecord& record, const DataFlags& flags, const TokenData& tokens) {
  if (!record.sequence_length || tokens.num_files() == 1) return;
  throw ConfigError(fmt::format(
      "{0}data has {1} files, but the record '{2}' says that its tokens are rows of {3}: the one "
      "token after the rows of a file would shift the rows of the next. Make one token file of all "
      "inputs, in one call of `tools/tokenize.py --seq-length {3}`",
      flags.prefix, tokens.num_files(), record.path, *record.sequence_length));
}

/// The records of all token files, checked; nullopt for a file without one. Adds notices.
std::vector<std::optional<TokenRecord>> check_records(const DataFlags& flags,
                                                      const ModelSource& source, int64_t length,
                                                      RunData& data) {
  std::vector<std::optional<TokenRecord>> records;
  for (size_t i = 0; i < data.tokens->num_files(); ++i) {
    const TokenFile& file = data.tokens->file(i);
    const auto& record = records.emplace_back(read_token_record(file.path()));
    if (!record) continue;
    check_record(*record, file, flags, length, source);
    check_single_rows(*record, flags, *data.tokens);
    if (record->labels && flags.labels.empty()) {
      data.notices.push_back(
          fmt::format("'{}' was made with labels, and {}labels is not given: all tokens are "
                      "learned, also those of prompts",
                      file.path(), flags.prefix));
    }
  }
  return records;
}

/// Offsets count the tokens of all files. Files that are made one by one have offsets that begin
/// at 0 again, so one of them describes one file alone.
void check_documents(const DataFlags& flags, const DocumentFile& documents,
                     const std::vector<std::optional<TokenRecord>>& records, RunData& data) {
  const TokenData& tokens = *data.tokens;
  for (size_t i = 0; i < records.size(); ++i) {
    if (!records[i] || documents.has_offset(tokens.first_token(i))) continue;
    throw ConfigError(fmt::format(
        "{}documents '{}': a document begins at token {}, the first of '{}' (its record '{}' says "
        "documents), but the file has no such offset: offsets count the tokens of all files of "
        "{}data. Give the file that was made with the tokens; for several token files, make one "
        "of all inputs in one call of tools/tokenize.py",
        flags.prefix, documents.path(), tokens.first_token(i), tokens.file(i).path(),
        records[i]->path, flags.prefix));
  }
  if (documents.first_offset() > 0) {
    data.notices.push_back(
        fmt::format("{}documents '{}' begins with offset {}: the tokens before it are a document "
                    "too",
                    flags.prefix, documents.path(), documents.first_offset()));
  }
  const size_t last_file = tokens.first_token(tokens.num_files() - 1);
  if (documents.last_offset() < last_file) {
    data.notices.push_back(fmt::format(
        "{}documents '{}' ends with offset {}, before the last file of {}data begins (at token "
        "{}): all later tokens are one document. Offsets count the tokens of all files",
        flags.prefix, documents.path(), documents.last_offset(), flags.prefix, last_file));
  }
}

/// Refuses labels of which no target is in a sample. `num_in_samples`: the labels of the tokens in
/// samples. The few others are counted, because that reads less.
void check_reached(const DataFlags& flags, const LabelFile& labels, uint64_t num_in_samples) {
  // An evaluation within a training reads fewer samples, and checks those.
  const uint64_t num_others = labels.num_labels() - num_in_samples;
  if (flags.prefix != "--" ||
      labels.num_targets() > labels.num_targets(num_in_samples, num_others)) {
    return;
  }
  throw ConfigError(fmt::format(
      "--labels '{}': all labels of the {} tokens in samples are {} (ignored); only tokens at the "
      "end, which fill no sample, have others: give more data or a smaller --seq-length",
      labels.path(), num_in_samples, kIgnoredLabel));
}

void check_shifted(const DataFlags& flags, const LabelFile& labels, RunData& data) {
  const LabelMatches matches = match_labels(labels, *data.tokens);
  if (!matches.look_unshifted()) return;
  if (!matches.are_unshifted()) {
    data.notices.push_back(
        fmt::format("{}labels '{}': {} of {} labels equal the token at their own position. Label i "
                    "is the target at position i, that is token i+1",
                    flags.prefix, labels.path(), matches.own, matches.num_labels));
    return;
  }
  throw ConfigError(fmt::format(
      "{0}labels '{1}': {2} of {3} labels equal the token at their own position, so they are not "
      "shifted: label i must be the target at position i, that is token i+1. Shift them (numpy: "
      "append(labels[1:], {4}), as int32; the last label of each document is {4} too), or leave "
      "out {0}labels to learn each next token",
      flags.prefix, labels.path(), matches.own, matches.num_labels, kIgnoredLabel));
}

void open_labels(const DataFlags& flags, const ModelSource& source, uint64_t length,
                 RunData& data) {
  const TokenData& tokens = *data.tokens;
  auto labels = std::make_unique<const LabelFile>(flags.labels, tokens.num_tokens(),
                                                  static_cast<uint64_t>(source.vocabulary()));
  check_reached(flags, *labels, tokens.num_samples(length) * length);
  if (predicts_next_token(source.config)) check_shifted(flags, *labels, data);
  data.annotations.labels = std::move(labels);
}

}  // namespace

DataFlags training_data(const TrainOptions& o) {
  return {"--", o.data, o.token_type, o.labels, o.documents};
}

DataFlags evaluation_data(const TrainOptions& o) {
  return {"--eval-", o.eval_data, o.token_type, o.eval_labels, o.eval_documents};
}

RunData open_run_data(const DataFlags& flags, const ModelSource& source, const BatchShape& shape,
                      uint64_t least_samples) {
  RunData data;
  data.tokens = std::make_unique<TokenData>(flags.paths, flags.token_type);
  check_bytes(flags, *data.tokens, source);
  refuse_json(flags, *data.tokens, source);
  data.notices = note_lines(data.tokens->notes());
  const auto records = check_records(flags, source, shape.length, data);
  data.tokens->limit_to(static_cast<uint64_t>(source.vocabulary()));
  check_num_samples(flags, *data.tokens, shape, least_samples);
  if (!flags.labels.empty()) open_labels(flags, source, static_cast<size_t>(shape.length), data);
  if (!flags.documents.empty()) {
    data.annotations.documents =
        std::make_unique<const DocumentFile>(flags.documents, data.tokens->num_tokens());
    check_documents(flags, *data.annotations.documents, records, data);
  }
  if (flags.prefix != "--") {
    for (std::string& notice : data.notices) {
      if (notice.starts_with(flags.prefix)) continue;
      notice = fmt::format("{}data: {}", flags.prefix, notice);
    }
  }
  return data;
}

RunData hold_out(RunData& training, const BatchShape& shape, double share) {
  const auto length = static_cast<uint64_t>(shape.length);
  SplitSamples split = split_samples(*training.tokens, length, share);
  const size_t num_held_out = split.held_out.size(), num_left = split.training.size();
  const auto least = static_cast<size_t>(shape.batch_size);
  if (num_held_out == 0 || num_left < least) {
    throw ConfigError(fmt::format(
        "--eval-split {:g}%: of {} samples of {} tokens, {} are held out and {} stay, and an "
        "evaluation needs 1 and a micro-batch {}: give more data, another share or a smaller "
        "--seq-length",
        100 * share, num_held_out + num_left, length, num_held_out, num_left, least));
  }
  training.chosen = std::make_shared<const std::vector<uint64_t>>(std::move(split.training));
  RunData evaluation = training;
  evaluation.notices.clear();
  evaluation.chosen = std::make_shared<const std::vector<uint64_t>>(std::move(split.held_out));
  return evaluation;
}

std::vector<std::string> evaluation_notices(const TrainOptions& options, const TokenData& training,
                                            const TokenData& evaluation) {
  std::vector<std::string> notices;
  if (const std::string shared = training.shared_file(evaluation); !shared.empty()) {
    notices.push_back(fmt::format(
        "--eval-data reads '{}', which --data reads too: the evaluation shows what is learned by "
        "heart, not what holds for other text",
        shared));
  }
  if (!options.labels.empty() && options.eval_labels.empty()) {
    notices.emplace_back(
        "--labels is given without --eval-labels: the evaluation measures every next token");
  }
  if (!options.documents.empty() && options.eval_documents.empty()) {
    notices.emplace_back(
        "--documents is given without --eval-documents: in the evaluation each sample is one "
        "document");
  }
  return notices;
}

std::string samples_text(const TokenData& data, int64_t length) {
  const auto size = static_cast<size_t>(length);
  const std::string files =
      data.num_files() == 1 ? "" : fmt::format(" in {} files", data.num_files());
  std::string text = fmt::format("{} tokens ({}){}; {} samples", data.num_tokens(),
                                 name_of(data.type()), files, data.num_samples(size));
  const size_t unused = data.num_unused(size);
  if (unused > 0) text += fmt::format(", the last {} tokens fill no sample", unused);
  return text;
}

void check_record(const TokenRecord& record, const TokenFile& file, const DataFlags& flags,
                  int64_t length, const ModelSource& source) {
  const std::string from =
      fmt::format("{}data '{}': its record '{}' says", flags.prefix, file.path(), record.path);
  if (record.num_tokens != file.num_tokens()) {
    throw ConfigError(fmt::format(
        "{} {} tokens, but the file has {}, so the record is that of another file: make the token "
        "file again with tools/tokenize.py, or remove the record to use the file unchecked",
        from, record.num_tokens, file.num_tokens()));
  }
  if (record.vocabulary > static_cast<uint64_t>(source.vocabulary())) {
    throw ConfigError(fmt::format(
        "{} that the tokenizer '{}' has {} tokens, but the model's vocabulary is {}: make the "
        "token file with the tokenizer of the model",
        from, record.tokenizer, record.vocabulary, source.vocabulary()));
  }
  check_targets(record, from, source);
  if (record.sequence_length && *record.sequence_length != static_cast<uint64_t>(length)) {
    throw ConfigError(fmt::format(
        "{} that its rows have {} tokens, but --seq-length is {}, so samples would begin within "
        "rows: give --seq-length {}, or make the token file again with tools/tokenize.py "
        "--seq-length {}",
        from, *record.sequence_length, length, *record.sequence_length, length));
  }
  if (record.documents && flags.documents.empty()) {
    throw ConfigError(fmt::format(
        "{0} that it was made with documents, but {1}documents is not given, so documents would "
        "attend to each other: give {1}documents '{2}', or remove the record to train without",
        from, flags.prefix, beside_record(record, ".documents")));
  }
  check_made_with(from, "documents", flags.prefix, flags.documents, record.documents);
  check_made_with(from, "labels", flags.prefix, flags.labels, record.labels);
}

std::vector<std::string> note_lines(std::span<const NotedFile> notes) {
  std::vector<std::string> lines;
  for (const NoteText& text : kNoteTexts) {
    const auto is_of_text = [&](const NotedFile& file) { return file.note == text.note; };
    const auto first = std::ranges::find_if(notes, is_of_text);
    if (first == notes.end()) continue;
    const auto count = static_cast<uint64_t>(std::ranges::count_if(notes, is_of_text));
    lines.push_back(note_line(text, count, *first));
  }
  return lines;
}

}  // namespace ebb
