// Device memory of this process: which ranges are allocated.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "musart/musart.h"

namespace musart {

// Checks that [pointer, pointer + bytes) lies in one allocation; `call` and `role` word the error.
musaError_t check_device_range(const void* pointer, size_t bytes, const char* call, const char* role);

// For the fault handler: the allocation around a device address, without waiting for a lock. False when there is none
// or the card's books are being changed at the moment.
bool find_allocation_now(uintptr_t address, uintptr_t* start, size_t* size);

}  // namespace musart
