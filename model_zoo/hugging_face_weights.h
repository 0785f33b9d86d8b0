// Copies weights from a Hugging Face folder to the training state, and back.
//
// Tensors are copied in strips of at most 16 MiB, so there is no second copy of the weights in
// memory. Reading is exact; writing rounds to nearest, ties to even. So weights that were loaded
// and not changed are written with the same bits in the same type. One thread at a time. Errors:
// those of SafetensorsFolder and SafetensorsFolderWriter.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/safetensors_folder_writer.h"
#include "model_zoo/hugging_face_tensors.h"

namespace ebb {

/// Store or read the fp32 masters of elements [first, first + values.size()) of a parameter.
using TakeWeights =
    std::function<void(ParameterId id, uint64_t first, std::span<const float> values)>;
using GiveWeights = std::function<void(ParameterId id, uint64_t first, std::span<float> values)>;
/// Called after each strip with the number of elements copied so far, and the number of all
/// elements.
using WeightProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Reads all tensors and passes them to `take`, strip by strip, in the order of `tensors`, which is
/// the result of match_tensors() for this folder.
void load_weights(const SafetensorsFolder& folder, std::span<const MappedTensor> tensors,
                  const TakeWeights& take, const WeightProgress& progress = {});

/// The names, shapes and type of these tensors in a folder that stores them as `type`, in the same
/// order. The result is an argument of the constructor of SafetensorsFolderWriter.
std::vector<TensorSpec> stored_tensors(std::span<const MappedTensor> tensors, StoredType type);
/// Reads all tensors with `give` and writes them to `writer`, which was constructed with the result
/// of stored_tensors(). Afterwards the caller calls writer.finish().
void store_weights(std::span<const MappedTensor> tensors, const GiveWeights& give,
                   SafetensorsFolderWriter& writer);
/// The same for some elements of each parameter, ascending ranges that `of` returns.
using ElementsOf = std::function<std::vector<ElementRange>(ParameterId id)>;
void store_weights(std::span<const MappedTensor> tensors, const ElementsOf& of,
                   const GiveWeights& give, SafetensorsFolderWriter& writer);

}  // namespace ebb
