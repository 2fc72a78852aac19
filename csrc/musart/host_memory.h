// What the host that simulates the cards has left.
#pragma once

#include <stddef.h>

#include "musart/musart.h"

namespace musart {

// Before `bytes` more are committed for `device`: musaErrorSimHostMemory, with both figures, when the host or its
// cgroup has less. Only what is really used counts: committed pages that nobody touched don't.
musaError_t check_host_memory(size_t bytes, int device);

}  // namespace musart
