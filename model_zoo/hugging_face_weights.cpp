#include "model_zoo/hugging_face_weights.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr int64_t kStripElements = int64_t{4} << 20;
constexpr int64_t kTile = 32;

/// The rows of a tensor that are copied together.
struct Strip {
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

template <class Body>
void for_strips(const MappedTensor& tensor, const Body& body) {
  const int64_t at_once = std::max<int64_t>(1, kStripElements / tensor.num_columns);
  for (int64_t row = 0; row < tensor.num_rows; row += at_once) {
    body(Strip{row, std::min(at_once, tensor.num_rows - row)});
  }
}

uint64_t first_element(const MappedTensor& tensor, const Strip& strip) {
  return static_cast<uint64_t>((tensor.first_row + strip.first_row) * tensor.num_columns);
}

/// Transposes in (rows, columns) to out (columns, rows), in tiles that fit the cache.
void transpose(std::span<const float> in, std::span<float> out, int64_t rows, int64_t columns) {
  for (int64_t i0 = 0; i0 < rows; i0 += kTile) {
    for (int64_t j0 = 0; j0 < columns; j0 += kTile) {
      for (int64_t i = i0; i < std::min(rows, i0 + kTile); ++i) {
        for (int64_t j = j0; j < std::min(columns, j0 + kTile); ++j) {
          out[static_cast<size_t>(j * rows + i)] = in[static_cast<size_t>(i * columns + j)];
        }
      }
    }
  }
}

/// Calls body for the part of each stored row of a transposed tensor that is in the strip: with its
/// position in the stored tensor and its part of `values`. If the strip is the whole tensor, calls
/// body once for all rows.
template <class Body>
void for_stored_rows(const MappedTensor& tensor, const Strip& strip, std::span<float> values,
                     const Body& body) {
  if (strip.num_rows == tensor.num_rows) return body(uint64_t{0}, values);
  const auto count = static_cast<size_t>(strip.num_rows);
  for (int64_t column = 0; column < tensor.num_columns; ++column) {
    body(static_cast<uint64_t>(column * tensor.num_rows + strip.first_row),
         values.subspan(static_cast<size_t>(column) * count, count));
  }
}

/// Two buffers for the strips of one call.
class Strips {
 public:
  std::span<float> values(size_t count) { return grown(values_, count); }
  std::span<float> stored(size_t count) { return grown(stored_, count); }

 private:
  static std::span<float> grown(std::vector<float>& buffer, size_t count) {
    if (buffer.size() < count) buffer.resize(count);
    return std::span(buffer).first(count);
  }
  std::vector<float> values_, stored_;
};

/// Counts the copied elements and reports progress.
class Passed {
 public:
  Passed(std::span<const MappedTensor> tensors, const WeightProgress& progress)
      : progress_(progress) {
    for (const MappedTensor& tensor : tensors) total_ += tensor.num_elements();
  }
  void add(size_t count) {
    done_ += count;
    if (progress_) progress_(done_, total_);
  }

 private:
  const WeightProgress& progress_;
  uint64_t done_ = 0, total_ = 0;
};

void read_strip(const LocatedTensor& source, const MappedTensor& tensor, const Strip& strip,
                std::span<float> values, Strips& strips) {
  if (!tensor.transposed) {
    return source.read_floats(static_cast<uint64_t>(strip.first_row * tensor.num_columns), values);
  }
  const std::span<float> stored = strips.stored(values.size());
  for_stored_rows(tensor, strip, stored,
                  [&](uint64_t first, std::span<float> part) { source.read_floats(first, part); });
  transpose(stored, values, tensor.num_columns, strip.num_rows);
}

void write_strip(SafetensorsFolderWriter& writer, size_t index, const MappedTensor& tensor,
                 const Strip& strip, std::span<const float> values, Strips& strips) {
  if (!tensor.transposed) {
    return writer.write_floats(index, static_cast<uint64_t>(strip.first_row * tensor.num_columns),
                               values);
  }
  const std::span<float> stored = strips.stored(values.size());
  transpose(values, stored, strip.num_rows, tensor.num_columns);
  for_stored_rows(tensor, strip, stored, [&](uint64_t first, std::span<float> part) {
    writer.write_floats(index, first, part);
  });
}

}  // namespace

void load_weights(const SafetensorsFolder& folder, std::span<const MappedTensor> tensors,
                  const TakeWeights& take, const WeightProgress& progress) {
  Strips strips;
  Passed passed(tensors, progress);
  for (const MappedTensor& tensor : tensors) {
    const LocatedTensor* source = folder.find(tensor.name);
    EBB_CHECK(source != nullptr && source->stored->num_elements() == tensor.num_elements(),
              "the tensors belong to another folder");
    for_strips(tensor, [&](const Strip& strip) {
      const auto values = strips.values(static_cast<size_t>(strip.num_rows * tensor.num_columns));
      read_strip(*source, tensor, strip, values, strips);
      take(tensor.parameter, first_element(tensor, strip), values);
      passed.add(values.size());
    });
  }
}

std::vector<TensorSpec> stored_tensors(std::span<const MappedTensor> tensors, StoredType type) {
  std::vector<TensorSpec> specs;
  for (const MappedTensor& tensor : tensors) {
    specs.push_back({tensor.name, type, tensor.stored_shape()});
  }
  return specs;
}

void store_weights(std::span<const MappedTensor> tensors, const GiveWeights& give,
                   SafetensorsFolderWriter& writer) {
  EBB_CHECK(writer.tensors().size() == tensors.size(),
            "the writer was constructed with other tensors");
  Strips strips;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for_strips(tensors[i], [&](const Strip& strip) {
      const auto values =
          strips.values(static_cast<size_t>(strip.num_rows * tensors[i].num_columns));
      give(tensors[i].parameter, first_element(tensors[i], strip), values);
      write_strip(writer, i, tensors[i], strip, values, strips);
    });
  }
}

}  // namespace ebb
