// The calling thread's card.
#pragma once

#include <c10/core/Device.h>

namespace musa {

constexpr c10::DeviceType kMusa = c10::DeviceType::PrivateUse1;

/// Number of visible cards; initialises nothing, 0 on any error (never throws).
c10::DeviceIndex device_count() noexcept;
/// As device_count, but a bad environment value throws.
c10::DeviceIndex device_count_checked();

c10::DeviceIndex current_device();
void set_device(c10::DeviceIndex device);
/// Sets `device`, returns the one before; a negative index changes nothing.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
/// `device` with -1 replaced by the current card; throws when out of range.
c10::DeviceIndex resolve_device(c10::DeviceIndex device);

/// First use of the device: settings are checked, memory is reserved. Throws "Cannot re-initialize MUSA in forked
/// subprocess" in a child that was forked after the parent's first use. Cheap once initialised.
void ensure_initialized();

}  // namespace musa
