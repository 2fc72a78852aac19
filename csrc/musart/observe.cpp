#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "musart/accounting.h"
#include "musart/accounting_file.h"
#include "musart/cards.h"
#include "musart/clock.h"
#include "musart/musart_observe.h"
#include "musart/runtime.h"

namespace musart {
namespace {

using accounting::Owner;
using accounting::Setup;
using accounting::Table;

constexpr int kMooreThreads = 0x1ed5;  // PCI vendor id

struct User {
  int pid = 0;
  size_t memory = 0;
  LoadShare share;
};

// Read with pread: a mapping would fill the holes of the sparse file with pages.
class SharedFile {
 public:
  explicit SharedFile(const char* scope) {
    const std::string name = accounting::file_name(scope);
    for (const std::string& folder : accounting::file_folders()) {
      fd_ = ::open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
      struct stat status;
      if (fd_ >= 0 && fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()) return;
      close();
    }
  }
  ~SharedFile() { close(); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  std::vector<User> users(int card) const {
    std::vector<User> found;
    const std::vector<Owner> all = owners();
    for (size_t slot = 0; slot < all.size(); ++slot) {
      const Owner& owner = all[slot];
      if (!is_alive(owner)) continue;
      User user;
      user.pid = owner.pid;
      uint64_t held = 0;
      const size_t cell = offsetof(Table, held) + (slot * kMaxCards + static_cast<size_t>(card)) * sizeof held;
      if (read(cell, &held, sizeof held)) user.memory = held;
      CardLoad load{};
      const size_t at = static_cast<size_t>(accounting::load_row_offset(static_cast<int>(slot)));
      bool worked = false;
      if (read(at + static_cast<size_t>(card) * sizeof load, static_cast<void*>(&load), sizeof load)) {
        user.share = load_share(load);
        worked = load.total.busy_ns.load() > 0;
      }
      if (user.memory > 0 || worked) found.push_back(user);
    }
    return found;
  }

  // The cards of the first living process.
  bool first_setup(Setup* setup) const {
    const std::vector<Owner> all = owners();
    for (size_t slot = 0; slot < all.size(); ++slot) {
      const auto at = static_cast<size_t>(accounting::setup_offset(static_cast<int>(slot)));
      if (!is_alive(all[slot]) || !read(at, setup, sizeof *setup) || setup->cards <= 0) continue;
      setup->card_file[sizeof setup->card_file - 1] = '\0';
      return true;
    }
    return false;
  }

 private:
  static bool is_alive(const Owner& owner) {
    return owner.pid != 0 && owner.start != 0 && accounting::process_start(owner.pid) == owner.start;
  }

  std::vector<Owner> owners() const {
    uint64_t magic = 0;
    int32_t slots = 0;
    if (!read(offsetof(Table, magic), &magic, sizeof magic) || magic != accounting::kMagic) return {};
    if (!read(offsetof(Table, slots_used), &slots, sizeof slots) || slots <= 0) return {};
    std::vector<Owner> all(static_cast<size_t>(std::min(slots, accounting::kSlots)));
    if (!read(offsetof(Table, owners), all.data(), all.size() * sizeof(Owner))) return {};
    return all;
  }

  bool read(size_t offset, void* to, size_t bytes) const {
    return fd_ >= 0 && pread(fd_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  int fd_ = -1;
};

// The host may have gone on since this process's last launch.
void bring_own_load_up_to_date(CardLoad& load) { raise(load.total.now_ns, host_now()); }

std::vector<User> users_of(int card) {
  const bool initialised = state.load(std::memory_order_acquire) == State::kReady;
  if (!initialised) return SharedFile(setting("TORCH_MUSA_SIM_SCOPE")).users(card);
  CardLoad& own = own_loads.load()[card];
  if (own.total.busy_ns.load() > 0) bring_own_load_up_to_date(own);
  User self;
  if (accounting::shared(card, &self.memory)) return SharedFile(setting("TORCH_MUSA_SIM_SCOPE")).users(card);
  self.pid = getpid();
  self.share = load_share(own);
  if (self.memory > 0 || own.total.busy_ns.load() > 0) return {self};
  return {};
}

void command_of(int pid, char* text, size_t size) {
  char name[48];
  snprintf(name, sizeof name, "/proc/%d/cmdline", pid);
  size_t length = 0;
  if (FILE* file = fopen(name, "re")) {
    length = fread(text, 1, size - 1, file);
    fclose(file);
  }
  while (length > 0 && text[length - 1] == '\0') --length;
  for (size_t i = 0; i < length; ++i) {
    if (static_cast<unsigned char>(text[i]) < ' ') text[i] = ' ';
  }
  text[length] = '\0';
}

bool is_set(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0';
}

// Whether the cards are those of another process, as nothing says which they should be.
bool adopts(Setup* setup) {
  if (state.load(std::memory_order_acquire) == State::kReady) return false;
  for (const char* name : {"TORCH_MUSA_SIM_CARDS", "TORCH_MUSA_SIM_CARD", "TORCH_MUSA_SIM_MEMORY"}) {
    if (is_set(name)) return false;
  }
  return SharedFile(setting("TORCH_MUSA_SIM_SCOPE")).first_setup(setup);
}

musaError_t count_cards(int* count) {
  MUSART_TRY(check_setting_values());
  Setup setup{};
  if (adopts(&setup)) {
    *count = std::min(setup.cards, kMaxCards);
    return musaSuccess;
  }
  *count = static_cast<int>(musaSimSettingInt("TORCH_MUSA_SIM_CARDS"));
  return musaSuccess;
}

musaError_t check_card(int card) {
  int count = 0;
  MUSART_TRY(count_cards(&count));
  if (card >= 0 && card < count) return musaSuccess;
  return fail(musaErrorInvalidDevice, "there is no card %d on this host, valid are 0 .. %d", card, count - 1);
}

std::string uuid_text(const musaDeviceProp& properties) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    snprintf(hex, sizeof hex, "%02x", properties.uuid[i]);
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

template <size_t size>
void put(char (&to)[size], std::string_view text) {
  const size_t length = std::min(text.size(), size - 1);
  memcpy(to, text.data(), length);
  to[length] = '\0';
}

void describe(const CardModel& model, int card, musaSimCardInfo& info) {
  musaDeviceProp place{};
  identify_card(card, &place);
  const CardTraits& traits = model.traits;
  put(info.name, model.properties.name);
  put(info.model, model.figures.model);
  put(info.uuid, uuid_text(place));
  snprintf(info.serial, sizeof info.serial, "SIM%06d", card);
  snprintf(info.pci, sizeof info.pci, "%08x:%02x:%02x.0", place.pciDomainID, place.pciBusID, place.pciDeviceID);
  put(info.ecc, traits.ecc);
  info.memory = model.figures.memory;
  info.major = model.properties.major;
  info.minor = model.properties.minor;
  info.multiprocessors = model.properties.multiProcessorCount;
  info.clock_mhz = model.properties.clockRate / 1000;
  info.memory_clock_mhz = model.properties.memoryClockRate / 1000;
  info.memory_bus_bits = model.properties.memoryBusWidth;
  info.bandwidth = traits.bandwidth;
  info.power_idle_w = traits.power_idle;
  info.power_limit_w = traits.power_limit;
  info.temperature_idle_c = traits.temperature_idle;
  info.temperature_load_c = traits.temperature_load;
  info.links = traits.links_per_peer > 0 ? traits.links : 0;
  info.links_per_peer = traits.links_per_peer;
  info.link_version = traits.link_version;
  info.link_bandwidth = traits.link_bandwidth;
  info.pci_vendor_id = kMooreThreads;
  info.pci_device_id = traits.pci_device_id;
  info.pci_generation = traits.pci_generation;
  info.pci_lanes = traits.pci_lanes;
}

}  // namespace
}  // namespace musart

using musart::fail;

extern "C" {

// The number is one that mthreads-gmi was seen to print; the suffix keeps it from passing for a real driver.
const char* musaSimDriverName(void) { return "3.3.5-sim"; }

musaError_t musaSimCountCards(int* count) {
  if (count == nullptr) return fail(musaErrorInvalidValue, "musaSimCountCards: count is NULL");
  return musart::count_cards(count);
}

musaError_t musaSimDescribeCard(int card, musaSimCardInfo* info) {
  if (info == nullptr) return fail(musaErrorInvalidValue, "musaSimDescribeCard: info is NULL");
  MUSART_TRY(musart::check_card(card));
  musart::CardModel model;
  musart::Setup setup{};
  if (musart::adopts(&setup)) {
    MUSART_TRY(musart::load_card_file(setup.card_file, static_cast<int64_t>(setup.memory), &model));
  } else {
    MUSART_TRY(musart::load_card_model(&model));
  }
  *info = {};
  musart::describe(model, card, *info);
  return musaSuccess;
}

musaError_t musaSimObserveCard(int card, musaSimCardState* state) {
  if (state == nullptr) return fail(musaErrorInvalidValue, "musaSimObserveCard: state is NULL");
  musaSimCardInfo info{};
  MUSART_TRY(musaSimDescribeCard(card, &info));
  *state = {};
  for (const musart::User& user : musart::users_of(card)) {
    state->memory_used += user.memory;
    state->busy += user.share.busy;
    state->memory_busy += user.share.memory;
    ++state->processes;
  }
  state->busy = std::min(state->busy, 1.0);
  state->memory_busy = std::min(state->memory_busy, 1.0);
  state->power_w = info.power_idle_w + state->busy * (info.power_limit_w - info.power_idle_w);
  state->temperature_c = info.temperature_idle_c + state->busy * (info.temperature_load_c - info.temperature_idle_c);
  return musaSuccess;
}

musaError_t musaSimObserveProcesses(int card, musaSimProcess* processes, int capacity, int* count) {
  if (count == nullptr || (processes == nullptr && capacity > 0)) {
    return fail(musaErrorInvalidValue, "musaSimObserveProcesses: processes or count is NULL");
  }
  MUSART_TRY(musart::check_card(card));
  std::vector<musart::User> users = musart::users_of(card);
  std::sort(users.begin(), users.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  *count = static_cast<int>(users.size());
  for (int i = 0; i < std::min(capacity, *count); ++i) {
    const musart::User& user = users[static_cast<size_t>(i)];
    processes[i] = {user.pid, user.memory, user.share.busy, {}};
    musart::command_of(user.pid, processes[i].command, sizeof processes[i].command);
  }
  return musaSuccess;
}

musaError_t musaSimPhysicalCard(int device, int* card) {
  if (card == nullptr) return fail(musaErrorInvalidValue, "musaSimPhysicalCard: card is NULL");
  int count = 0;
  MUSART_TRY(musart::count_cards(&count));
  std::vector<int> physical;
  MUSART_TRY(musart::visible_cards(count, &physical));
  if (device < 0 || device >= static_cast<int>(physical.size())) {
    return fail(
        musaErrorInvalidDevice, "there is no card %d among the %d visible ones", device,
        static_cast<int>(physical.size()));
  }
  *card = physical[static_cast<size_t>(device)];
  return musaSuccess;
}

musaError_t musaSimLinkPeer(int card, int link, int* peer) {
  if (peer == nullptr) return fail(musaErrorInvalidValue, "musaSimLinkPeer: peer is NULL");
  musaSimCardInfo info{};
  MUSART_TRY(musaSimDescribeCard(card, &info));
  if (link < 0 || link >= info.links) {
    return fail(musaErrorInvalidValue, "%s has %d MTLink ports, there is no port %d", info.name, info.links, link);
  }
  int count = 0;
  MUSART_TRY(musart::count_cards(&count));
  const int mesh = info.links / info.links_per_peer + 1;
  const int place = link / info.links_per_peer;  // among the other cards of the mesh, in order
  const int first = card / mesh * mesh;
  const int other = first + place + (first + place >= card ? 1 : 0);
  *peer = other < std::min(first + mesh, count) ? other : -1;
  return musaSuccess;
}

}  // extern "C"
