// What a card is, and how its parts do.
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "mtml/handles.h"

namespace {

using mtml::card_of;

constexpr const char* kFirmware = "simulated";

// `field` of the card's description, as T.
template <typename Handle, typename T, typename Field>
mtmlReturn from_info(const Handle* handle, T* result, Field field) {
  int card = 0;
  MTML_TRY(card_of(handle, result, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  *result = static_cast<T>(field(info));
  return MTML_SUCCESS;
}

// ... of the card's state.
template <typename Handle, typename T, typename Field>
mtmlReturn from_state(const Handle* handle, T* result, Field field) {
  int card = 0;
  MTML_TRY(card_of(handle, result, &card));
  musaSimCardState state{};
  MTML_TRY(mtml::observe(card, &state));
  *result = static_cast<T>(field(state));
  return MTML_SUCCESS;
}

template <typename Handle, typename Text>
mtmlReturn text_from_info(const Handle* handle, char* to, unsigned length, Text text) {
  int card = 0;
  MTML_TRY(card_of(handle, to, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  return mtml::write_text(text(info), to, length);
}

mtmlReturn path(const mtmlDevice* device, const char* prefix, int first, char* to, unsigned length) {
  int card = 0;
  MTML_TRY(card_of(device, to, &card));
  return mtml::write_text((prefix + std::to_string(first + card)).c_str(), to, length);
}

// GT/s of a lane.
float pci_speed(int generation) {
  constexpr float kSpeeds[] = {2.5F, 5, 8, 16, 32, 64};
  return kSpeeds[std::clamp(generation, 1, 6) - 1];
}

}  // namespace

mtmlReturn mtmlDeviceGetIndex(const mtmlDevice* device, unsigned* index) {
  int card = 0;
  MTML_TRY(card_of(device, index, &card));
  *index = static_cast<unsigned>(card);
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetName(const mtmlDevice* device, char* name, unsigned length) {
  return text_from_info(device, name, length, [](const musaSimCardInfo& info) { return info.name; });
}

mtmlReturn mtmlDeviceGetUUID(const mtmlDevice* device, char* uuid, unsigned length) {
  return text_from_info(device, uuid, length, [](const musaSimCardInfo& info) { return info.uuid; });
}

mtmlReturn mtmlDeviceGetSerialNumber(const mtmlDevice* device, unsigned length, char* serial) {
  return text_from_info(device, serial, length, [](const musaSimCardInfo& info) { return info.serial; });
}

mtmlReturn mtmlDeviceGetBrand(const mtmlDevice* device, unsigned* brand) {
  return from_info(device, brand, [](const musaSimCardInfo&) { return MTML_BRAND_MTT; });
}

mtmlReturn mtmlDeviceGetPciInfo(const mtmlDevice* device, mtmlPciInfo* pci) {
  int card = 0;
  MTML_TRY(card_of(device, pci, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  *pci = {};
  snprintf(pci->sbdf, sizeof pci->sbdf, "%s", info.pci);
  sscanf(info.pci, "%8x:%2x:%2x", &pci->segment, &pci->bus, &pci->device);
  pci->pciDeviceId = static_cast<unsigned>(info.pci_device_id) << 16 | static_cast<unsigned>(info.pci_vendor_id);
  pci->busWidth = pci->pciMaxWidth = pci->pciCurWidth = static_cast<unsigned>(info.pci_lanes);
  pci->pciMaxGen = pci->pciCurGen = static_cast<unsigned>(info.pci_generation);
  pci->pciMaxSpeed = pci->pciCurSpeed = pci_speed(info.pci_generation);
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetPowerUsage(const mtmlDevice* device, unsigned* power) {
  return from_state(device, power, [](const musaSimCardState& state) { return state.power_w * 1000 + 0.5; });
}

mtmlReturn mtmlDeviceGetProperty(const mtmlDevice* device, mtmlDeviceProperty* property) {
  int card = 0;
  MTML_TRY(card_of(device, property, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  *property = {};  // neither virtual cards nor parts of cards are simulated
  property->mtLinkCap = info.links > 0;
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMtBiosVersion(const mtmlDevice* device, char* version, unsigned length) {
  return text_from_info(device, version, length, [](const musaSimCardInfo&) { return kFirmware; });
}

mtmlReturn mtmlDeviceGetVbiosVersion(const mtmlDevice* device, char* version, unsigned length) {
  return mtmlDeviceGetMtBiosVersion(device, version, length);
}

mtmlReturn mtmlDeviceGetGpuPath(const mtmlDevice* device, char* to, unsigned length) {
  return path(device, "/dev/mtgpu.", 0, to, length);
}

mtmlReturn mtmlDeviceGetPrimaryPath(const mtmlDevice* device, char* to, unsigned length) {
  return path(device, "/dev/dri/card", 0, to, length);
}

mtmlReturn mtmlDeviceGetRenderPath(const mtmlDevice* device, char* to, unsigned length) {
  return path(device, "/dev/dri/renderD", 128, to, length);  // where the kernel's numbers of render nodes begin
}

// The cards are simulated by all processors that this process may use.
mtmlReturn mtmlDeviceGetCpuAffinityWithinNode(const mtmlDevice* device, unsigned size, unsigned long* cpu_set) {
  int card = 0;
  MTML_TRY(card_of(device, cpu_set, &card));
  memset(cpu_set, 0, size * sizeof *cpu_set);
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return MTML_ERROR_UNKNOWN;
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  for (unsigned cpu = 0; cpu < std::min<unsigned>(size * kBits, CPU_SETSIZE); ++cpu) {
    if (CPU_ISSET(cpu, &usable)) cpu_set[cpu / kBits] |= 1UL << cpu % kBits;
  }
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMemoryAffinityWithinNode(const mtmlDevice* device, unsigned size, unsigned long* node_set) {
  int card = 0;
  MTML_TRY(card_of(device, node_set, &card));
  if (size == 0) return MTML_ERROR_INSUFFICIENT_SIZE;
  memset(node_set, 0, size * sizeof *node_set);
  node_set[0] = 1;
  return MTML_SUCCESS;
}

mtmlReturn mtmlGpuGetUtilization(const mtmlGpu* gpu, unsigned* percent) {
  return from_state(gpu, percent, [](const musaSimCardState& state) { return mtml::percent(state.busy); });
}

mtmlReturn mtmlGpuGetEngineUtilization(const mtmlGpu* gpu, unsigned engine, unsigned* percent) {
  if (engine >= MTML_GPU_ENGINE_MAX) return MTML_ERROR_INVALID_ARGUMENT;
  return from_state(gpu, percent, [engine](const musaSimCardState& state) {
    return engine == MTML_GPU_ENGINE_COMPUTE ? mtml::percent(state.busy) : 0;  // nothing else is ever used
  });
}

mtmlReturn mtmlGpuGetTemperature(const mtmlGpu* gpu, unsigned* celsius) {
  return from_state(gpu, celsius, [](const musaSimCardState& state) { return state.temperature_c + 0.5; });
}

// The clock model knows one frequency.
mtmlReturn mtmlGpuGetClock(const mtmlGpu* gpu, unsigned* mhz) { return mtmlGpuGetMaxClock(gpu, mhz); }

mtmlReturn mtmlGpuGetMaxClock(const mtmlGpu* gpu, unsigned* mhz) {
  return from_info(gpu, mhz, [](const musaSimCardInfo& info) { return info.clock_mhz; });
}

mtmlReturn mtmlMemoryGetTotal(const mtmlMemory* memory, uint64_t* bytes) {
  return from_info(memory, bytes, [](const musaSimCardInfo& info) { return info.memory; });
}

mtmlReturn mtmlMemoryGetUsed(const mtmlMemory* memory, uint64_t* bytes) {
  return from_state(memory, bytes, [](const musaSimCardState& state) { return state.memory_used; });
}

// What the driver keeps for itself is not part of the total.
mtmlReturn mtmlMemoryGetUsedSystem(const mtmlMemory* memory, uint64_t* bytes) {
  return from_state(memory, bytes, [](const musaSimCardState&) { return 0; });
}

mtmlReturn mtmlMemoryGetUtilization(const mtmlMemory* memory, unsigned* percent) {
  return from_state(memory, percent, [](const musaSimCardState& state) { return mtml::percent(state.memory_busy); });
}

mtmlReturn mtmlMemoryGetClock(const mtmlMemory* memory, unsigned* mhz) { return mtmlMemoryGetMaxClock(memory, mhz); }

mtmlReturn mtmlMemoryGetMaxClock(const mtmlMemory* memory, unsigned* mhz) {
  return from_info(memory, mhz, [](const musaSimCardInfo& info) { return info.memory_clock_mhz; });
}

mtmlReturn mtmlMemoryGetBusWidth(const mtmlMemory* memory, unsigned* bits) {
  return from_info(memory, bits, [](const musaSimCardInfo& info) { return info.memory_bus_bits; });
}

mtmlReturn mtmlMemoryGetBandwidth(const mtmlMemory* memory, unsigned* gb_per_second) {
  return from_info(memory, gb_per_second, [](const musaSimCardInfo& info) { return info.bandwidth / 1e9 + 0.5; });
}

// The card files give the memory's clock as its transfer rate.
mtmlReturn mtmlMemoryGetSpeed(const mtmlMemory* memory, unsigned* mega_transfers) {
  return mtmlMemoryGetMaxClock(memory, mega_transfers);
}

mtmlReturn mtmlMemoryGetType(const mtmlMemory* memory, unsigned* type) {
  return from_info(memory, type, [](const musaSimCardInfo&) { return MTML_MEM_TYPE_GDDR6; });
}

mtmlReturn mtmlMemoryGetVendor(const mtmlMemory* memory, unsigned length, char* vendor) {
  return text_from_info(memory, vendor, length, [](const musaSimCardInfo&) { return kFirmware; });
}

mtmlReturn mtmlMemoryGetEccMode(const mtmlMemory* memory, unsigned* current, unsigned* pending) {
  const auto has_ecc = [](const musaSimCardInfo& info) { return strcmp(info.ecc, "N/A") != 0 ? 1 : 0; };
  MTML_TRY(from_info(memory, current, has_ecc));
  return from_info(memory, pending, has_ecc);
}
