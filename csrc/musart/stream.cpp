#include "musart/stream.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "musart/capture.h"
#include "musart/card_load.h"
#include "musart/races.h"

namespace musart {
namespace {

std::atomic<int64_t> next_id{1};

// Destroyed streams, reused in order of age: the longer a stale handle can be told, the better.
constexpr size_t kGraveyard = 1024;
std::mutex& graveyard_mutex = *new std::mutex;
std::deque<musaStream_t>& graveyard = *new std::deque<musaStream_t>;
std::unordered_set<const void*>& all_streams = *new std::unordered_set<const void*>;  // dead ones, too

musaStream_t make_stream() {
  const std::lock_guard<std::mutex> lock(graveyard_mutex);
  if (graveyard.size() < kGraveyard) {
    musaStream_t fresh = new MusaStream;
    all_streams.insert(fresh);
    return fresh;
  }
  musaStream_t stream = graveyard.front();
  graveyard.pop_front();
  return stream;
}

// Latest end of everything on the card.
int64_t card_tail(Card& card) {
  int64_t tail = std::max(card.default_stream->tail.load(), card.retired_tail.load());
  const std::lock_guard<std::mutex> lock(card.streams_mutex);
  for (const musaStream_t stream : card.streams) tail = std::max(tail, stream->tail.load());
  return tail;
}

}  // namespace

musaStream_t make_default_stream(Card* card) {
  musaStream_t stream = new MusaStream;
  stream->card = card;
  stream->kind = MusaStream::Kind::kDefault;
  const std::lock_guard<std::mutex> lock(graveyard_mutex);
  all_streams.insert(stream);
  return stream;
}

musaSimSpan enqueue(MusaStream& stream, const KernelTime& time) {
  if (__builtin_expect(stream.kind == MusaStream::Kind::kShadow, 0)) {
    const int64_t start = stream.tail.fetch_add(time.device_ns, std::memory_order_relaxed);
    return {start, start + time.device_ns};
  }
  return enqueue_after(stream, stream.card->figures.launch_ns, time);
}

musaSimSpan enqueue_after(MusaStream& stream, int64_t submit_ns, const KernelTime& time) {
  const int64_t submitted = advance_host(submit_ns);
  int64_t start = 0;
  int64_t tail = stream.tail.load(std::memory_order_relaxed);
  do {
    start = std::max({submitted, tail, ready_at(stream)});
  } while (!stream.tail.compare_exchange_weak(tail, start + time.device_ns, std::memory_order_relaxed));
  const int64_t end = start + time.device_ns;
  if (stream.kind == MusaStream::Kind::kBlocking) raise(stream.card->blocking_tail, end);
  note_work(stream.card->physical, {start, end}, time.memory_ns);
  if (__builtin_expect(launch_blocking(), 0)) {
    wait_host(end, stream.card->figures.sync_ns);
    if (watches_races()) (void)races::host_waited(&stream);
  }
  return {start, end};
}

musaSimSpan enqueue_copy(MusaStream& stream, int to_device, int from_device, size_t bytes, bool pinned) {
  const musaSimCard& figures = stream.card->figures;
  const bool host_side = to_device < 0 || from_device < 0;
  // On the stream's card bytes are read or written; within one card they are both.
  const double moved = static_cast<double>(bytes) * (to_device == from_device ? 2 : 1);
  const musaSimSpan span =
      enqueue(stream, {copy_ns(figures, to_device, from_device, bytes, pinned), memory_ns(figures, moved)});
  const bool shadow = stream.kind == MusaStream::Kind::kShadow;
  if (host_side && !pinned && !launch_blocking() && !shadow) wait_host(span.end_ns, figures.sync_ns);
  return span;
}

}  // namespace musart

using musart::fail;

extern "C" {

musaError_t musaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  MUSART_TRY(musart::ready());
  if (least != nullptr) *least = musart::kLeastPriority;
  if (greatest != nullptr) *greatest = musart::kGreatestPriority;
  return musaSuccess;
}

musaError_t musaStreamCreateWithPriority(musaStream_t* stream, unsigned int flags, int priority) {
  MUSART_TRY(musart::ready());
  if (stream == nullptr) return fail(musaErrorInvalidValue, "musaStreamCreate: stream is NULL");
  if (flags > musaStreamNonBlocking) {
    return fail(
        musaErrorInvalidValue, "musaStreamCreate: flags %u; accepted: musaStreamDefault (0), musaStreamNonBlocking (1)",
        flags);
  }
  musart::Card& card = musart::current_card();
  musaStream_t made = musart::make_stream();
  made->card = &card;
  made->kind = flags == musaStreamNonBlocking ? MusaStream::Kind::kNonBlocking : MusaStream::Kind::kBlocking;
  made->priority = std::clamp(priority, musart::kGreatestPriority, musart::kLeastPriority);
  made->id = musart::next_id.fetch_add(1, std::memory_order_relaxed);
  made->tail.store(0, std::memory_order_relaxed);
  made->capture.store(nullptr, std::memory_order_relaxed);
  made->alive.store(true, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(card.streams_mutex);
  card.streams.push_back(made);
  *stream = made;
  return musaSuccess;
}

musaError_t musaStreamCreateWithFlags(musaStream_t* stream, unsigned int flags) {
  return musaStreamCreateWithPriority(stream, flags, musart::kLeastPriority);
}

musaError_t musaStreamCreate(musaStream_t* stream) { return musaStreamCreateWithFlags(stream, musaStreamDefault); }

musaError_t musaStreamDestroy(musaStream_t stream) {
  MUSART_TRY(musart::ready());
  if (stream == nullptr || stream->kind == MusaStream::Kind::kDefault) {
    return fail(musaErrorInvalidResourceHandle, "a card's default stream can't be destroyed");
  }
  MUSART_TRY(musart::refuse_captured(*stream, "musaStreamDestroy"));
  if (!stream->alive.exchange(false)) {
    return fail(musaErrorInvalidResourceHandle, "the stream was destroyed before");
  }
  musart::Card& card = *stream->card;
  if (__builtin_expect(musart::watched() != 0, 0)) {
    musart::tell(
        {.kind = musart::ActivityKind::kStreamDestroy,
         .name = "musaStreamDestroy",
         .device = card.index,
         .stream = stream});
  }
  {
    const std::lock_guard<std::mutex> lock(card.streams_mutex);
    musart::raise(card.retired_tail, stream->tail.load());
    std::erase(card.streams, stream);
  }
  const std::lock_guard<std::mutex> lock(musart::graveyard_mutex);
  musart::graveyard.push_back(stream);
  return musaSuccess;
}

musaError_t musaStreamGetPriority(musaStream_t stream, int* priority) {
  MUSART_TRY(musart::resolve(&stream));
  if (priority == nullptr) return fail(musaErrorInvalidValue, "musaStreamGetPriority: priority is NULL");
  *priority = stream->priority;
  return musaSuccess;
}

musaError_t musaStreamGetFlags(musaStream_t stream, unsigned int* flags) {
  MUSART_TRY(musart::resolve(&stream));
  if (flags == nullptr) return fail(musaErrorInvalidValue, "musaStreamGetFlags: flags is NULL");
  *flags = stream->kind == MusaStream::Kind::kNonBlocking ? musaStreamNonBlocking : musaStreamDefault;
  return musaSuccess;
}

musaError_t musaStreamSynchronize(musaStream_t stream) {
  MUSART_TRY(musart::resolve(&stream));
  MUSART_TRY(musart::refuse_captured(*stream, "musaStreamSynchronize"));
  if (__builtin_expect(stream->kind == MusaStream::Kind::kShadow, 0)) return musaSuccess;
  const int64_t before = musart::host_now();
  musart::wait_host(musart::ready_at(*stream), stream->card->figures.sync_ns);
  if (__builtin_expect(musart::watched() != 0, 0)) {
    return musart::tell(
        {.kind = musart::ActivityKind::kStreamSync,
         .name = "musaStreamSynchronize",
         .device = stream->card->index,
         .stream = stream,
         .span = {before, musart::host_now()}});
  }
  return musaSuccess;
}

musaError_t musaDeviceSynchronize(void) {
  MUSART_TRY(musart::ready());
  musart::Card& card = musart::current_card();
  MUSART_TRY(musart::refuse_captured_card(card, "musaDeviceSynchronize"));
  const int64_t before = musart::host_now();
  musart::wait_host(musart::card_tail(card), card.figures.sync_ns);
  if (__builtin_expect(musart::watched() != 0, 0)) {
    return musart::tell(
        {.kind = musart::ActivityKind::kDeviceSync,
         .name = "musaDeviceSynchronize",
         .device = card.index,
         .span = {before, musart::host_now()}});
  }
  return musaSuccess;
}

musaError_t musaStreamQuery(musaStream_t stream) {
  MUSART_TRY(musart::resolve(&stream));
  MUSART_TRY(musart::refuse_captured(*stream, "musaStreamQuery"));
  const int64_t now = musart::host_now();
  if (now >= musart::ready_at(*stream)) {
    if (__builtin_expect(musart::watched() != 0, 0)) {
      return musart::tell(
          {.kind = musart::ActivityKind::kStreamQuery,
           .name = "musaStreamQuery",
           .device = stream->card->index,
           .stream = stream,
           .span = {now, now}});
    }
    return musaSuccess;
  }
  musart::advance_host(stream->card->figures.poll_ns);
  return musaErrorNotReady;
}

musaError_t musaSimLaunch(musaStream_t stream, const musaSimCost* cost, musaSimSpan* span) {
  MUSART_TRY(musart::resolve(&stream));
  if (__builtin_expect(cost == nullptr || !(cost->flops >= 0) || !(cost->bytes >= 0), 0) ||
      static_cast<unsigned>(cost->dtype) >= musaSimDtypeCount) {
    return fail(musaErrorInvalidValue, "musaSimLaunch: the cost is NULL, negative or of an unknown dtype");
  }
  if (__builtin_expect(stream->capture.load(std::memory_order_relaxed) != nullptr, 0)) {
    MUSART_TRY(musart::refuse_captured(*stream, "musaSimLaunch"));
  }
  const musaSimSpan ran = musart::enqueue(*stream, musart::kernel_time(stream->card->figures, *cost));
  if (span != nullptr) *span = ran;
  return musaSuccess;
}

musaError_t musaSimLaunchCopy(
    musaStream_t stream, int to_device, int from_device, size_t bytes, int pinned, musaSimSpan* span) {
  MUSART_TRY(musart::resolve(&stream));
  MUSART_TRY(musart::refuse_captured(*stream, "musaSimLaunchCopy"));
  const musaSimSpan ran = musart::enqueue_copy(*stream, to_device, from_device, bytes, pinned != 0);
  if (span != nullptr) *span = ran;
  return musaSuccess;
}

musaError_t musaSimStreamWaitStream(musaStream_t stream, musaStream_t other) {
  MUSART_TRY(musart::resolve(&stream));
  MUSART_TRY(musart::resolve(&other));
  const int64_t time = std::max(musart::host_now(), musart::ready_at(*other));
  musart::raise(stream->tail, time);
  if (stream->kind == MusaStream::Kind::kBlocking) musart::raise(stream->card->blocking_tail, time);
  if (musart::watches_races()) musart::races::order(stream, other);
  return musaSuccess;
}

int64_t musaSimStreamTail(musaStream_t stream) {
  return musart::resolve(&stream) == musaSuccess ? musart::ready_at(*stream) : 0;
}

musaError_t musaSimDefaultStream(int device, musaStream_t* stream) {
  musart::Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  *stream = card->default_stream;
  return musaSuccess;
}

int musaSimStreamDevice(musaStream_t stream) {
  return musart::resolve(&stream) == musaSuccess ? stream->card->index : -1;
}

int musaSimStreamIsAlive(const void* handle) {
  const std::lock_guard<std::mutex> lock(musart::graveyard_mutex);
  return musart::all_streams.contains(handle) && static_cast<const MusaStream*>(handle)->alive.load() ? 1 : 0;
}

int64_t musaSimStreamId(musaStream_t stream) { return musart::resolve(&stream) == musaSuccess ? stream->id : -1; }

}  // extern "C"
