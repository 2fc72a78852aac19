// The state of the process: initialised or not, its cards, the calling thread's card.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "musart/address_space.h"
#include "musart/musart_sim.h"
#include "musart/status.h"

namespace musart {

struct Card {
  musaSimCard figures{};
  musaDeviceProp properties{};
  int64_t graph_launch_ns = 0;
  int index = 0;     // among the visible cards
  int physical = 0;  // among all cards of the host

  std::mutex memory_mutex;
  std::unique_ptr<AddressSpace> addresses;
  uint16_t* chunk_users = nullptr;  // blocks that lie in each chunk

  musaStream_t default_stream = nullptr;
  std::mutex streams_mutex;
  std::vector<musaStream_t> streams;  // living, without the default one
  std::atomic<int64_t> blocking_tail{0};  // latest tail of the streams that synchronise with the default one
  std::atomic<int64_t> retired_tail{0};   // latest tail of the destroyed streams

  std::mutex peers_mutex;
  std::set<int> peers;  // access enabled to
};

enum class State { kUnused, kReady, kForked };
extern std::atomic<State> state;

musaError_t initialize();

// What every call that needs a card does first.
inline musaError_t ready() {
  return __builtin_expect(state.load(std::memory_order_acquire) == State::kReady, 1) ? musaSuccess : initialize();
}

// After ready(). Never freed: threads may outlive the interpreter's exit.
extern Card** cards;
extern int card_count;

// The card of an index given by the caller.
musaError_t card_at(int device, Card** card);

int current_device();
inline Card& current_card() { return *cards[current_device()]; }

}  // namespace musart
