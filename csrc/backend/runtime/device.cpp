#include "backend/runtime/device.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <string>

#include "backend/runtime/check.h"
#include "musart/musart_sim.h"

#include <c10/util/Exception.h>

namespace musa {

namespace {

std::atomic<bool> initialized{false};
thread_local c10::DeviceIndex thread_device = 0;

// torch counts devices in an int8_t.
constexpr int kMostCards = std::numeric_limits<c10::DeviceIndex>::max();

// Programs that look a library up by its real name (ctypes.CDLL("libmtml.so.2")) find what is loaded under it. They
// lie beside the runtime; one that isn't there is missed only by who asks for it.
void load_named_libraries() {
  Dl_info runtime;
  if (dladdr(reinterpret_cast<const void*>(&musaSimInit), &runtime) == 0) {
    return;
  }
  const std::string path = runtime.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const char* name : {"libmtml.so.2"}) {
    dlopen((folder + name).c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
}

c10::DeviceIndex clamp_count(int count) { return static_cast<c10::DeviceIndex>(std::min(count, kMostCards)); }

}  // namespace

c10::DeviceIndex device_count() noexcept {
  int count = 0;
  if (musaGetDeviceCount(&count) != musaSuccess) {
    (void)musaGetLastError();
    return 0;
  }
  return clamp_count(count);
}

c10::DeviceIndex device_count_checked() {
  int count = 0;
  MUSA_CHECK(musaGetDeviceCount(&count));
  return clamp_count(count);
}

c10::DeviceIndex current_device() { return thread_device; }

void set_device(c10::DeviceIndex device) {
  if (device == thread_device && initialized.load(std::memory_order_acquire)) {
    return;
  }
  const c10::DeviceIndex count = device_count_checked();
  TORCH_CHECK(
      device >= 0 && device < count, "MUSA device index ", static_cast<int>(device), " is out of range: ",
      count == 0 ? "no card is visible (MUSA_VISIBLE_DEVICES)"
                 : c10::str("visible cards are 0 .. ", static_cast<int>(count) - 1));
  MUSA_CHECK(musaSetDevice(device));
  thread_device = device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex before = thread_device;
  if (device >= 0 && device != before) {
    set_device(device);
  }
  return before;
}

c10::DeviceIndex resolve_device(c10::DeviceIndex device) {
  if (device == -1) {
    return thread_device;
  }
  const int count = initialized.load(std::memory_order_acquire) ? musaSimArenaInfo.cards : device_count_checked();
  TORCH_CHECK(
      // An index of 128 and more arrives as a negative one: torch keeps it in 8 bits.
      device >= 0 && device < count, "MUSA device index ", static_cast<int>(device), " is out of range: ",
      count == 0 ? "no card is visible (MUSA_VISIBLE_DEVICES)" : c10::str("visible cards are 0 .. ", count - 1));
  return device;
}

void ensure_initialized() {
  if (initialized.load(std::memory_order_acquire) && !musaSimInBadFork()) {
    return;
  }
  MUSA_CHECK(musaSimInit());
  TORCH_CHECK(
      musaSimArenaInfo.cards > 0,
      "No MUSA card is visible: MUSA_VISIBLE_DEVICES is empty or names no card. Unset it, or name cards "
      "(\"0,1\").");
  if (!initialized.exchange(true, std::memory_order_acq_rel)) {
    load_named_libraries();
  }
}

}  // namespace musa
