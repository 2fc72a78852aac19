// The older profiler of torch.autograd: events around each operator, read as virtual time.
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>
#include <vector>

#include "backend/profiler/recorder.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"

namespace musa::profiler {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

musaEvent_t event_of(const ProfilerVoidEventStub* event) { return static_cast<musaEvent_t>(event->get()); }

/// A range of the user in whatever profiler is on, from now to the end of the result.
std::unique_ptr<at::RecordFunction> open(const char* name) {
  auto range = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (range->isActive()) {
    range->before(std::string(name));
  }
  return range;
}

thread_local std::vector<std::unique_ptr<at::RecordFunction>> ranges;

class Stubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  bool enabled() const override { return true; }

  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    ensure_initialized();
    const c10::DeviceIndex card = current_device();
    if (device != nullptr) {
      *device = card;
    }
    musaEvent_t handle = nullptr;
    MUSA_CHECK(musaEventCreate(&handle));
    *event = ProfilerVoidEventStub(handle, [](void* old) { (void)musaEventDestroy(static_cast<musaEvent_t>(old)); });
    if (cpu_ns != nullptr) {
      *cpu_ns = wall_ns();
    }
    MUSA_CHECK(musaEventRecord(handle, current_native_stream(card)));
  }

  /// Microseconds of virtual time.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    MUSA_CHECK(musaEventSynchronize(event_of(start)));
    MUSA_CHECK(musaEventSynchronize(event_of(end)));
    int64_t nanoseconds = 0;
    MUSA_CHECK(musaSimEventElapsedNs(&nanoseconds, event_of(start), event_of(end)));
    return static_cast<float>(static_cast<double>(nanoseconds) * 1e-3);
  }

  void mark(const char* name) const override { open(name); }
  void rangePush(const char* name) const override { ranges.push_back(open(name)); }
  void rangePop() const override {
    if (!ranges.empty()) {
      ranges.pop_back();
    }
  }

  void onEachDevice(std::function<void(int)> act) const override {
    for (c10::DeviceIndex card = 0; card < device_count(); ++card) {
      const c10::DeviceGuard on(c10::Device(kMusa, card));
      act(card);
    }
  }

  void synchronize() const override {
    ensure_initialized();
    MUSA_CHECK(musaDeviceSynchronize());
  }
};

[[maybe_unused]] const bool registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace

}  // namespace musa::profiler
