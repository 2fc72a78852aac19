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

constexpr c10::MempoolId_t kDefault{0, 0};

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
py::list snapshot(c10::MempoolId_t id) {
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
  {
    const py::gil_scoped_release no_gil;
    segments = memory_segments(id);
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
  module.def("_memory_stats", wrap_pybind_function(statistics));
  module.def("_memory_snapshot", wrap_pybind_function(snapshot), py::arg("mempool_id") = kDefault);
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
