// Memory: what torch.accelerator doesn't offer.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>

#include <tuple>

#include "backend/runtime/allocator/config.h"
#include "backend/runtime/allocator/custom_allocator.h"
#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/unified_host_memory.h"
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

py::dict stat_entry(const c10::CachingAllocator::Stat& stat) {
  py::dict entry;
  entry["current"] = stat.current;
  entry["peak"] = stat.peak;
  entry["allocated"] = stat.allocated;
  entry["freed"] = stat.freed;
  return entry;
}

py::dict stat_entries(const c10::CachingAllocator::StatArray& stats) {
  py::dict entry;
  entry["all"] = stat_entry(stats[0]);
  entry["small_pool"] = stat_entry(stats[1]);
  entry["large_pool"] = stat_entry(stats[2]);
  return entry;
}

/// The keys of torch.cuda.memory_stats_as_nested_dict().
py::dict statistics(c10::DeviceIndex device) {
  c10::CachingDeviceAllocator::DeviceStats stats;
  {
    const py::gil_scoped_release no_gil;
    stats = device_allocator()->getDeviceStats(device);
  }
  py::dict pools;
  for (const auto& [id, reserved] : stats.reserved_bytes_by_private_pools) {
    pools[py::make_tuple(id.first, id.second)] = stat_entries(reserved);
  }
  py::dict result;
  result["allocation"] = stat_entries(stats.allocation);
  result["segment"] = stat_entries(stats.segment);
  result["active"] = stat_entries(stats.active);
  result["inactive_split"] = stat_entries(stats.inactive_split);
  result["allocated_bytes"] = stat_entries(stats.allocated_bytes);
  result["reserved_bytes"] = stat_entries(stats.reserved_bytes);
  result["active_bytes"] = stat_entries(stats.active_bytes);
  result["inactive_split_bytes"] = stat_entries(stats.inactive_split_bytes);
  result["requested_bytes"] = stat_entries(stats.requested_bytes);
  result["reserved_bytes_by_private_pools"] = std::move(pools);
  result["oversize_allocations"] = stat_entry(stats.oversize_allocations);
  result["oversize_segments"] = stat_entry(stats.oversize_segments);
  result["num_alloc_retries"] = stats.num_alloc_retries;
  result["num_ooms"] = stats.num_ooms;
  result["num_sync_all_streams"] = stats.num_sync_all_streams;
  result["num_device_alloc"] = stats.num_device_alloc;
  result["num_device_free"] = stats.num_device_free;
  result["num_oom_rejections"] = stats.num_oom_rejections;
  result["max_split_size"] = stats.max_split_size;
  return result;
}

py::dict stat_entry(const c10::CachingAllocator::DurationStat& stat) {
  py::dict entry;
  entry["total"] = stat.total;
  entry["max"] = stat.max;
  entry["min"] = stat.min;
  entry["count"] = stat.count;
  entry["avg"] = stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return entry;
}

/// The keys of torch.cuda.host_memory_stats_as_nested_dict().
py::dict host_statistics() {
  at::HostStats stats;
  {
    const py::gil_scoped_release no_gil;
    stats = at::getHostAllocator(kMusa)->get_stats();
  }
  py::dict result;
  result["allocations"] = stat_entry(stats.allocations);
  result["allocated_bytes"] = stat_entry(stats.allocated_bytes);
  result["active_requests"] = stat_entry(stats.active_requests);
  result["active_bytes"] = stat_entry(stats.active_bytes);
  result["host_alloc_time"] = stat_entry(stats.host_alloc_time);
  result["host_free_time"] = stat_entry(stats.host_free_time);
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  return result;
}

uintptr_t raw_allocate(size_t bytes, c10::DeviceIndex device, uintptr_t stream) {
  ensure_initialized();
  return reinterpret_cast<uintptr_t>(allocate_block(bytes, device, reinterpret_cast<musaStream_t>(stream)));
}

void raw_free(uintptr_t address) {
  void* pointer = reinterpret_cast<void*>(address);
  TORCH_CHECK_VALUE(
      !pointer || block_size(pointer) > 0, "MUSA: ", pointer,
      " is no block of the caching allocator, or was freed already.");
  free_block(pointer);
}

}  // namespace

void bind_memory(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.def("_memory_info", wrap_pybind_function(memory_info));
  module.def("_memory_stats", wrap_pybind_function(statistics));
  module.def("_host_memory_stats", wrap_pybind_function(host_statistics));
  module.def("_reset_accumulated_host_memory_stats", wrap_pybind_function_no_gil([] {
               at::getHostAllocator(kMusa)->reset_accumulated_stats();
             }));
  module.def("_reset_peak_host_memory_stats", wrap_pybind_function_no_gil([] {
               at::getHostAllocator(kMusa)->reset_peak_stats();
             }));
  module.def("_empty_host_cache", wrap_pybind_function_no_gil([] { at::getHostAllocator(kMusa)->empty_cache(); }));
  module.def("_raw_allocate", wrap_pybind_function_no_gil(raw_allocate));
  module.def("_raw_free", wrap_pybind_function_no_gil(raw_free));
  module.def("_set_allocator_settings", wrap_pybind_function(allocator::apply_settings));
  module.def("_set_unified_host_memory", wrap_pybind_function(set_unified_host_memory));
  module.def("_is_unified_host_memory", wrap_pybind_function(is_unified_host_memory));
  module.def("_enable_caching", wrap_pybind_function(enable_caching));
  module.def("_is_caching_enabled", wrap_pybind_function(is_caching_enabled));
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
