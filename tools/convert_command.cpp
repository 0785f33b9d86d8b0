// ebb convert: writes the weights of a folder in another type, or in files of another size.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/new_file.h"
#include "io/safetensors_folder.h"
#include "io/safetensors_folder_writer.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/hugging_face_tensors.h"
#include "model_zoo/model_files.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/flag_values.h"
#include "tools/model_source.h"

namespace ebb {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{16} << 20;

struct ConvertOptions {
  std::string model, to;
  std::optional<DType> save_dtype;  ///< as stored
  uint64_t shard_bytes = kDefaultShardBytes;
};

std::optional<ConvertOptions> parse_convert(std::vector<std::string> arguments) {
  CommandLine line(
      "Converts the weights of a Hugging Face folder to another type or other file sizes.",
      "ebb convert");
  ConvertOptions options;
  FlagGroup group{line, "Convert"};
  group.add("--model", "DIR",
            "a Hugging Face folder, a folder of checkpoints, or a hub id found in the local cache",
            [&](std::string_view, std::string_view text) { options.model = text; });
  group.add("--to", "DIR", "the folder to write; it must be new or empty",
            [&](std::string_view, std::string_view text) { options.to = text; });
  group.add("--save-dtype", "fp32|bf16|fp16 [as stored]",
            "type of the weights, rounded to nearest; fp64 is rounded to fp32 first",
            [&](std::string_view flag, std::string_view text) {
              options.save_dtype = choice_value<DType>(flag, text, kTypes);
            });
  group.add("--shard-size", "SIZE [5GB]", "largest size of a file; one tensor may be larger",
            [&](std::string_view flag, std::string_view text) {
              options.shard_bytes = size_value(flag, text);
            });
  if (!parse_arguments(line, std::move(arguments), false)) return std::nullopt;
  if (options.model.empty()) throw ConfigError("--model is missing: give a Hugging Face folder");
  if (options.to.empty()) throw ConfigError("--to is missing: give the name of a new folder");
  return options;
}

/// Shows the progress, only on a terminal.
class PassedBytes {
 public:
  explicit PassedBytes(uint64_t total) : total_(total), live_(::isatty(STDERR_FILENO) != 0) {}
  ~PassedBytes() {
    if (live_ && done_ > 0) say("\n");
  }
  PassedBytes(const PassedBytes&) = delete;
  PassedBytes& operator=(const PassedBytes&) = delete;

  void add(uint64_t bytes) {
    done_ += bytes;
    if (live_) say(fmt::format("\r{} of {}   ", format_bytes(done_), format_bytes(total_)));
  }

 private:
  uint64_t total_, done_ = 0;
  bool live_;
};

/// Whether a tensor of this type may keep it when the weights change theirs: positions and masks
/// may, but not quantised weights, whose type is also an integer.
bool may_keep_type(const TensorSpec& tensor) {
  if (is_weight_type(tensor.type) || tensor.type == StoredType::Bool) return true;
  return tensor.type != StoredType::F8E5M2 && tensor.type != StoredType::F8E4M3 &&
         tensor.type != StoredType::I8 && tensor.name.find("weight") == std::string::npos;
}

void check_convertible(const LocatedTensor& tensor) {
  const StoredType type = tensor.stored->type;
  if (may_keep_type(*tensor.stored)) return;
  throw ConfigError(fmt::format(
      "'{}': tensor '{}' is {}: --save-dtype converts F64, F32, BF16 and F16; leave out "
      "--save-dtype",
      tensor.file->path(), tensor.stored->name, describe(type, tensor.stored->shape)));
}

/// Only weights change their type. Position ids and masks keep theirs.
std::vector<TensorSpec> new_tensors(const SafetensorsFolder& folder, std::optional<DType> type) {
  std::vector<TensorSpec> specs;
  for (const LocatedTensor& tensor : folder.tensors()) {
    TensorSpec spec = *tensor.stored;
    if (type) check_convertible(tensor);
    if (type && is_weight_type(spec.type)) spec.type = stored_type_of(*type);
    specs.push_back(std::move(spec));
  }
  return specs;
}

void copy_tensor(const LocatedTensor& tensor, size_t index, SafetensorsFolderWriter& writer,
                 PassedBytes& passed) {
  const TensorSpec& spec = writer.tensors()[index];
  const bool as_stored = spec.type == tensor.stored->type;
  const uint64_t size = size_of(tensor.stored->type), count = spec.num_elements();
  std::vector<std::byte> bytes;
  std::vector<float> values;
  for (uint64_t first = 0; first < count; first += kPieceBytes / size) {
    const uint64_t piece = std::min(kPieceBytes / size, count - first);
    if (as_stored) {
      bytes.resize(piece * size);
      tensor.read_bytes(first * size, bytes);
      writer.write_bytes(index, first * size, bytes);
    } else {
      values.resize(piece);
      tensor.read_floats(first, values);
      writer.write_floats(index, first, values);
    }
    passed.add(piece * size);
  }
}

/// Refuses quantised weights, whose scales depend on their type.
void check_may_change(const std::string& folder) {
  const nlohmann::json json = read_json_file(folder + "/config.json");
  const auto quantised = json.find("quantization_config");
  if (quantised == json.end() || quantised->is_null()) return;
  throw ConfigError(fmt::format(
      "'{}': the weights are quantised, so their type cannot change: leave out --save-dtype",
      folder));
}

/// Compares the tensors with the model that config.json describes. If Ebb does not know this model,
/// the user is informed that nothing was compared.
void compare_with_config(const std::string& from, const SafetensorsFolder& folder) {
  ModelConfig config;
  std::unique_ptr<const Model> model;
  try {
    config = read_model_config(from);
    model = create_model(config, {}, DType::F32);
  } catch (const ConfigError& error) {
    say(
        fmt::format("the tensors are copied without a comparison with config.json, because Ebb "
                    "does not know this model: {}\n",
                    error.what()));
    return;
  }
  match_tensors(config, model->parameters(), folder, is_base_model(from));
}

void convert(const ConvertOptions& options) {
  const std::string from = find_model_folder(options.model);
  const SafetensorsFolder folder(from);
  check_model_files(from);
  if (options.save_dtype) check_may_change(from);
  if (!folder.notice().empty()) say(folder.notice() + "\n");
  compare_with_config(from, folder);
  NewFolder to(options.to);
  SafetensorsFolderWriter writer(to.path(), new_tensors(folder, options.save_dtype),
                                 options.shard_bytes);
  PassedBytes passed(folder.total_bytes());
  for (size_t i = 0; i < folder.tensors().size(); ++i) {
    copy_tensor(folder.tensors()[i], i, writer, passed);
  }
  writer.finish();
  copy_model_files(from, options.save_dtype, to.path());
  to.commit();
  fmt::print("{}: {} tensors in {} files\n", options.to, folder.tensors().size(),
             writer.num_files());
}

}  // namespace

int convert_command(std::vector<std::string> arguments) {
  const auto options = parse_convert(std::move(arguments));
  if (options) convert(*options);
  return 0;
}

}  // namespace ebb
