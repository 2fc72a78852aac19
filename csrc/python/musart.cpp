// torch.musa.musart(): the runtime calls that programs make from Python, with torch.cuda.cudart()'s conventions. An
// address is an int; a call that can fail returns a musaError.
#include "musart/musart.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>

#include <tuple>

#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "python/musart.h"

namespace py = pybind11;

namespace musa::python {
namespace {

template <class Pointer>
Pointer pointer(uintptr_t address) {
  return reinterpret_cast<Pointer>(address);
}

std::tuple<size_t, size_t> memory_info(c10::DeviceIndex device) {
  ensure_initialized();
  const c10::DeviceGuard on(c10::Device(kMusa, resolve_device(device)));
  size_t free = 0;
  size_t total = 0;
  MUSA_CHECK(musaMemGetInfo(&free, &total));
  return {free, total};
}

void bind_errors(py::module_& musart) {
  py::enum_<musaError_t>(musart, "musaError", py::arithmetic(), "Status of a runtime call.")
      .value("success", musaSuccess)
      .value("invalidValue", musaErrorInvalidValue)
      .value("memoryAllocation", musaErrorMemoryAllocation)
      .value("initializationError", musaErrorInitializationError)
      .value("invalidMemcpyDirection", musaErrorInvalidMemcpyDirection)
      .value("noDevice", musaErrorNoDevice)
      .value("invalidDevice", musaErrorInvalidDevice)
      .value("invalidResourceHandle", musaErrorInvalidResourceHandle)
      .value("notReady", musaErrorNotReady)
      .value("peerAccessAlreadyEnabled", musaErrorPeerAccessAlreadyEnabled)
      .value("peerAccessNotEnabled", musaErrorPeerAccessNotEnabled)
      .value("hostMemoryAlreadyRegistered", musaErrorHostMemoryAlreadyRegistered)
      .value("hostMemoryNotRegistered", musaErrorHostMemoryNotRegistered)
      .value("notSupported", musaErrorNotSupported)
      .value("unknown", musaErrorUnknown);
  musart.def(
      "musaGetErrorString", [](int error) { return musaGetErrorString(static_cast<musaError_t>(error)); },
      py::arg("err"), "The sentence of a status, given as musaError or int.");
}

}  // namespace

void bind_musart(py::module_& module) {
  py::module_ musart = module.def_submodule("_musart", "Calls of the simulated MUSA runtime.");
  bind_errors(musart);
  const py::call_guard<py::gil_scoped_release> no_gil;
  musart.def(
      "musaHostRegister",
      [](uintptr_t ptr, size_t size, unsigned flags) { return musaHostRegister(pointer<void*>(ptr), size, flags); },
      py::arg("ptr"), py::arg("size"), py::arg("flags"), no_gil, "Page-locks `size` bytes of host memory at `ptr`.");
  musart.def(
      "musaHostUnregister", [](uintptr_t ptr) { return musaHostUnregister(pointer<void*>(ptr)); }, py::arg("ptr"),
      no_gil, "Ends what musaHostRegister began at `ptr`.");
  musart.def(
      "musaStreamCreate", [](uintptr_t ptr) { return musaStreamCreate(pointer<musaStream_t*>(ptr)); }, py::arg("ptr"),
      no_gil, "Makes a stream on the current card and writes its handle to the 8 bytes at `ptr`.");
  musart.def(
      "musaStreamDestroy", [](uintptr_t ptr) { return musaStreamDestroy(pointer<musaStream_t>(ptr)); }, py::arg("ptr"),
      no_gil, "Ends a stream, given by its handle.");
  musart.def(
      "musaMemGetInfo", torch::wrap_pybind_function_no_gil(memory_info), py::arg("device"),
      "(free, total) bytes of a card, given by its index.");
}

}  // namespace musa::python
