#include "backend/graph/shadow.h"

#include <array>
#include <limits>
#include <memory>

#include "backend/runtime/check.h"
#include "backend/runtime/native_stream.h"
#include "musart/musart_capture.h"

namespace musa::graph {

namespace {

musaStream_t shadow_of_thread(c10::DeviceIndex card) {
  using Shadows = std::array<musaStream_t, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
  // By pointer: what the library keeps for each thread must fit into the little room that is left at load time.
  thread_local std::unique_ptr<Shadows> shadows;
  if (shadows == nullptr) {
    shadows = std::make_unique<Shadows>();
  }
  musaStream_t& shadow = (*shadows)[static_cast<size_t>(card)];
  if (shadow == nullptr) {
    MUSA_CHECK(musaSimCreateShadowStream(card, &shadow));
  }
  return shadow;
}

}  // namespace

OnShadow::OnShadow(c10::DeviceIndex card, musaStream_t stream, int64_t start_ns)
    : card_(card), stream_(shadow_of_thread(card)), start_(start_ns) {
  MUSA_CHECK(musaSimShadow(stream_, stream, start_ns));
  outer_ = exchange_native_stream(card, stream_);
}

OnShadow::~OnShadow() { exchange_native_stream(card_, outer_); }

}  // namespace musa::graph
