#include "backend/runtime/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/graph/interception.h"
#include "backend/runtime/check.h"
#include "backend/runtime/native_stream.h"
#include "musart/musart_capture.h"

#include <c10/util/Exception.h>

#include "musart/musart_races.h"

namespace musa {

namespace {

constexpr int kStreamsPerPool = 32;  // CUDA's figure
constexpr int kPriorities = 4;       // 0 .. -3, the more negative the more urgent; the runtime's range
constexpr int kSlots = kPriorities * kStreamsPerPool;

// Slot s of a card is c10 stream id s + 1; id 0 is the card's default stream.
struct CardStreams {
  std::array<std::atomic<musaStream_t>, kSlots> slots{};
  std::array<std::atomic<uint32_t>, kPriorities> next{};
  std::atomic<musaStream_t> default_stream{nullptr};
  std::mutex create;
};

CardStreams& card_streams(c10::DeviceIndex device) {
  // Never destroyed: threads may still launch while the interpreter exits.
  static auto* cards = new std::array<CardStreams, std::numeric_limits<c10::DeviceIndex>::max() + 1>();
  return (*cards)[static_cast<size_t>(device)];
}

struct Current {
  c10::StreamId id = 0;
  musaStream_t native = nullptr;
};
// The array is found through plain pointers, without the check for first use that a thread_local object costs.
thread_local std::vector<Current> thread_streams;
constinit thread_local Current* streams_begin __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local size_t streams_count __attribute__((tls_model("initial-exec"))) = 0;

Current& thread_current(c10::DeviceIndex device) {
  const auto index = static_cast<size_t>(device);
  if (C10_UNLIKELY(index >= streams_count)) {
    ensure_initialized();
    thread_streams.resize(static_cast<size_t>(musaSimArenaInfo.cards));
    streams_begin = thread_streams.data();
    streams_count = thread_streams.size();
    TORCH_CHECK(
        index < thread_streams.size(), "MUSA device index ", index, " is out of range: visible cards are 0 .. ",
        thread_streams.size() - 1);
  }
  return streams_begin[index];
}

musaStream_t default_native(c10::DeviceIndex device) {
  auto& slot = card_streams(device).default_stream;
  musaStream_t stream = slot.load(std::memory_order_acquire);
  if (C10_UNLIKELY(stream == nullptr)) {
    ensure_initialized();
    MUSA_CHECK(musaSimDefaultStream(device, &stream));
    slot.store(stream, std::memory_order_release);
  }
  return stream;
}

musaStream_t pool_native(c10::DeviceIndex device, int slot) {
  CardStreams& card = card_streams(device);
  musaStream_t stream = card.slots[slot].load(std::memory_order_acquire);
  if (stream != nullptr) {
    return stream;
  }
  ensure_initialized();
  std::lock_guard<std::mutex> lock(card.create);
  stream = card.slots[slot].load(std::memory_order_acquire);
  if (stream == nullptr) {
    int before = 0;
    MUSA_CHECK(musaGetDevice(&before));
    MUSA_CHECK(musaSetDevice(device));
    const musaError_t status = musaStreamCreateWithPriority(&stream, musaStreamNonBlocking, -(slot / kStreamsPerPool));
    MUSA_CHECK(musaSetDevice(before));
    MUSA_CHECK(status);
    card.slots[slot].store(stream, std::memory_order_release);
  }
  return stream;
}

// What race reports call a stream: the expression that makes it again in Python.
void name_stream(musaStream_t stream, char* text, size_t size) {
  const int device = musaSimStreamDevice(stream);
  if (device < 0 || device > std::numeric_limits<c10::DeviceIndex>::max()) {
    return;
  }
  const auto& slots = card_streams(static_cast<c10::DeviceIndex>(device)).slots;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slots[slot].load(std::memory_order_acquire) == stream) {
      std::snprintf(text, size, "torch.musa.Stream(device=musa:%d, stream_id=%d)", device, slot + 1);
    }
  }
}

[[maybe_unused]] const bool named = (musaSimSetStreamNamer(&name_stream), true);

// An id beyond the pools is the runtime's handle of a stream that the program made itself.
musaStream_t external_native(c10::DeviceIndex device, c10::StreamId id) {
  auto* handle = reinterpret_cast<musaStream_t>(id);
  TORCH_CHECK(
      musaSimStreamIsAlive(handle) && musaSimStreamDevice(handle) == device,
      "No stream of musa:", static_cast<int>(device), " has the id ", id,
      "; streams come from torch.musa.Stream(), torch.Stream(device=\"musa\") or, for musaStreamCreate's, from "
      "torch.musa.ExternalStream(handle), and live until musaStreamDestroy");
  return handle;
}

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kMusa, device), id);
}

}  // namespace

c10::Stream default_stream(c10::DeviceIndex device) { return make_stream(resolve_device(device), 0); }

c10::Stream current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_device(device);
  const auto position = static_cast<size_t>(index);
  // A thread that never switched is on the default stream; asking must not initialise the device.
  return make_stream(index, position < streams_count ? streams_begin[position].id : 0);
}

void set_current_stream(c10::Stream stream) {
  const musaStream_t native = native_stream(stream);
  thread_current(stream.device_index()) = Current{stream.id(), native};
  if (C10_UNLIKELY(musaSimCaptureCount() != 0 && musaSimCaptureOwner(native) != nullptr)) {
    graph::intercept_thread(true);  // whoever works on a captured stream is captured
  }
}

c10::Stream stream_from_pool(c10::DeviceIndex device, int priority) {
  const c10::DeviceIndex index = resolve_device(device);
  ensure_initialized();
  const int pool = -std::clamp(priority, 1 - kPriorities, 0);
  const uint32_t turn = card_streams(index).next[pool].fetch_add(1, std::memory_order_relaxed) % kStreamsPerPool;
  return make_stream(index, 1 + pool * kStreamsPerPool + static_cast<int>(turn));
}

musaStream_t native_stream(c10::Stream stream) {
  const c10::DeviceIndex device = resolve_device(stream.device_index());
  if (stream.id() == 0) {
    return default_native(device);
  }
  if (stream.id() > kSlots) {
    return external_native(device, stream.id());
  }
  TORCH_CHECK(
      stream.id() >= 1, "Unknown MUSA stream id ", stream.id(), " on musa:", static_cast<int>(device),
      "; streams come from torch.musa.Stream() or torch.Stream(device=\"musa\")");
  return pool_native(device, static_cast<int>(stream.id() - 1));
}

musaStream_t current_native_stream(c10::DeviceIndex device) {
  Current& current = thread_current(device);
  if (C10_UNLIKELY(current.native == nullptr)) {
    current.native = default_native(device);
  }
  return current.native;
}

musaStream_t exchange_native_stream(c10::DeviceIndex device, musaStream_t stream) {
  return std::exchange(thread_current(device).native, stream);
}

}  // namespace musa
