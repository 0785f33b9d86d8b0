#include "model_zoo/checkpoint_part.h"

#include <utility>

#include "device/errors.h"
#include "device/planes.h"
#include "model_zoo/hugging_face_weights.h"
#include "model_zoo/state_header.h"

namespace ebb {

void write_planes(StateReader reader, const OwnerSet& owners, const WriteProgress& progress,
                  StateFileWriter& file) {
  const Layout& layout = reader.layout();
  const std::vector<size_t> position = state_positions(layout);
  const std::span<const PlaneInfo> planes = state_planes(layout.weight_type());
  for (size_t i = 0; i < reader.parts().size(); ++i) {
    const ParameterId id = reader.parts()[i];
    const std::vector<ElementRange> ranges = owned_ranges(layout, id, owners);
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      for (const ElementRange& range : ranges) {
        uint64_t first = planes[plane].bytes(range.first);
        reader.read_plane(id, plane, range, [&](std::span<const std::byte> bytes) {
          file.write(position[id], plane, first, bytes);
          first += bytes.size();
          progress();
        });
      }
    }
    reader.release(i + 1);
  }
}

void write_tensors(const StateReader& reader, std::span<const MappedTensor> tensors, DType type,
                   const OwnerSet& owners, const WriteProgress& progress,
                   SafetensorsFolderWriter& files) {
  const bool as_computed = type == reader.layout().weight_type();
  store_weights(
      tensors, [&](ParameterId id) { return owned_ranges(reader.layout(), id, owners); },
      [&](ParameterId id, uint64_t first, std::span<float> values) {
        as_computed ? reader.read_weights(id, first, values)
                    : reader.read_masters(id, first, values);
        progress();
      },
      files);
}

CheckpointPart::CheckpointPart(const std::string& folder, FileUse use, const CheckpointFiles& files,
                               const StateReader& reader,
                               const std::map<std::string, uint64_t>& numbers)
    : files_(files),
      weights_(folder, stored_tensors(files.tensors, stored_type_of(files.weight_type)),
               kDefaultShardBytes, use) {
  if (files.state_file.empty()) return;
  state_.emplace(folder + "/" + files.state_file,
                 state_header(reader.layout(), reader.counters(), numbers), use);
}

void CheckpointPart::write(StateReader reader, const OwnerSet& owners,
                           const WriteProgress& progress) {
  write_tensors(reader, files_.tensors, files_.weight_type, owners, progress, weights_);
  if (state_) {
    write_planes(std::move(reader), owners, progress, *state_);
  } else {
    const StateReader ends = std::move(reader);
  }
  weights_.sync(progress);
  if (state_) state_->sync(progress);
}

/// The bytes of each file of weights, then the ranges of the file of the state.
std::vector<uint64_t> CheckpointPart::summary() const {
  std::vector<uint64_t> numbers = weights_.written_bytes();
  if (!state_) return numbers;
  for (const WrittenRange& range : state_->written()) {
    numbers.insert(numbers.end(), {range.piece, range.first, range.bytes, range.hash});
  }
  return numbers;
}

void CheckpointPart::finish(std::span<const std::vector<uint64_t>> others) {
  std::vector<uint64_t> bytes(weights_.num_files(), 0);
  std::vector<WrittenRange> ranges;
  for (const std::vector<uint64_t>& numbers : others) {
    EBB_CHECK(numbers.size() >= bytes.size(), "a rank has other files of weights");
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] += numbers[i];
    for (size_t i = bytes.size(); i + 4 <= numbers.size(); i += 4) {
      ranges.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
    }
  }
  weights_.finish(bytes);
  if (state_) state_->finish(ranges);
}

}  // namespace ebb
