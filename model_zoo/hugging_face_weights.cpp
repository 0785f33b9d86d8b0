#include "model_zoo/hugging_face_weights.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr int64_t kStripElements = int64_t{4} << 20;
constexpr int64_t kTile = 32;

/// Elements of a tensor that are copied together: whole rows, or columns of one row.
struct Strip {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_column = 0;
  int64_t num_columns = 0;

  size_t num_elements() const { return static_cast<size_t>(num_rows * num_columns); }
};

/// Calls body for strips of elements [first, last) of a tensor, in their order.
template <class Body>
void for_strips(const MappedTensor& tensor, int64_t first, int64_t last, const Body& body) {
  const int64_t columns = tensor.num_columns;
  const int64_t at_once = std::max<int64_t>(1, kStripElements / columns);
  while (first < last) {
    const int64_t row = first / columns, column = first % columns;
    const bool is_whole_row = column == 0 && last - first >= columns;
    const Strip strip = is_whole_row
                            ? Strip{row, std::min(at_once, (last - first) / columns), 0, columns}
                            : Strip{row, 1, column, std::min(columns - column, last - first)};
    body(strip);
    first += strip.num_rows * strip.num_columns;
  }
}

template <class Body>
void for_strips(const MappedTensor& tensor, const Body& body) {
  for_strips(tensor, 0, tensor.num_rows * tensor.num_columns, body);
}

/// Counted from the first element of the tensor.
uint64_t first_element(const MappedTensor& tensor, const Strip& strip) {
  return static_cast<uint64_t>(strip.first_row * tensor.num_columns + strip.first_column);
}

uint64_t first_of_parameter(const MappedTensor& tensor) {
  return static_cast<uint64_t>(tensor.first_row * tensor.num_columns);
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
  if (strip.num_elements() == tensor.num_elements()) return body(uint64_t{0}, values);
  const auto count = static_cast<size_t>(strip.num_rows);
  for (int64_t i = 0; i < strip.num_columns; ++i) {
    body(static_cast<uint64_t>((strip.first_column + i) * tensor.num_rows + strip.first_row),
         values.subspan(static_cast<size_t>(i) * count, count));
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
  if (!tensor.transposed) return source.read_floats(first_element(tensor, strip), values);
  const std::span<float> stored = strips.stored(values.size());
  for_stored_rows(tensor, strip, stored,
                  [&](uint64_t first, std::span<float> part) { source.read_floats(first, part); });
  transpose(stored, values, strip.num_columns, strip.num_rows);
}

void write_strip(SafetensorsFolderWriter& writer, size_t index, const MappedTensor& tensor,
                 const Strip& strip, std::span<const float> values, Strips& strips) {
  if (!tensor.transposed) {
    return writer.write_floats(index, first_element(tensor, strip), values);
  }
  const std::span<float> stored = strips.stored(values.size());
  transpose(values, stored, strip.num_rows, strip.num_columns);
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
      const auto values = strips.values(strip.num_elements());
      read_strip(*source, tensor, strip, values, strips);
      take(tensor.parameter, first_of_parameter(tensor) + first_element(tensor, strip), values);
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

void store_weights(std::span<const MappedTensor> tensors, const ElementsOf& of,
                   const GiveWeights& give, SafetensorsFolderWriter& writer) {
  EBB_CHECK(writer.tensors().size() == tensors.size(),
            "the writer was constructed with other tensors");
  Strips strips;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const MappedTensor& tensor = tensors[i];
    const uint64_t begin = first_of_parameter(tensor), end = begin + tensor.num_elements();
    for (const auto& [first, count] : of(tensor.parameter)) {
      const uint64_t from = std::max(first, begin), to = std::min(first + count, end);
      if (from >= to) continue;
      for_strips(tensor, static_cast<int64_t>(from - begin), static_cast<int64_t>(to - begin),
                 [&](const Strip& strip) {
                   const auto values = strips.values(strip.num_elements());
                   give(tensor.parameter, begin + first_element(tensor, strip), values);
                   write_strip(writer, i, tensor, strip, values, strips);
                 });
    }
  }
}

void store_weights(std::span<const MappedTensor> tensors, const GiveWeights& give,
                   SafetensorsFolderWriter& writer) {
  store_weights(
      tensors,
      [](ParameterId) {
        return std::vector<ElementRange>{{0, UINT64_MAX}};
      },
      give, writer);
}

}  // namespace ebb
