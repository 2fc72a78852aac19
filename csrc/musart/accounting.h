// How much of each physical card is taken, counted over all processes of one user and scope on this host.
//
// One small file in shared memory holds a slot per process. Sums are always taken over the slots, so there is no total
// that a killed process could leave wrong; slots of dead processes are dropped when a sum matters.
#pragma once

#include <stddef.h>

#include "musart/musart.h"

namespace musart::accounting {

struct Usage {
  size_t own = 0;     // bytes held by this process
  size_t others = 0;  // bytes held by other live processes
  int processes = 0;  // number of those
};

struct Setup;

// Registers this process, which simulates `setup`. Falls back to private accounting, with one warning, when no folder
// can hold the file.
musaError_t open(const char* scope, const Setup& setup);
// Adds `bytes` unless all processes together would then exceed `capacity`. `usage`: what was found before.
bool acquire(int card, size_t bytes, size_t capacity, Usage* usage);
void release(int card, size_t bytes);
Usage usage(int card);

// Whether other processes can see what this one holds; `held`: its bytes of the card.
bool shared(int card, size_t* held);

// Clears the slot and removes the file when no other process uses it.
void close();
// In a forked child: forget the file without touching the parent's slot. Async-signal-safe.
void forget_in_child();

}  // namespace musart::accounting
