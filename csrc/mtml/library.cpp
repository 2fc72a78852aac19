// Library and handles: opening, closing, finding a card.
#include <stdio.h>
#include <string.h>

#include <array>
#include <mutex>
#include <set>

#include "mtml/handles.h"

struct mtmlLibrary {
  int unused;
};

struct mtmlSystem {
  int unused;
};

namespace mtml {
namespace {

constexpr int kMostCards = 512;
constexpr const char* kVersion = "2.4.3";  // of the API that the functions follow

std::mutex& mutex = *new std::mutex;
std::set<const mtmlLibrary*>& libraries = *new std::set<const mtmlLibrary*>;  // open

mtmlSystem the_system{};

struct Handles {
  std::array<mtmlDevice, kMostCards> devices;
  std::array<mtmlGpu, kMostCards> gpus;
  std::array<mtmlMemory, kMostCards> memories;

  Handles() {
    for (unsigned i = 0; i < kMostCards; ++i) {
      devices[i].index = i;
      gpus[i].device = &devices[i];
      memories[i].device = &devices[i];
    }
  }
};

Handles& handles() {
  static Handles& all = *new Handles;
  return all;
}

template <typename T>
int place(const std::array<T, kMostCards>& all, const T* handle) {
  const auto offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(all.data());
  return offset < sizeof all && offset % sizeof(T) == 0 ? static_cast<int>(offset / sizeof(T)) : -1;
}

mtmlReturn check_open() {
  const std::lock_guard<std::mutex> lock(mutex);
  return libraries.empty() ? MTML_ERROR_DRIVER_NOT_LOADED : MTML_SUCCESS;
}

mtmlReturn check(const mtmlLibrary* library) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (libraries.empty()) return MTML_ERROR_DRIVER_NOT_LOADED;
  return libraries.count(library) != 0 ? MTML_SUCCESS : MTML_ERROR_INVALID_ARGUMENT;
}

mtmlReturn finish(int index, const void* result, int* card) {
  MTML_TRY(check_open());
  if (index < 0 || result == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  *card = index;
  return MTML_SUCCESS;
}

mtmlReturn count_cards(int* count) { return translate(musaSimCountCards(count)); }

// The first card that `is_wanted` accepts.
template <typename Predicate>
mtmlReturn find(const mtmlLibrary* library, const void* key, mtmlDevice** device, Predicate is_wanted) {
  MTML_TRY(check(library));
  if (key == nullptr || device == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  MTML_TRY(count_cards(&count));
  for (int card = 0; card < count; ++card) {
    musaSimCardInfo info{};
    MTML_TRY(describe(card, &info));
    if (!is_wanted(info)) continue;
    *device = device_at(card);
    return MTML_SUCCESS;
  }
  return MTML_ERROR_NOT_FOUND;
}

}  // namespace

mtmlReturn translate(musaError_t error) {
  switch (error) {
    case musaSuccess:
      return MTML_SUCCESS;
    case musaErrorInvalidDevice:
      return MTML_ERROR_NOT_FOUND;
    case musaErrorInvalidValue:
      return MTML_ERROR_DRIVER_FAILURE;
    default:
      return MTML_ERROR_UNKNOWN;
  }
}

mtmlReturn card_of(const mtmlDevice* device, const void* result, int* card) {
  return finish(place(handles().devices, device), result, card);
}

mtmlReturn card_of(const mtmlGpu* gpu, const void* result, int* card) {
  return finish(place(handles().gpus, gpu), result, card);
}

mtmlReturn card_of(const mtmlMemory* memory, const void* result, int* card) {
  return finish(place(handles().memories, memory), result, card);
}

mtmlReturn describe(int card, musaSimCardInfo* info) { return translate(musaSimDescribeCard(card, info)); }

mtmlReturn observe(int card, musaSimCardState* state) { return translate(musaSimObserveCard(card, state)); }

mtmlDevice* device_at(int card) { return &handles().devices[static_cast<size_t>(card)]; }

mtmlReturn write_text(const char* text, char* to, unsigned length) {
  const size_t size = strlen(text) + 1;
  if (size > length) return MTML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text, size);
  return MTML_SUCCESS;
}

}  // namespace mtml

mtmlReturn mtmlLibraryInit(mtmlLibrary** library) {
  if (library == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  musaSimCardInfo info{};
  if (musaSimCountCards(&count) != musaSuccess || musaSimDescribeCard(0, &info) != musaSuccess) {
    // The API has no way to pass the sentence on.
    fprintf(stderr, "torch_musa_sim: %s\n", musaSimGetLastErrorDetail());
    return MTML_ERROR_DRIVER_FAILURE;
  }
  *library = new mtmlLibrary{};
  const std::lock_guard<std::mutex> lock(mtml::mutex);
  mtml::libraries.insert(*library);
  return MTML_SUCCESS;
}

mtmlReturn mtmlLibraryShutDown(mtmlLibrary* library) {
  MTML_TRY(mtml::check(library));
  {
    const std::lock_guard<std::mutex> lock(mtml::mutex);
    mtml::libraries.erase(library);
  }
  delete library;
  return MTML_SUCCESS;
}

const char* mtmlErrorString(mtmlReturn result) {
  switch (result) {
    case MTML_SUCCESS:
      return "Success";
    case MTML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case MTML_ERROR_DRIVER_FAILURE:
      return "Driver Failure";
    case MTML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case MTML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case MTML_ERROR_NO_PERMISSION:
      return "No Permission";
    case MTML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case MTML_ERROR_NOT_FOUND:
      return "Not Found";
    case MTML_ERROR_INSUFFICIENT_MEMORY:
      return "Insufficient Memory";
    case MTML_ERROR_DRIVER_TOO_OLD:
      return "Driver Too Old";
    case MTML_ERROR_DRIVER_TOO_NEW:
      return "Driver Too New";
    case MTML_ERROR_TIMEOUT:
      return "Timeout";
    case MTML_ERROR_RESOURCE_IS_BUSY:
      return "Resource Is Busy";
    case MTML_ERROR_UNKNOWN:
      break;
  }
  return "Unknown Error";
}

mtmlReturn mtmlLibraryGetVersion(const mtmlLibrary* library, char* version, unsigned length) {
  MTML_TRY(mtml::check(library));
  return version == nullptr ? MTML_ERROR_INVALID_ARGUMENT : mtml::write_text(mtml::kVersion, version, length);
}

mtmlReturn mtmlLibraryCountDevice(const mtmlLibrary* library, unsigned* count) {
  MTML_TRY(mtml::check(library));
  if (count == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  int cards = 0;
  MTML_TRY(mtml::count_cards(&cards));
  *count = static_cast<unsigned>(cards);
  return MTML_SUCCESS;
}

mtmlReturn mtmlLibraryInitDeviceByIndex(const mtmlLibrary* library, unsigned index, mtmlDevice** device) {
  MTML_TRY(mtml::check(library));
  if (device == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  MTML_TRY(mtml::count_cards(&count));
  if (index >= static_cast<unsigned>(count)) return MTML_ERROR_NOT_FOUND;
  *device = mtml::device_at(static_cast<int>(index));
  return MTML_SUCCESS;
}

mtmlReturn mtmlLibraryInitDeviceByUuid(const mtmlLibrary* library, const char* uuid, mtmlDevice** device) {
  return mtml::find(
      library, uuid, device, [uuid](const musaSimCardInfo& info) { return strcmp(info.uuid, uuid) == 0; });
}

mtmlReturn mtmlLibraryInitDeviceByPciSbdf(const mtmlLibrary* library, const char* sbdf, mtmlDevice** device) {
  return mtml::find(library, sbdf, device, [sbdf](const musaSimCardInfo& info) { return strcmp(info.pci, sbdf) == 0; });
}

mtmlReturn mtmlLibraryFreeDevice(mtmlDevice* device) {
  int card = 0;
  return mtml::card_of(device, &card, &card);
}

mtmlReturn mtmlLibraryInitSystem(const mtmlLibrary* library, mtmlSystem** system) {
  MTML_TRY(mtml::check(library));
  if (system == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  *system = &mtml::the_system;
  return MTML_SUCCESS;
}

mtmlReturn mtmlLibraryFreeSystem(mtmlSystem* system) {
  return system == &mtml::the_system ? mtml::check_open() : MTML_ERROR_INVALID_ARGUMENT;
}

mtmlReturn mtmlSystemGetDriverVersion(const mtmlSystem* system, char* version, unsigned length) {
  MTML_TRY(mtml::check_open());
  if (system != &mtml::the_system || version == nullptr) return MTML_ERROR_INVALID_ARGUMENT;
  return mtml::write_text(musaSimDriverName(), version, length);
}

mtmlReturn mtmlDeviceInitGpu(mtmlDevice* device, mtmlGpu** gpu) {
  int card = 0;
  MTML_TRY(mtml::card_of(device, gpu, &card));
  *gpu = &mtml::handles().gpus[static_cast<size_t>(card)];
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceFreeGpu(mtmlGpu* gpu) {
  int card = 0;
  return mtml::card_of(gpu, &card, &card);
}

mtmlReturn mtmlDeviceInitMemory(mtmlDevice* device, mtmlMemory** memory) {
  int card = 0;
  MTML_TRY(mtml::card_of(device, memory, &card));
  *memory = &mtml::handles().memories[static_cast<size_t>(card)];
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceFreeMemory(mtmlMemory* memory) {
  int card = 0;
  return mtml::card_of(memory, &card, &card);
}
