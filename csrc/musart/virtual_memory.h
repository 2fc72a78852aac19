// Addresses of a card apart from the memory behind them, so that an allocation can grow and shrink where it lies.
// Sizes and addresses are multiples of 2 MiB.
#pragma once

#include "musart/musart.h"

#ifdef __cplusplus
extern "C" {
#endif

// Addresses of the calling thread's card, without memory: up to *size bytes of them, as many as are left in one piece
// without leaving others too few; at least `least`, else musaErrorMemoryAllocation. *size tells how many.
MUSART_API musaError_t musaSimReserveAddresses(void** pointer, size_t* size, size_t least);
// Puts zeroed memory behind reserved addresses, which counts against the card. Fails as musaMalloc does.
MUSART_API musaError_t musaSimMapMemory(void* pointer, size_t size);
MUSART_API musaError_t musaSimUnmapMemory(void* pointer, size_t size);
// Gives back what musaSimReserveAddresses returned, when no memory is behind it any more.
MUSART_API musaError_t musaSimFreeAddresses(void* pointer);

#ifdef __cplusplus
}
#endif
