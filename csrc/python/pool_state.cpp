// The state of a private pool, and storages that lie in it: what trees of graphs need of the allocator.
#include "backend/runtime/allocator/pool_state.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <tuple>

#include "backend/graph/poison.h"
#include "backend/runtime/caching_allocator.h"
#include "backend/storage.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

using torch::wrap_pybind_function;
using State = std::vector<std::tuple<uintptr_t, size_t, size_t>>;

c10::StorageImpl* storage_at(uintptr_t address) {
  auto* storage = reinterpret_cast<c10::StorageImpl*>(address);  // NOLINT: torch hands storages out as numbers
  TORCH_CHECK(
      storage != nullptr && storage->device_type() == c10::DeviceType::PrivateUse1,
      "Expected the address (_cdata) of a storage on musa.");
  return storage;
}

State state_of(c10::DeviceIndex device, c10::MempoolId_t id) {
  State state;
  for (const PoolBlock& block : pool_state(device, id)) {
    state.emplace_back(block.address, block.size, block.requested);
  }
  return state;
}

/// Of the restored blocks, each goes to the first of the storages that lies at it; returns those that nobody owns.
std::vector<uintptr_t> restore(
    c10::DeviceIndex device, c10::MempoolId_t id, const State& state, const std::vector<uintptr_t>& storages) {
  std::vector<PoolBlock> blocks;
  for (const auto& [address, size, requested] : state) {
    blocks.push_back({address, size, requested});
  }
  std::vector<uintptr_t> unowned = restore_pool_state(device, id, blocks);
  for (const uintptr_t each : storages) {
    c10::StorageImpl* storage = storage_at(each);
    void* data = storage->mutable_data();
    const auto found = std::find(unowned.begin(), unowned.end(), reinterpret_cast<uintptr_t>(data));
    if (found != unowned.end()) {
      storage->set_data_ptr_noswap({data, data, device_allocator()->raw_deleter(), storage->device()});
      unowned.erase(found);
    }
  }
  return unowned;
}

bool owns_block(uintptr_t address) {
  c10::StorageImpl* storage = storage_at(address);
  const MusaStorage* ours = as_musa_storage(storage);
  return (ours && ours->twin()) || storage->data_ptr().get_deleter() == device_allocator()->raw_deleter();
}

}  // namespace

void bind_pool_state(py::module_& module) {
  module.def("_pool_state", wrap_pybind_function(state_of));
  module.def("_restore_pool_state", wrap_pybind_function(restore));
  module.def("_free_pool_block", wrap_pybind_function([](uintptr_t address) {
               free_block(reinterpret_cast<void*>(address));  // NOLINT: torch hands addresses out as numbers
             }));
  module.def("_fill_captured_memory", wrap_pybind_function([](bool on) { graph::fill_captured_memory(on); }));
  module.def("_storage_owns_block", wrap_pybind_function(owns_block));
  module.def("_free_storage", wrap_pybind_function([](uintptr_t address) {
               TORCH_CHECK(owns_block(address), "The storage owns no block of card memory that could be freed.");
               storage_at(address)->release_resources();
             }));
  module.def("_forbid_storage_data", wrap_pybind_function([](uintptr_t address, const std::string& message) {
               storage_at(address)->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
             }));
  module.def("_forbid_tensor_storage", wrap_pybind_function([](const at::Tensor& tensor, const std::string& message) {
               tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(message);
             }));
}

}  // namespace musa::python
