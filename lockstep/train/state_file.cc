#include "lockstep/train/state_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <vector>

namespace lockstep::train {

std::string state_file(const torch::nn::Module& module) {
  c10::Dict<std::string, at::Tensor> state;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& entry : list) {
      state.insert(entry.key(), entry.value().detach().cpu().contiguous());
    }
  }

  std::string pickle;
  // Aggregates without type tags: tags are calls that a safe loader refuses.
  torch::jit::Pickler pickler(
      [&](const char* bytes, std::size_t count) { pickle.append(bytes, count); }, nullptr, nullptr,
      nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(state);
  pickler.stop();

  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t count) {
    file.append(static_cast<const char*>(bytes), count);
    return count;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  std::size_t number = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const auto data = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), data.data(), data.sizeInBytes());
  }
  writer.writeEndOfFile();
  return file;
}

}  // namespace lockstep::train
