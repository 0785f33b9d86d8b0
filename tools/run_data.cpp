#include "tools/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "device/errors.h"
#include "io/label_check.h"

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
    {FileNote::ByteOrderMark, "file begins with a byte order mark, which is learned as 3 tokens",
     "files begin with a byte order mark, which is learned as 3 tokens",
     "sed '1s/^\\xef\\xbb\\xbf//' removes it"},
    {FileNote::NotUtf8, "file has bytes that are not UTF-8, which are learned as they are",
     "files have bytes that are not UTF-8, which are learned as they are", "iconv converts it"}};

std::string note_line(const NoteText& text, uint64_t count, const NotedFile& first) {
  std::string line =
      fmt::format("{} {}; the first: '{}'", count, count == 1 ? text.one : text.many, first.path);
  if (!first.kind.empty()) line += fmt::format(", {}", first.kind);
  return text.advice.empty() ? line : line + fmt::format(" ({})", text.advice);
}

/// The command that makes tokens of text files for a model.
std::string tokenize_command(const std::vector<std::string>& paths, const ModelSource& source) {
  const fs::path first = paths.front();
  std::error_code error;
  const bool is_folder = fs::is_directory(first, error);
  const std::string files =
      is_folder || paths.size() > 1 ? "FILES" : fmt::format("'{}'", first.string());
  return fmt::format("tools/tokenize.py --tokenizer {} --output PREFIX {}",
                     source.folder.empty() ? "DIR" : fmt::format("'{}'", source.name), files);
}

/// Text is only for models whose tokens are bytes, unless the flag says bytes.
void check_bytes(const DataFlags& flags, const TokenData& tokens, const ModelSource& source) {
  const bool chosen = flags.token_type == TokenType::Bytes;
  if (tokens.type() != TokenType::Bytes || chosen || source.reads_bytes()) return;
  throw ConfigError(
      fmt::format("{}data '{}' is text, and the tokens of '{}' are not bytes: its vocabulary is "
                  "{}. Make tokens with `{}` and give {}data PREFIX.bin; --token-type bytes "
                  "trains on the values of the bytes as they are",
                  flags.prefix, tokens.file(0).path(), source.name, source.vocabulary(),
                  tokenize_command(flags.paths, source), flags.prefix));
}

void check_num_samples(const DataFlags& flags, const TokenData& tokens, const BatchShape& shape,
                       uint64_t least) {
  const auto length = static_cast<uint64_t>(shape.length);
  if (tokens.num_samples(length) >= least) return;
  if (least == 1) {
    throw ConfigError(fmt::format(
        "{}data has {} tokens, but one sample needs {} (--seq-length {}, and one more): give more "
        "data or a smaller --seq-length",
        flags.prefix, tokens.num_tokens(), length + 1, length));
  }
  throw ConfigError(fmt::format(
      "{}data has {} tokens, but one micro-batch needs {} (--micro-batch-size {} x --seq-length "
      "{}, and one more): give more data or make one of them smaller",
      flags.prefix, tokens.num_tokens(), least * length + 1, shape.batch_size, length));
}

/// Checks the records of all token files, and adds notices.
void check_records(const DataFlags& flags, const ModelSource& source, int64_t length,
                   RunData& data) {
  for (size_t i = 0; i < data.tokens->num_files(); ++i) {
    const TokenFile& file = data.tokens->file(i);
    const auto record = read_token_record(file.path());
    if (!record) continue;
    check_record(*record, file.path(), file.num_tokens(), flags, length, source.vocabulary());
    if (record->labels && flags.labels.empty()) {
      data.notices.push_back(
          fmt::format("'{}' was made with labels, and {}labels is not given: all tokens are "
                      "learned, also those of prompts",
                      file.path(), flags.prefix));
    }
  }
}

void check_shifted(const DataFlags& flags, const LabelFile& labels, const TokenData& tokens) {
  const LabelMatches matches = match_labels(labels, tokens);
  if (!matches.are_unshifted()) return;
  throw ConfigError(fmt::format(
      "{0}labels '{1}': {2} of {3} labels equal the token at their own position, so they are not "
      "shifted: label i must be the target at position i, that is token i+1. Shift them (numpy: "
      "append(labels[1:], {4}), as int32; the last label of each document is {4} too), or leave "
      "out {0}labels to learn each next token",
      flags.prefix, labels.path(), matches.own, matches.num_labels, kIgnoredLabel));
}

Annotations open_annotations(const DataFlags& flags, const TokenData& tokens,
                             const ModelSource& source) {
  Annotations annotations;
  if (!flags.labels.empty()) {
    annotations.labels = std::make_unique<const LabelFile>(
        flags.labels, tokens.num_tokens(), static_cast<uint64_t>(source.vocabulary()));
    if (predicts_next_token(source.config)) check_shifted(flags, *annotations.labels, tokens);
  }
  if (!flags.documents.empty()) {
    annotations.documents =
        std::make_unique<const DocumentFile>(flags.documents, tokens.num_tokens());
  }
  return annotations;
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
  data.notices = note_lines(data.tokens->notes());
  check_records(flags, source, shape.length, data);
  data.tokens->limit_to(static_cast<uint64_t>(source.vocabulary()));
  check_num_samples(flags, *data.tokens, shape, least_samples);
  data.annotations = open_annotations(flags, *data.tokens, source);
  if (flags.prefix != "--") {
    for (std::string& notice : data.notices) {
      notice = fmt::format("{}data: {}", flags.prefix, notice);
    }
  }
  return data;
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
  std::string text = fmt::format("{} tokens ({}) in {} files; {} samples", data.num_tokens(),
                                 name_of(data.type()), data.num_files(), data.num_samples(size));
  const size_t unused = data.num_unused(size);
  if (unused > 0) text += fmt::format(", the last {} tokens fill no sample", unused);
  return text;
}

void check_record(const TokenRecord& record, const std::string& file, uint64_t num_tokens,
                  const DataFlags& flags, int64_t length, int64_t vocabulary) {
  const std::string path = record_path(file);
  const std::string from =
      fmt::format("{}data '{}': its record '{}' says", flags.prefix, file, path);
  if (record.num_tokens != num_tokens) {
    throw ConfigError(fmt::format(
        "{} {} tokens, but the file has {}, so the record is that of another file: make the token "
        "file again with tools/tokenize.py, or remove the record to use the file unchecked",
        from, record.num_tokens, num_tokens));
  }
  if (record.vocabulary > static_cast<uint64_t>(vocabulary)) {
    throw ConfigError(fmt::format(
        "{} that the tokenizer '{}' has {} tokens, but the model's vocabulary is {}: make the "
        "token file with the tokenizer of the model",
        from, record.tokenizer, record.vocabulary, vocabulary));
  }
  if (record.sequence_length && *record.sequence_length != static_cast<uint64_t>(length)) {
    throw ConfigError(fmt::format(
        "{} that its rows have {} tokens, but --seq-length is {}, so samples would begin within "
        "rows: give --seq-length {}, or make the token file again with tools/tokenize.py "
        "--seq-length {}",
        from, *record.sequence_length, length, *record.sequence_length, length));
  }
  if (record.documents && flags.documents.empty()) {
    const std::string prefix = file.ends_with(".bin") ? file.substr(0, file.size() - 4) : file;
    throw ConfigError(fmt::format(
        "{0} that it was made with documents, but {1}documents is not given, so documents would "
        "attend to each other: give {1}documents '{2}.documents', or remove the record to train "
        "without",
        from, flags.prefix, prefix));
  }
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
