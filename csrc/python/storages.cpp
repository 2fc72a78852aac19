// What graph trees do to storages behind torch's back: give memory back early, forbid access, compare addresses.
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

#include "backend/runtime/caching_allocator.h"
#include "backend/storage.h"
#include "python/bindings.h"

namespace musa::python {

namespace {

c10::StorageImpl* storage_at(size_t address) {
  auto* storage = reinterpret_cast<c10::StorageImpl*>(address);  // NOLINT: what `_cdata` is
  TORCH_CHECK(
      storage != nullptr && storage->device_type() == c10::DeviceType::PrivateUse1,
      "expected the `_cdata` of a storage on musa");
  return storage;
}

bool owns_card_memory(size_t address) {
  const c10::StorageImpl* storage = storage_at(address);
  return storage->data() != nullptr && block_size(storage->data()) > 0;
}

void free_card_memory(size_t address) {
  resize_storage(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_at(address))), 0);
}

void set_storage_access_error(const at::Tensor& tensor, const std::string& message) {
  tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(message);
}

bool data_ptrs_equal_at(
    const std::vector<at::Tensor>& tensors, const std::vector<size_t>& addresses, const std::vector<int64_t>& indices) {
  for (const int64_t index : indices) {
    const auto position = static_cast<size_t>(index);
    TORCH_CHECK_INDEX(
        index >= 0 && position < tensors.size() && position < addresses.size(), "index ", index, " is out of range");
    if (reinterpret_cast<size_t>(tensors[position].data_ptr()) != addresses[position]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void bind_storages(pybind11::module_& module) {
  using torch::wrap_pybind_function;
  module.def("_owns_card_memory", wrap_pybind_function(owns_card_memory));
  module.def("_free_card_memory", wrap_pybind_function(free_card_memory));
  module.def("_set_storage_access_error", wrap_pybind_function(set_storage_access_error));
  module.def("_data_ptrs_equal_at", wrap_pybind_function(data_ptrs_equal_at));
}

}  // namespace musa::python
