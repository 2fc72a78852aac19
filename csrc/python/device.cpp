// Cards: counting, choosing, describing, waiting.
#include "backend/runtime/device.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <cstdio>
#include <string>

#include "backend/runtime/check.h"
#include "backend/runtime/stream.h"
#include "musart/musart_faults.h"
#include "musart/musart_sim.h"
#include "musart/watch.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

std::string uuid_text(const musaDeviceProp& prop) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", prop.uuid[i]);
    text += hex.data();
    if (i == 3 || i == 5 || i == 7 || i == 9) {
      text += '-';
    }
  }
  return text;
}

std::string properties_text(const musaDeviceProp& prop) {
  return "_MusaDeviceProperties(name='" + std::string(prop.name) + "', major=" + std::to_string(prop.major) +
      ", minor=" + std::to_string(prop.minor) + ", total_memory=" + std::to_string(prop.totalGlobalMem >> 20) +
      "MB, multi_processor_count=" + std::to_string(prop.multiProcessorCount) + ", uuid=" + uuid_text(prop) +
      ", pci_bus_id=" + std::to_string(prop.pciBusID) + ", pci_device_id=" + std::to_string(prop.pciDeviceID) +
      ", L2_cache_size=" + std::to_string(prop.l2CacheSize >> 20) + "MB)";
}

void bind_properties(py::module_& module) {
  py::class_<musaDeviceProp>(module, "_MusaDeviceProperties")
      .def_property_readonly("name", [](const musaDeviceProp& p) { return std::string(p.name); })
      .def_property_readonly("uuid", uuid_text)
      .def_readonly("major", &musaDeviceProp::major)
      .def_readonly("minor", &musaDeviceProp::minor)
      .def_readonly("total_memory", &musaDeviceProp::totalGlobalMem)
      .def_readonly("multi_processor_count", &musaDeviceProp::multiProcessorCount)
      .def_readonly("warp_size", &musaDeviceProp::warpSize)
      .def_readonly("max_threads_per_block", &musaDeviceProp::maxThreadsPerBlock)
      .def_readonly("max_threads_per_multi_processor", &musaDeviceProp::maxThreadsPerMultiProcessor)
      .def_readonly("regs_per_multiprocessor", &musaDeviceProp::regsPerMultiprocessor)
      .def_readonly("shared_memory_per_block", &musaDeviceProp::sharedMemPerBlock)
      .def_readonly("shared_memory_per_multiprocessor", &musaDeviceProp::sharedMemPerMultiprocessor)
      .def_readonly("clock_rate", &musaDeviceProp::clockRate)
      .def_readonly("memory_clock_rate", &musaDeviceProp::memoryClockRate)
      .def_readonly("memory_bus_width", &musaDeviceProp::memoryBusWidth)
      .def_readonly("L2_cache_size", &musaDeviceProp::l2CacheSize)
      .def_property_readonly("is_integrated", [](const musaDeviceProp& p) { return p.integrated; })
      .def_property_readonly("is_multi_gpu_board", [](const musaDeviceProp& p) { return p.isMultiGpuBoard; })
      .def_readonly("pci_bus_id", &musaDeviceProp::pciBusID)
      .def_readonly("pci_device_id", &musaDeviceProp::pciDeviceID)
      .def_readonly("pci_domain_id", &musaDeviceProp::pciDomainID)
      .def("__repr__", properties_text);
}

musaDeviceProp properties(c10::DeviceIndex device) {
  ensure_initialized();
  musaDeviceProp prop{};
  MUSA_CHECK(musaGetDeviceProperties(&prop, resolve_device(device)));
  return prop;
}

bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer) {
  ensure_initialized();
  int can = 0;
  MUSA_CHECK(musaDeviceCanAccessPeer(&can, resolve_device(device), resolve_device(peer)));
  return can != 0;
}

void synchronize(c10::DeviceIndex device) {
  ensure_initialized();
  const c10::DeviceGuard on(c10::Device(kMusa, resolve_device(device)));
  MUSA_CHECK(musaDeviceSynchronize());
}

int runtime_version() {
  int version = 0;
  MUSA_CHECK(musaRuntimeGetVersion(&version));
  return version;
}

/// Keeps the current stream busy for `cycles` clock cycles of the card, as CUDA's helper of that name does.
void sleep_cycles(int64_t cycles) {
  ensure_initialized();
  const c10::DeviceIndex device = current_device();
  musaDeviceProp prop{};
  const musaSimCard* card = nullptr;
  MUSA_CHECK(musaGetDeviceProperties(&prop, device));
  MUSA_CHECK(musaSimGetCard(device, &card));
  const double seconds = static_cast<double>(cycles) / (static_cast<double>(prop.clockRate) * 1e3);
  const musaSimCost cost{.flops = 0, .bytes = seconds * card->bandwidth, .dtype = musaSimFp32};
  const musaStream_t stream = current_native_stream(device);
  if (musart::watched() != 0) {
    MUSA_CHECK(musaSimBeforeWork(stream, musaSimFaultLaunch, "musa::_sleep"));
  }
  musaSimSpan span{};
  MUSA_CHECK(musaSimLaunch(stream, &cost, &span));
  if (musart::watched() != 0) {
    musart::tell(
        {.kind = musart::ActivityKind::kKernel,
         .name = "musa::_sleep",
         .device = device,
         .stream = stream,
         .span = span});
  }
}

}  // namespace

// Indices arrive checked: torch_musa_sim.musa._utils refuses what is out of range.
void bind_device(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  bind_properties(module);
  module.def("_init", wrap_pybind_function_no_gil(ensure_initialized));
  module.def("_is_initialized", [] { return musaSimIsInitialized() != 0; });
  module.def("_is_in_bad_fork", [] { return musaSimInBadFork() != 0; });
  module.def("_device_count", device_count);
  module.def("_device_count_checked", wrap_pybind_function(device_count_checked));
  module.def("_current_device", wrap_pybind_function(current_device));
  module.def("_set_device", wrap_pybind_function(set_device));
  module.def("_exchange_device", wrap_pybind_function(exchange_device));
  module.def("_device_properties", wrap_pybind_function(properties));
  module.def("_can_access_peer", wrap_pybind_function(can_access_peer));
  module.def("_synchronize", wrap_pybind_function_no_gil(synchronize));
  module.def("_runtime_version", wrap_pybind_function(runtime_version));
  module.def("_sleep", wrap_pybind_function_no_gil(sleep_cycles));
  module.def("_host_clock_ns", musaSimHostClock);
  module.def("_watch_bits", musart::watched);
}

}  // namespace musa::python
