// What generic torch code asks of the backend through at::PrivateUse1HooksInterface.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "backend/generator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/host_allocator.h"
#include "backend/storage.h"
#include "musart/musart_sim.h"

namespace musa {

namespace {

struct MusaHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  void init() const override { ensure_initialized(); }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return musaSimIsInitialized() != 0 && device < musaSimArenaInfo.cards;
  }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(resolve_device(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(resolve_device(device));
  }

  at::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(musart::is_device_pointer(data), "The pointer ", data, " does not lie in the memory of a MUSA card");
    return c10::Device(kMusa, static_cast<c10::DeviceIndex>(musart::device_of(data)));
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new MusaHooks());
  return true;
}();

}  // namespace

}  // namespace musa
