// The race checker: what every stream, event and the host are known to be ordered behind, and who touched which memory.
//
// The threads of the host count as one: what one of them has waited for, the others are taken to know, because how they
// tell each other (a lock, a queue, a join) can't be seen from here.
#pragma once

#include "musart/musart_races.h"
#include "musart/watch.h"

namespace musart {

// Reads TORCH_MUSA_SIM_STRICT and begins to watch. Called once, by initialisation.
void configure_races();

inline bool watches_races() { return __builtin_expect((watched() & kWatchRaces) != 0, 0); }

namespace races {

// `bytes` at `address` of a card no longer exist: the card was waited for and the range unmapped.
void forget_memory(const void* address, size_t bytes);
// Page-locked memory goes away: no copy may come to its end in it.
void forget_host_memory(const void* address, size_t bytes);
// The host has waited for all that `stream` was given.
musaError_t host_waited(musaStream_t stream);
// The work given to `stream` from now on waits for all that `other` was given.
void order(musaStream_t stream, musaStream_t other);
// Copies that `event` covers come to their end.
void passed(musaEvent_t event);

}  // namespace races
}  // namespace musart
