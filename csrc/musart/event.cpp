// Events: a point of virtual time on a stream.
#include <deque>

#include "musart/capture.h"
#include "musart/races.h"
#include "musart/stream.h"

struct MusaEvent {
  static constexpr int64_t kNotRecorded = -1;

  std::atomic<int64_t> time{kNotRecorded};
  std::atomic<musart::Card*> card{nullptr};  // of the stream it was recorded on last
  std::atomic<bool> alive{true};
  unsigned int flags = 0;
  musart::CapturePoint captured;  // where in a graph it was recorded, instead of a time
};

namespace musart {
namespace {

constexpr size_t kGraveyard = 4096;
std::mutex& graveyard_mutex = *new std::mutex;
std::deque<musaEvent_t>& graveyard = *new std::deque<musaEvent_t>;

musaEvent_t make_event() {
  const std::lock_guard<std::mutex> lock(graveyard_mutex);
  if (graveyard.size() < kGraveyard) return new MusaEvent;
  musaEvent_t event = graveyard.front();
  graveyard.pop_front();
  return event;
}

musaError_t check(musaEvent_t event) {
  MUSART_TRY(ready());
  if (event == nullptr) return fail(musaErrorInvalidResourceHandle, "the event is NULL");
  if (event->alive.load(std::memory_order_relaxed)) return musaSuccess;
  return fail(musaErrorInvalidResourceHandle, "the event was destroyed");
}

musaError_t check_timed(musaEvent_t event, const char* which) {
  MUSART_TRY(check(event));
  if (event->flags & musaEventDisableTiming) {
    return fail(musaErrorInvalidResourceHandle, "the %s event was created with timing disabled", which);
  }
  MUSART_TRY(refuse_captured(event->captured, "musaEventElapsedTime"));
  if (event->time.load() == MusaEvent::kNotRecorded) {
    return fail(musaErrorInvalidResourceHandle, "the %s event was never recorded", which);
  }
  return musaSuccess;
}

musaError_t tell_event(ActivityKind kind, const char* name, musaEvent_t event, musaStream_t stream, musaSimSpan span) {
  const Card* card = stream != nullptr ? stream->card : event->card.load();
  return tell(
      {.kind = kind,
       .name = name,
       .device = card != nullptr ? card->index : -1,
       .stream = stream,
       .event = event,
       .span = span});
}

}  // namespace
}  // namespace musart

using musart::ActivityKind;
using musart::fail;
using musart::tell_event;
using musart::watched;

extern "C" {

musaError_t musaEventCreateWithFlags(musaEvent_t* event, unsigned int flags) {
  MUSART_TRY(musart::ready());
  if (event == nullptr) return fail(musaErrorInvalidValue, "musaEventCreate: event is NULL");
  constexpr unsigned int kKnown = musaEventBlockingSync | musaEventDisableTiming | musaEventInterprocess;
  if ((flags & ~kKnown) != 0) {
    return fail(
        musaErrorInvalidValue,
        "musaEventCreate: flags %u; accepted: any of musaEventBlockingSync (1), musaEventDisableTiming (2), "
        "musaEventInterprocess (4)",
        flags);
  }
  if ((flags & musaEventInterprocess) != 0 && (flags & musaEventDisableTiming) == 0) {
    return fail(musaErrorInvalidValue, "musaEventCreate: an interprocess event needs musaEventDisableTiming");
  }
  musaEvent_t made = musart::make_event();
  made->flags = flags;
  made->time.store(MusaEvent::kNotRecorded);
  made->captured.forget();
  made->alive.store(true);
  *event = made;
  return musaSuccess;
}

musaError_t musaEventCreate(musaEvent_t* event) { return musaEventCreateWithFlags(event, musaEventDefault); }

musaError_t musaEventDestroy(musaEvent_t event) {
  MUSART_TRY(musart::check(event));
  if (!event->alive.exchange(false)) return fail(musaErrorInvalidResourceHandle, "the event was destroyed before");
  if (__builtin_expect(watched() != 0, 0)) {
    tell_event(ActivityKind::kEventDestroy, "musaEventDestroy", event, nullptr, {});
  }
  const std::lock_guard<std::mutex> lock(musart::graveyard_mutex);
  musart::graveyard.push_back(event);
  return musaSuccess;
}

musaError_t musaEventRecord(musaEvent_t event, musaStream_t stream) {
  MUSART_TRY(musart::check(event));
  MUSART_TRY(musart::resolve(&stream));
  if (__builtin_expect(stream->capture.load(std::memory_order_relaxed) != nullptr, 0)) {
    return musart::record_captured(*stream, event->captured);
  }
  event->captured.forget();
  // On an idle stream the event happens when the host gives it.
  event->card.store(stream->card);
  const int64_t time = std::max(musart::host_now(), musart::ready_at(*stream));
  event->time.store(time);
  if (__builtin_expect(watched() != 0, 0)) {
    tell_event(ActivityKind::kEventRecord, "musaEventRecord", event, stream, {time, time});
  }
  return musaSuccess;
}

musaError_t musaEventQuery(musaEvent_t event) {
  MUSART_TRY(musart::check(event));
  MUSART_TRY(musart::refuse_captured(event->captured, "musaEventQuery"));
  const int64_t time = event->time.load();
  const int64_t now = musart::host_now();
  if (time <= now) {
    if (__builtin_expect(watched() != 0, 0)) {
      return tell_event(ActivityKind::kEventQuery, "musaEventQuery", event, nullptr, {now, now});
    }
    return musaSuccess;
  }
  musart::advance_host(event->card.load()->figures.poll_ns);
  return musaErrorNotReady;
}

musaError_t musaEventSynchronize(musaEvent_t event) {
  MUSART_TRY(musart::check(event));
  MUSART_TRY(musart::refuse_captured(event->captured, "musaEventSynchronize"));
  const int64_t time = event->time.load();
  if (time == MusaEvent::kNotRecorded) return musaSuccess;
  const int64_t before = musart::host_now();
  musart::wait_host(time, event->card.load()->figures.sync_ns);
  if (__builtin_expect(watched() != 0, 0)) {
    return tell_event(ActivityKind::kEventSync, "musaEventSynchronize", event, nullptr, {before, musart::host_now()});
  }
  return musaSuccess;
}

musaError_t musaSimEventPassed(musaEvent_t event, int wait) {
  MUSART_TRY(musart::check(event));
  const int64_t time = event->time.load();
  if (wait != 0 && time != MusaEvent::kNotRecorded) {
    musart::wait_host(time, event->card.load()->figures.sync_ns);
  } else if (time > musart::host_now()) {
    musart::advance_host(event->card.load()->figures.poll_ns);
    return musaErrorNotReady;
  }
  if (musart::watches_races()) musart::races::passed(event);
  return musaSuccess;
}

musaError_t musaSimEventElapsedNs(int64_t* nanoseconds, musaEvent_t start, musaEvent_t end) {
  MUSART_TRY(musart::check_timed(start, "start"));
  MUSART_TRY(musart::check_timed(end, "end"));
  if (nanoseconds == nullptr) return fail(musaErrorInvalidValue, "musaEventElapsedTime: the result is NULL");
  const int64_t from = start->time.load();
  const int64_t to = end->time.load();
  if (std::max(from, to) > musart::host_now()) return musaErrorNotReady;
  *nanoseconds = to - from;
  return musaSuccess;
}

musaError_t musaEventElapsedTime(float* milliseconds, musaEvent_t start, musaEvent_t end) {
  int64_t nanoseconds = 0;
  MUSART_TRY(musaSimEventElapsedNs(&nanoseconds, start, end));
  if (milliseconds == nullptr) return fail(musaErrorInvalidValue, "musaEventElapsedTime: the result is NULL");
  *milliseconds = static_cast<float>(static_cast<double>(nanoseconds) / 1e6);
  return musaSuccess;
}

musaError_t musaStreamWaitEvent(musaStream_t stream, musaEvent_t event, unsigned int flags) {
  MUSART_TRY(musart::check(event));
  MUSART_TRY(musart::resolve(&stream));
  if (flags != 0) return fail(musaErrorInvalidValue, "musaStreamWaitEvent: flags must be 0, got %u", flags);
  const int64_t time = event->time.load();
  if (__builtin_expect(event->captured.is_set() || stream->capture.load(std::memory_order_relaxed) != nullptr, 0)) {
    return musart::wait_captured(*stream, event->captured, time != MusaEvent::kNotRecorded);
  }
  musart::raise(stream->tail, time);  // an event never recorded (-1) holds nothing up
  if (stream->kind == MusaStream::Kind::kBlocking) musart::raise(stream->card->blocking_tail, time);
  if (__builtin_expect(watched() != 0, 0)) {
    tell_event(ActivityKind::kStreamWaitEvent, "musaStreamWaitEvent", event, stream, {time, time});
  }
  return musaSuccess;
}

}  // extern "C"
