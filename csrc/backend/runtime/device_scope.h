// RAII switch of the calling thread's card, for runtime calls that work on the current one.
#pragma once

#include "musart/musart.h"

namespace musa {

class DeviceScope {
 public:
  explicit DeviceScope(int device) noexcept {
    musaGetDevice(&before_);
    if (before_ != device) {
      status_ = musaSetDevice(device);
      changed_ = status_ == musaSuccess;
    }
  }
  ~DeviceScope() {
    if (changed_) {
      musaSetDevice(before_);
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  musaError_t status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  musaError_t status_ = musaSuccess;
};

}  // namespace musa
