// Weights from a Hugging Face folder to wherever they are kept, and back.
//
// Tensors pass in strips of at most 16 MiB, so that nothing of a model's size is held beside the
// state. Reading is exact; writing rounds to nearest, ties to even: weights of a type that were
// loaded and not changed are written with the same bits. One thread. Errors: those of io/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/safetensors_folder_writer.h"
#include "model_zoo/hugging_face_tensors.h"

namespace ebb {

/// Takes, or gives, elements [first, first + values.size()) of a parameter: fp32 masters.
using TakeWeights =
    std::function<void(ParameterId id, uint64_t first, std::span<const float> values)>;
using GiveWeights = std::function<void(ParameterId id, uint64_t first, std::span<float> values)>;
/// Told now and then how many elements have passed.
using WeightProgress = std::function<void(uint64_t done, uint64_t total)>;

/// `tensors` as match_tensors() gave them for this folder.
void load_weights(const SafetensorsFolder& folder, std::span<const MappedTensor> tensors,
                  const TakeWeights& take, const WeightProgress& progress = {});

/// What a folder with these tensors holds: for SafetensorsFolderWriter, in the same order.
std::vector<TensorSpec> stored_tensors(std::span<const MappedTensor> tensors, StoredType type);
/// Fills `writer`, which was made for them; the caller finishes it.
void store_weights(std::span<const MappedTensor> tensors, const GiveWeights& give,
                   SafetensorsFolderWriter& writer);

}  // namespace ebb
