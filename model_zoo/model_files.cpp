#include "model_zoo/model_files.h"

#include <filesystem>
#include <system_error>

#include "io/mapped_file.h"
#include "io/new_file.h"
#include "model_zoo/hugging_face_config.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "tokenizer.model",
                                       "sentencepiece.bpe.model",
                                       "spiece.model",
                                       "vocab.json",
                                       "vocab.txt",
                                       "merges.txt",
                                       "chat_template.jinja",
                                       "chat_template.json"};
constexpr const char* kTemplates = "additional_chat_templates";

void copy_synced(const fs::path& from, const fs::path& to) {
  const MappedFile file(from.string(), "model file");
  const auto bytes = file.bytes();
  write_new_file(to.string(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

void copy_companion_files(const std::string& from, const std::string& to) {
  std::error_code error;
  for (const char* name : kCompanions) {
    if (fs::exists(fs::path(from) / name, error)) copy_synced(fs::path(from) / name, fs::path(to) / name);
  }
  const fs::path templates = fs::path(from) / kTemplates;
  if (!fs::is_directory(templates, error)) return;
  fs::create_directory(fs::path(to) / kTemplates, error);
  for (const auto& entry : fs::directory_iterator(templates)) {
    if (entry.is_regular_file())
      copy_synced(entry.path(), fs::path(to) / kTemplates / entry.path().filename());
  }
}

void write_model_files(const std::string& from, const ModelConfig& config, DType dtype,
                       const std::string& to) {
  const std::string json =
      from.empty() ? make_config_json(config, dtype) : carry_config_json(from, dtype);
  write_new_file(to + "/config.json", json);
  if (!from.empty()) copy_companion_files(from, to);
}

}  // namespace ebb
