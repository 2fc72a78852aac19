// Streams: each is a virtual clock. Work runs in the calling thread; the clock says when the card would be done.
#pragma once

#include <atomic>

#include "musart/clock.h"
#include "musart/runtime.h"

namespace musart {
struct Capture;
}

// Handles stay readable after destruction, so that a stale one is reported instead of crashing.
struct alignas(64) MusaStream {
  // A shadow has a tail of its own and touches no other clock: graphs measure their kernels on it.
  enum class Kind : uint8_t { kDefault, kBlocking, kNonBlocking, kShadow };

  std::atomic<int64_t> tail{0};
  musart::Card* card = nullptr;
  std::atomic<bool> alive{true};
  Kind kind = Kind::kNonBlocking;
  int priority = 0;
  int64_t id = 0;
  musaStream_t stands_for = nullptr;  // of a shadow: the stream whose work this is; NULL: nobody's
  std::atomic<musart::Capture*> capture{nullptr};  // while what it is given is being captured; see capture.h
};

namespace musart {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -3;

musaStream_t make_default_stream(Card* card);

// NULL becomes the default stream of the calling thread's card.
inline musaError_t resolve(musaStream_t* stream) {
  MUSART_TRY(ready());
  if (*stream == nullptr) {
    *stream = current_card().default_stream;
    return musaSuccess;
  }
  if (__builtin_expect((*stream)->alive.load(std::memory_order_relaxed), 1)) return musaSuccess;
  return fail(musaErrorInvalidResourceHandle, "the stream was destroyed");
}

// When everything submitted so far that orders work on `stream` is done. The legacy rule: the default stream and the
// blocking streams of its card wait for each other.
inline int64_t ready_at(const MusaStream& stream) {
  const int64_t tail = stream.tail.load(std::memory_order_relaxed);
  switch (stream.kind) {
    case MusaStream::Kind::kNonBlocking:
    case MusaStream::Kind::kShadow:
      return tail;
    case MusaStream::Kind::kBlocking:
      return std::max(tail, stream.card->default_stream->tail.load(std::memory_order_relaxed));
    case MusaStream::Kind::kDefault:
      break;
  }
  return std::max(tail, stream.card->blocking_tail.load(std::memory_order_relaxed));
}

// The stream whose work runs on `stream`, itself but for a shadow; NULL when nothing runs: in a rehearsal or a capture.
inline musaStream_t real_stream(musaStream_t stream) {
  if (stream->kind == MusaStream::Kind::kShadow) return stream->stands_for;
  return stream->capture.load(std::memory_order_relaxed) == nullptr ? stream : nullptr;
}

// Puts work on the stream, submitted now.
musaSimSpan enqueue(MusaStream& stream, const KernelTime& time);
// As enqueue, where submitting costs the host `submit_ns`.
musaSimSpan enqueue_after(MusaStream& stream, int64_t submit_ns, const KernelTime& time);
// As enqueue for a copy; waits for its end when the host side is pageable.
musaSimSpan enqueue_copy(MusaStream& stream, int to_device, int from_device, size_t bytes, bool pinned);

}  // namespace musart
