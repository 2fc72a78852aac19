// Streams: what torch.Stream doesn't offer. Creation, waiting and events go through torch's own classes.
#include "backend/runtime/stream.h"

#include <torch/csrc/Exceptions.h>

#include <tuple>

#include "backend/runtime/check.h"
#include "backend/runtime/sync_debug.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

/// (stream_id, device_index, device_type): the arguments from which torch.Stream rebuilds a stream.
using StreamIds = std::tuple<int64_t, int64_t, int64_t>;

StreamIds ids_of(c10::Stream stream) {
  return {stream.id(), stream.device_index(), static_cast<int64_t>(stream.device_type())};
}

c10::Stream stream_of(int64_t id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kMusa, device), id);
}

std::tuple<int, int> priority_range() {
  int least = 0;
  int greatest = 0;
  MUSA_CHECK(musaDeviceGetStreamPriorityRange(&least, &greatest));
  return {least, greatest};
}

int priority(int64_t id, c10::DeviceIndex device) {
  int value = 0;
  MUSA_CHECK(musaStreamGetPriority(native_stream(stream_of(id, device)), &value));
  return value;
}

/// Makes a stream and its card current.
void set_stream(int64_t id, c10::DeviceIndex device) {
  set_device(device);
  set_current_stream(stream_of(id, device));
}

/// Another face of the stream behind a runtime handle; 0 is the card's default stream.
StreamIds stream_from_handle(uintptr_t handle, c10::DeviceIndex device) {
  ensure_initialized();
  const c10::Stream by_default = default_stream(device);
  if (handle == 0 || handle == reinterpret_cast<uintptr_t>(native_stream(by_default))) {
    return ids_of(by_default);
  }
  const c10::Stream stream = stream_of(static_cast<int64_t>(handle), device);
  native_stream(stream);  // throws for what is no living stream of this card
  return ids_of(stream);
}

/// Virtual time between two recorded events, given as torch.Event.event_id. Checks as torch.Event.elapsed_time.
double elapsed_ms(uintptr_t start, uintptr_t end) {
  TORCH_CHECK(start != 0 && end != 0, "Both events must be recorded before calculating elapsed time.");
  int64_t nanoseconds = 0;
  MUSA_CHECK(
      musaSimEventElapsedNs(&nanoseconds, reinterpret_cast<musaEvent_t>(start), reinterpret_cast<musaEvent_t>(end)));
  return static_cast<double>(nanoseconds) * 1e-6;
}

/// torch.Event is a static type, which Python code can't change. Its own method compares no object of a subclass.
void set_event_elapsed_time(const py::function& method) {
  auto* type = reinterpret_cast<PyTypeObject*>(py::module_::import("torch").attr("Event").ptr());
  if (PyDict_SetItemString(type->tp_dict, "elapsed_time", method.ptr()) != 0) {
    throw py::error_already_set();
  }
  PyType_Modified(type);
}

}  // namespace

void bind_streams(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("_current_stream", wrap_pybind_function([](c10::DeviceIndex device) {
               ensure_initialized();
               return ids_of(current_stream(device));
             }));
  module.def("_default_stream", wrap_pybind_function([](c10::DeviceIndex device) {
               ensure_initialized();
               return ids_of(default_stream(device));
             }));
  module.def("_set_stream", wrap_pybind_function(set_stream));
  module.def("_stream_priority", wrap_pybind_function(priority));
  module.def("_stream_priority_range", wrap_pybind_function(priority_range));
  module.def("_stream_handle", wrap_pybind_function([](int64_t id, c10::DeviceIndex device) {
               return reinterpret_cast<uintptr_t>(native_stream(stream_of(id, device)));
             }));
  module.def("_stream_from_handle", wrap_pybind_function(stream_from_handle));
  module.def("_set_event_elapsed_time", set_event_elapsed_time);
  module.def("_sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  module.def("_set_sync_debug_mode", [](int mode) { set_sync_debug_mode(static_cast<SyncDebugMode>(mode)); });
  module.def("_event_elapsed_ms", wrap_pybind_function(elapsed_ms));
  module.def("_stream_tail_ns", wrap_pybind_function([](int64_t id, c10::DeviceIndex device) {
               return musaSimStreamTail(native_stream(stream_of(id, device)));
             }));
}

}  // namespace musa::python
