// model.safetensors.index.json, in a folder with two files of weights.
#include <vector>

#include "fuzz/fuzz.h"
#include "io/safetensors_folder.h"
#include "io/safetensors_header.h"

namespace ebb::fuzz {
namespace {

void write_weights(const std::string& name, const std::vector<StoredTensor>& tensors) {
  std::string file = make_safetensors_header({.metadata = {}, .tensors = tensors});
  for (const StoredTensor& tensor : tensors) file.append(tensor.bytes(), '\x01');
  write_file(name, bytes_of(file));
}

StoredTensor tensor(const std::string& name, StoredType type, uint64_t size, uint64_t offset) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = type;
  tensor.shape = {size};
  tensor.offset = offset;
  return tensor;
}

bool write_all_weights() {
  write_weights("a.safetensors",
                {tensor("x", StoredType::F32, 2, 0), tensor("y", StoredType::BF16, 3, 8)});
  write_weights("b.safetensors", {tensor("z", StoredType::F16, 5, 0)});
  return true;
}

}  // namespace

void test_input(Bytes input) {
  [[maybe_unused]] static const bool written = write_all_weights();
  write_file("model.safetensors.index.json", input);
  is_accepted([&] {
    const SafetensorsFolder weights(folder());
    note_accepted();
    uint64_t num_bytes = 0;
    for (const LocatedTensor& located : weights.tensors()) {
      const LocatedTensor* const found = weights.find(located.stored->name);
      require(found != nullptr && found->stored == located.stored, "each tensor has one place");
      std::vector<float> values(located.stored->num_elements());
      located.read_floats(0, values);
      num_bytes += located.stored->bytes();
    }
    require(num_bytes == weights.total_bytes(), "the sum of the tensors is the total");
  });
}

}  // namespace ebb::fuzz
