#include "musart/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "musart/accounting.h"
#include "musart/accounting_file.h"
#include "musart/arena.h"
#include "musart/cards.h"
#include "musart/clock.h"
#include "musart/fault.h"
#include "musart/fault_plan.h"
#include "musart/races.h"
#include "musart/settings.h"
#include "musart/stream.h"

namespace musart {

std::atomic<State> state{State::kUnused};
Card** cards = nullptr;
int card_count = 0;

namespace {

std::mutex& init_mutex = *new std::mutex;

musaError_t fail_forked() {
  return fail(
      musaErrorSimForked,
      "Cannot re-initialize MUSA in forked subprocess. To use MUSA with multiprocessing, you must use the 'spawn' "
      "start method");
}

// Signal, fork and exit handlers point into this library: it must outlive a dlclose.
void stay_loaded() {
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(&stay_loaded), &library) != 0) {
    dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

void after_fork_in_child() {
  state.store(State::kForked, std::memory_order_release);
  accounting::forget_in_child();
  close_alias_in_child();
}

musaError_t count_cards(std::vector<int>* physical) {
  MUSART_TRY(check_setting_values());
  MUSART_TRY(visible_cards(static_cast<int>(musaSimSettingInt("TORCH_MUSA_SIM_CARDS")), physical));
  std::vector<musaSimFaultPlan> faults;
  return physical->empty() ? musaSuccess : faults::read_setting(static_cast<int>(physical->size()), &faults);
}

Card* make_card(const CardModel& model, int index, int physical) {
  Card* card = new Card;
  card->figures = model.figures;
  card->properties = model.properties;
  card->index = index;
  card->physical = physical;
  // What the address space was shrunk to is all this process can have.
  const size_t stride = musaSimArenaInfo.stride;
  card->figures.memory = std::min(card->figures.memory, stride);
  card->properties.totalGlobalMem = card->figures.memory;
  card->properties.isMultiGpuBoard = 0;
  identify_card(physical, &card->properties);
  card->addresses = std::make_unique<AddressSpace>(stride);
  // From calloc: 512 cards of 80 GiB would touch 40 MB otherwise.
  card->chunk_users = static_cast<uint16_t*>(calloc(stride / kChunk, sizeof(uint16_t)));
  card->default_stream = make_default_stream(card);
  return card;
}

accounting::Setup setup_of(const CardModel& model) {
  accounting::Setup setup{};
  setup.memory = model.figures.memory;
  setup.cards = static_cast<int32_t>(musaSimSettingInt("TORCH_MUSA_SIM_CARDS"));
  if (model.file.size() >= sizeof setup.card_file) return {};
  memcpy(setup.card_file, model.file.c_str(), model.file.size() + 1);
  return setup;
}

musaError_t initialize_locked() {
  std::vector<int> physical;
  MUSART_TRY(count_cards(&physical));
  CardModel model;
  MUSART_TRY(load_card_model(&model));
  if (physical.empty()) {
    return fail(
        musaErrorNoDevice, "no card is visible: MUSA_VISIBLE_DEVICES='%s' hides all of them",
        setting("MUSA_VISIBLE_DEVICES"));
  }
  const int count = static_cast<int>(physical.size());
  MUSART_TRY(reserve_arena(count, model.figures.memory));
  MUSART_TRY(accounting::open(setting("TORCH_MUSA_SIM_SCOPE"), setup_of(model)));
  freeze_settings();
  configure_clock();
  configure_races();
  cards = new Card*[count];
  for (int i = 0; i < count; ++i) cards[i] = make_card(model, i, physical[i]);
  card_count = count;
  std::vector<musaSimFaultPlan> planned;
  MUSART_TRY(faults::read_setting(count, &planned));  // count_cards has accepted them
  faults::plan_all(planned);
  stay_loaded();
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  atexit(accounting::close);
  if (musaSimSettingFlag("TORCH_MUSA_SIM_FAULT_REPORT")) install_fault_handler();
  state.store(State::kReady, std::memory_order_release);
  return musaSuccess;
}

// Trivial and in the static block: read on every launch on a default stream.
thread_local int thread_device __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

musaError_t initialize() {
  if (state.load(std::memory_order_acquire) == State::kForked) return fail_forked();
  const std::lock_guard<std::mutex> lock(init_mutex);
  return state.load(std::memory_order_acquire) == State::kReady ? musaSuccess : initialize_locked();
}

musaError_t card_at(int device, Card** card) {
  MUSART_TRY(ready());
  if (device < 0 || device >= card_count) {
    return fail(
        musaErrorInvalidDevice, "there is no card %d: %d card%s visible, valid are 0 .. %d", device, card_count,
        card_count == 1 ? " is" : "s are", card_count - 1);
  }
  *card = cards[device];
  return musaSuccess;
}

int current_device() { return thread_device; }

}  // namespace musart

using musart::Card;
using musart::fail;

extern "C" {

musaError_t musaSimInit(void) { return musart::ready(); }

int musaSimIsInitialized(void) { return musart::state.load(std::memory_order_acquire) == musart::State::kReady; }

int musaSimInBadFork(void) { return musart::state.load(std::memory_order_acquire) == musart::State::kForked; }

musaError_t musaSimCheckSettings(void) {
  std::vector<int> physical;
  MUSART_TRY(musart::count_cards(&physical));
  musart::CardModel model;
  return musart::load_card_model(&model);
}

musaError_t musaGetDeviceCount(int* count) {
  if (count == nullptr) return fail(musaErrorInvalidValue, "musaGetDeviceCount: count is NULL");
  *count = musart::card_count;  // also the answer in a forked child
  if (musart::state.load(std::memory_order_acquire) != musart::State::kUnused) return musaSuccess;
  std::vector<int> physical;
  MUSART_TRY(musart::count_cards(&physical));
  *count = static_cast<int>(physical.size());
  return musaSuccess;
}

musaError_t musaSetDevice(int device) {
  Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  musart::thread_device = device;
  return musaSuccess;
}

musaError_t musaGetDevice(int* device) {
  if (musaSimInBadFork()) return musart::fail_forked();
  if (device == nullptr) return fail(musaErrorInvalidValue, "musaGetDevice: device is NULL");
  *device = musart::thread_device;
  return musaSuccess;
}

musaError_t musaGetDeviceProperties(musaDeviceProp* prop, int device) {
  Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  if (prop == nullptr) return fail(musaErrorInvalidValue, "musaGetDeviceProperties: prop is NULL");
  *prop = card->properties;
  return musaSuccess;
}

musaError_t musaSimGetCard(int device, const musaSimCard** figures) {
  Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  *figures = &card->figures;
  return musaSuccess;
}

musaError_t musaDeviceCanAccessPeer(int* can, int device, int peer) {
  Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  MUSART_TRY(musart::card_at(peer, &card));
  if (can == nullptr) return fail(musaErrorInvalidValue, "musaDeviceCanAccessPeer: can is NULL");
  *can = device != peer;
  return musaSuccess;
}

musaError_t musaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  Card* other = nullptr;
  MUSART_TRY(musart::card_at(peer, &other));
  Card& card = musart::current_card();
  if (flags != 0) return fail(musaErrorInvalidValue, "musaDeviceEnablePeerAccess: flags must be 0, got %u", flags);
  if (other == &card) return fail(musaErrorInvalidDevice, "card %d is no peer of itself", peer);
  const std::lock_guard<std::mutex> lock(card.peers_mutex);
  if (card.peers.insert(peer).second) return musaSuccess;
  return fail(musaErrorPeerAccessAlreadyEnabled, "access from card %d to card %d is already enabled", card.index, peer);
}

musaError_t musaDeviceDisablePeerAccess(int peer) {
  Card* other = nullptr;
  MUSART_TRY(musart::card_at(peer, &other));
  Card& card = musart::current_card();
  const std::lock_guard<std::mutex> lock(card.peers_mutex);
  if (card.peers.erase(peer) != 0) return musaSuccess;
  return fail(musaErrorPeerAccessNotEnabled, "access from card %d to card %d wasn't enabled", card.index, peer);
}

// MUSA SDK 5.2.0: major * 10000 + minor * 100 + patch.
musaError_t musaDriverGetVersion(int* version) {
  if (version == nullptr) return fail(musaErrorInvalidValue, "musaDriverGetVersion: version is NULL");
  *version = 50200;
  return musaSuccess;
}

musaError_t musaRuntimeGetVersion(int* version) { return musaDriverGetVersion(version); }

}  // extern "C"
