// Private memory pools: MemPool objects and the routing of allocations.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <unordered_set>

#include "backend/runtime/allocator/custom_allocator.h"
#include "backend/runtime/allocator/private_pools.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

/// Holds a pool on the card that was current when it was made.
class MemPool {
 public:
  MemPool(PoolTraits traits, std::optional<c10::MempoolId_t> id)
      : id_(id ? *id : new_pool_id()), device_(current_device()) {
    ensure_initialized();
    retain_pool(device_, id_);
    set_pool_traits(device_, id_, traits);
  }
  ~MemPool() {
    if (!musaSimInBadFork()) {
      release_pool(device_, id_);
      empty_cache(id_);
    }
  }
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  c10::MempoolId_t id() const { return id_; }
  c10::DeviceIndex device() const { return device_; }
  int use_count() const { return pool_use_count(device_, id_); }

 private:
  c10::MempoolId_t id_;
  c10::DeviceIndex device_;
};

void begin_on_current_stream(c10::DeviceIndex device, c10::MempoolId_t id) {
  begin_allocate_to_pool(
      device, id, [mine = current_native_stream(device)](musaStream_t stream) { return stream == mine; });
}

}  // namespace

void bind_memory_pools(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  py::class_<CustomAllocator, std::shared_ptr<CustomAllocator>>(module, "_CustomAllocator");
  module.def("_custom_allocator", wrap_pybind_function([](uintptr_t allocate, uintptr_t free) {
               return std::make_shared<CustomAllocator>(
                   reinterpret_cast<CustomAllocator::Allocate*>(allocate),
                   reinterpret_cast<CustomAllocator::Free*>(free));
             }));
  module.def("_change_current_allocator", wrap_pybind_function([](std::shared_ptr<CustomAllocator> allocator) {
               change_current_allocator(std::move(allocator));
             }));
  module.def("_current_allocator", wrap_pybind_function([] {
               return std::const_pointer_cast<CustomAllocator>(current_custom_allocator());
             }));
  py::class_<MemPool>(module, "_MemPool")
      .def(
          py::init([](std::shared_ptr<CustomAllocator> allocator, bool use_on_oom, bool no_split,
                      std::optional<c10::MempoolId_t> id) {
            return std::make_unique<MemPool>(PoolTraits{std::move(allocator), use_on_oom, !no_split}, id);
          }),
          py::arg("allocator") = py::none(), py::arg("use_on_oom") = false, py::arg("no_split") = false,
          py::arg("id") = py::none())
      .def_property_readonly("id", &MemPool::id)
      .def_property_readonly("device", &MemPool::device)
      .def("use_count", &MemPool::use_count);

  module.def("_graph_pool_handle", wrap_pybind_function([] { return new_pool_id(); }));
  module.def("_begin_allocate_to_pool", wrap_pybind_function([](c10::DeviceIndex device, c10::MempoolId_t id) {
               begin_allocate_to_pool(device, id, [](musaStream_t) { return true; });
             }));
  module.def("_begin_allocate_current_stream_to_pool", wrap_pybind_function(begin_on_current_stream));
  module.def("_begin_allocate_current_thread_to_pool", wrap_pybind_function(begin_allocate_current_thread_to_pool));
  module.def("_end_allocate_to_pool", wrap_pybind_function(end_allocate_to_pool));
  module.def("_release_pool", wrap_pybind_function(release_pool));
  module.def("_pool_use_count", wrap_pybind_function(pool_use_count));
  module.def(
      "_pool_holds_exactly",
      wrap_pybind_function(
          [](c10::DeviceIndex device, c10::MempoolId_t id, const std::unordered_set<uintptr_t>& addresses) {
            std::unordered_set<const void*> pointers;
            for (const uintptr_t address : addresses) {
              pointers.insert(reinterpret_cast<const void*>(address));
            }
            return pool_holds_exactly(device, id, pointers);
          }));
  module.def("_empty_cache", wrap_pybind_function_no_gil([](c10::MempoolId_t id) { empty_cache(id); }));
}

}  // namespace musa::python
