// Memory: what torch.accelerator doesn't offer.
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>

#include <tuple>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

std::tuple<size_t, size_t> memory_info(c10::DeviceIndex device) {
  ensure_initialized();
  const c10::DeviceGuard on(c10::Device(kMusa, resolve_device(device)));
  size_t free = 0;
  size_t total = 0;
  MUSA_CHECK(musaMemGetInfo(&free, &total));
  return {free, total};
}

py::dict block_entry(const c10::CachingDeviceAllocator::BlockInfo& block, size_t address) {
  py::dict entry;
  entry["address"] = address;
  entry["size"] = block.size;
  entry["requested_size"] = block.requested_size;
  entry["state"] = block.allocated ? "active_allocated" : (block.active ? "active_pending_free" : "inactive");
  entry["frames"] = py::list();
  return entry;
}

/// One dict a segment, with the keys of torch.cuda.memory_snapshot().
py::list snapshot() {
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
  {
    const py::gil_scoped_release no_gil;
    segments = memory_segments();
  }
  py::list result;
  for (const auto& segment : segments) {
    py::list blocks;
    size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      blocks.append(block_entry(block, address));
      address += block.size;
    }
    py::dict entry;
    entry["device"] = segment.device;
    entry["address"] = segment.address;
    entry["total_size"] = segment.total_size;
    entry["allocated_size"] = segment.allocated_size;
    entry["active_size"] = segment.active_size;
    entry["requested_size"] = segment.requested_size;
    entry["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
    entry["segment_type"] = segment.is_large ? "large" : "small";
    entry["segment_pool_id"] = segment.owner_private_pool_id;
    entry["is_expandable"] = segment.is_expandable;
    entry["frames"] = py::list();
    entry["blocks"] = std::move(blocks);
    result.append(std::move(entry));
  }
  return result;
}

}  // namespace

void bind_memory(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("_memory_info", wrap_pybind_function(memory_info));
  module.def("_memory_snapshot", wrap_pybind_function(snapshot));
  module.def("_set_memory_fraction", wrap_pybind_function([](double fraction, c10::DeviceIndex device) {
               ensure_initialized();
               set_memory_fraction(fraction, device);
             }));
  module.def("_memory_fraction", wrap_pybind_function([](c10::DeviceIndex device) {
               ensure_initialized();
               return memory_fraction(device);
             }));
}

}  // namespace musa::python
