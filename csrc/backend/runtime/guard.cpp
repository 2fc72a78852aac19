// The device guard: what torch.Stream, torch.Event and torch.accelerator are built on.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/sync_debug.h"
#include "musart/musart_capture.h"

namespace musa {

namespace {

class MusaGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kMusa; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return c10::Device(kMusa, exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return c10::Device(kMusa, current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      set_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      setDevice(device);
    } catch (...) {  // a destructor restores what was valid before; nothing to report to
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return stream_from_pool(device.index(), high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return native_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    return is_done(musaStreamQuery(native_stream(stream)), "musaStreamQuery");
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    note_synchronization();
    MUSA_CHECK(musaStreamSynchronize(native_stream(stream)));
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return musaSimCaptureCount() != 0 && musaSimCaptureOwner(native_stream(stream)) != nullptr;
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    ensure_initialized();
    const c10::OptionalDeviceGuard guard(c10::Device(kMusa, resolve_device(device)));
    MUSA_CHECK(musaDeviceSynchronize());
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag)
      const override {
    TORCH_CHECK(
        device < 0 || device == stream.device_index(), "A MUSA event of musa:", static_cast<int>(device),
        " can't be recorded on a stream of musa:", static_cast<int>(stream.device_index()));
    auto handle = static_cast<musaEvent_t>(*event);
    if (handle == nullptr) {
      ensure_initialized();
      const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;
      MUSA_CHECK(musaEventCreateWithFlags(&handle, timed ? musaEventDefault : musaEventDisableTiming));
      *event = handle;
    }
    MUSA_CHECK(musaEventRecord(handle, native_stream(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {  // never recorded: nothing to wait for
      MUSA_CHECK(musaStreamWaitEvent(native_stream(stream), static_cast<musaEvent_t>(event), 0));
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || is_done(musaEventQuery(static_cast<musaEvent_t>(event)), "musaEventQuery");
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      MUSA_CHECK(musaEventSynchronize(static_cast<musaEvent_t>(event)));
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      (void)musaEventDestroy(static_cast<musaEvent_t>(event));
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    int64_t nanoseconds = 0;
    MUSA_CHECK(musaSimEventElapsedNs(&nanoseconds, static_cast<musaEvent_t>(start), static_cast<musaEvent_t>(end)));
    return static_cast<double>(nanoseconds) * 1e-6;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) {
      record_block_stream(data.get(), native_stream(stream));
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }

 private:
  static bool is_done(musaError_t status, const char* call) {
    if (status == musaErrorNotReady) {
      (void)musaGetLastError();
      return false;
    }
    if (status != musaSuccess) {
      throw_runtime_error(status, call);
    }
    return true;
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, MusaGuardImpl)

}  // namespace musa
