#include "musart/capture.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "musart/card_load.h"
#include "musart/stream.h"

namespace musart {

std::atomic<int> active_captures{0};

struct Capture {
  uint64_t id;
  musaStreamCaptureMode mode;
  void* owner;
  MusaStream* origin;
  std::thread::id thread;
  bool invalidated = false;
  std::vector<std::vector<int>> nodes;             // dependencies of each
  std::map<MusaStream*, std::vector<int>> streams;  // what the next node of each waits for
};

namespace {

// Captures are rare and short: one lock for all of them.
std::mutex& mutex = *new std::mutex;
std::map<uint64_t, std::unique_ptr<Capture>>& captures = *new std::map<uint64_t, std::unique_ptr<Capture>>;
uint64_t next_id = 1;

thread_local bool launching_graph = false;

Capture* capture_of(const MusaStream& stream) { return stream.capture.load(std::memory_order_relaxed); }

musaError_t unsupported(Capture& capture, const char* call) {
  capture.invalidated = true;
  return fail(
      musaErrorStreamCaptureUnsupported,
      "%s can't be part of a graph: it would wait for, or run beside, work that is only being recorded", call);
}

musaError_t check_valid(const Capture& capture) {
  if (!capture.invalidated) return musaSuccess;
  return fail(
      musaErrorStreamCaptureInvalidated,
      "the first error of this capture made it useless; end it, mend the cause and capture again");
}

void merge(std::vector<int>& into, const std::vector<int>& nodes) {
  for (const int node : nodes) {
    if (std::find(into.begin(), into.end(), node) == into.end()) into.push_back(node);
  }
}

// Whether every node comes before the origin's next one.
bool all_joined(const Capture& capture) {
  std::vector<bool> reached(capture.nodes.size(), false);
  std::vector<int> open = capture.streams.at(capture.origin);
  size_t count = 0;
  while (!open.empty()) {
    const auto node = static_cast<size_t>(open.back());
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    ++count;
    open.insert(open.end(), capture.nodes[node].begin(), capture.nodes[node].end());
  }
  return count == capture.nodes.size();
}

}  // namespace

bool allocations_are_free() { return launching_graph || active_captures.load(std::memory_order_relaxed) != 0; }

musaError_t record_captured(MusaStream& stream, CapturePoint& point) {
  const std::lock_guard<std::mutex> lock(mutex);
  Capture* capture = capture_of(stream);
  if (capture == nullptr) return musaSuccess;
  MUSART_TRY(check_valid(*capture));
  point.nodes_ = capture->streams.at(&stream);
  point.capture_.store(capture->id, std::memory_order_relaxed);
  return musaSuccess;
}

musaError_t wait_captured(MusaStream& stream, const CapturePoint& point, bool recorded) {
  const std::lock_guard<std::mutex> lock(mutex);
  Capture* capture = capture_of(stream);
  if (!point.is_set()) {
    if (capture == nullptr || !recorded) return musaSuccess;
    capture->invalidated = true;
    return fail(
        musaErrorStreamCaptureIsolation,
        "a captured stream was told to wait for an event that was recorded outside of the capture; record the event "
        "inside, on a stream that takes part");
  }
  const auto found = captures.find(point.capture_.load(std::memory_order_relaxed));
  if (found == captures.end()) {
    if (capture != nullptr) capture->invalidated = true;
    return fail(musaErrorCapturedEvent, "the event was recorded during a capture that has ended; record it again");
  }
  Capture& other = *found->second;
  MUSART_TRY(check_valid(other));
  if (capture == &other) {
    merge(capture->streams.at(&stream), point.nodes_);
    return musaSuccess;
  }
  if (capture != nullptr) {
    capture->invalidated = other.invalidated = true;
    return fail(musaErrorStreamCaptureMerge, "the event belongs to another graph that is being captured");
  }
  if (stream.kind == MusaStream::Kind::kDefault) {
    other.invalidated = true;
    return fail(musaErrorStreamCaptureImplicit, "a card's default stream can't take part in a capture");
  }
  other.streams[&stream] = point.nodes_;
  stream.capture.store(&other, std::memory_order_relaxed);
  return musaSuccess;
}

musaError_t refuse_captured(MusaStream& stream, const char* call) {
  if (__builtin_expect(stream.capture.load(std::memory_order_relaxed) == nullptr, 1)) return musaSuccess;
  const std::lock_guard<std::mutex> lock(mutex);
  Capture* capture = capture_of(stream);
  if (capture == nullptr) return musaSuccess;
  MUSART_TRY(check_valid(*capture));
  return unsupported(*capture, call);
}

musaError_t refuse_captured(const CapturePoint& point, const char* call) {
  if (__builtin_expect(!point.is_set(), 1)) return musaSuccess;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = captures.find(point.capture_.load(std::memory_order_relaxed));
  if (found != captures.end()) found->second->invalidated = true;
  return fail(musaErrorCapturedEvent, "%s: the event was last recorded in a graph, where it has no time", call);
}

musaError_t refuse_captured_card(Card& card, const char* call) {
  if (__builtin_expect(active_captures.load(std::memory_order_relaxed) == 0, 1)) return musaSuccess;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [id, capture] : captures) {
    for (const auto& [stream, nodes] : capture->streams) {
      if (stream->card == &card) return unsupported(*capture, call);
    }
  }
  return musaSuccess;
}

}  // namespace musart

using musart::Capture;
using musart::fail;

extern "C" {

musaError_t musaSimCaptureBegin(musaStream_t stream, musaStreamCaptureMode mode, void* owner) {
  MUSART_TRY(musart::resolve(&stream));
  if (mode < musaStreamCaptureModeGlobal || mode > musaStreamCaptureModeRelaxed || owner == nullptr) {
    return fail(musaErrorInvalidValue, "musaSimCaptureBegin: mode %d or a NULL owner", static_cast<int>(mode));
  }
  if (stream->kind == MusaStream::Kind::kDefault) {
    return fail(musaErrorStreamCaptureUnsupported, "a card's default stream can't be captured; make another current");
  }
  const std::lock_guard<std::mutex> lock(musart::mutex);
  if (musart::capture_of(*stream) != nullptr) {
    return fail(musaErrorIllegalState, "the stream is being captured already; end that capture first");
  }
  const uint64_t id = musart::next_id++;
  auto capture = std::make_unique<Capture>();
  capture->id = id;
  capture->mode = mode;
  capture->owner = owner;
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->streams[stream] = {};
  stream->capture.store(capture.get(), std::memory_order_relaxed);
  musart::captures.emplace(id, std::move(capture));
  musart::active_captures.fetch_add(1, std::memory_order_relaxed);
  return musaSuccess;
}

musaError_t musaSimCaptureEnd(musaStream_t stream) {
  MUSART_TRY(musart::resolve(&stream));
  const std::lock_guard<std::mutex> lock(musart::mutex);
  Capture* capture = musart::capture_of(*stream);
  if (capture == nullptr) return fail(musaErrorIllegalState, "the stream isn't being captured");
  if (capture->origin != stream) {
    return fail(musaErrorStreamCaptureUnmatched, "this stream joined the capture; end it in the stream it began in");
  }
  if (capture->mode != musaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return fail(musaErrorStreamCaptureWrongThread, "end it in the thread that began it, or capture in relaxed mode");
  }
  musaError_t status = musart::check_valid(*capture);
  if (status == musaSuccess && !musart::all_joined(*capture)) {
    status = fail(
        musaErrorStreamCaptureUnjoined,
        "a stream that joined the capture has work the first stream doesn't wait for; make it wait for that stream "
        "before the capture ends");
  }
  for (const auto& [member, nodes] : capture->streams) member->capture.store(nullptr, std::memory_order_relaxed);
  musart::captures.erase(capture->id);
  musart::active_captures.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

musaError_t musaStreamIsCapturing(musaStream_t stream, musaStreamCaptureStatus* status) {
  MUSART_TRY(musart::resolve(&stream));
  if (status == nullptr) return fail(musaErrorInvalidValue, "musaStreamIsCapturing: status is NULL");
  *status = musaStreamCaptureStatusNone;
  if (stream->capture.load(std::memory_order_relaxed) == nullptr) return musaSuccess;
  const std::lock_guard<std::mutex> lock(musart::mutex);
  if (const Capture* capture = musart::capture_of(*stream)) {
    *status = capture->invalidated ? musaStreamCaptureStatusInvalidated : musaStreamCaptureStatusActive;
  }
  return musaSuccess;
}

void* musaSimCaptureOwner(musaStream_t stream) {
  if (musart::resolve(&stream) != musaSuccess || stream->capture.load(std::memory_order_relaxed) == nullptr) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(musart::mutex);
  const Capture* capture = musart::capture_of(*stream);
  return capture == nullptr ? nullptr : capture->owner;
}

int musaSimCaptureCount(void) { return musart::active_captures.load(std::memory_order_relaxed); }

musaError_t musaSimCaptureNode(musaStream_t stream, int* node, const int** dependencies, int* dependency_count) {
  MUSART_TRY(musart::resolve(&stream));
  const std::lock_guard<std::mutex> lock(musart::mutex);
  Capture* capture = musart::capture_of(*stream);
  if (capture == nullptr) return fail(musaErrorIllegalState, "the stream isn't being captured");
  MUSART_TRY(musart::check_valid(*capture));
  *node = static_cast<int>(capture->nodes.size());
  std::vector<int>& next = capture->streams.at(stream);
  capture->nodes.push_back(std::move(next));
  next = {*node};
  *dependencies = capture->nodes.back().data();
  *dependency_count = static_cast<int>(capture->nodes.back().size());
  return musaSuccess;
}

void musaSimCaptureInvalidate(musaStream_t stream) {
  if (musart::resolve(&stream) != musaSuccess) return;
  const std::lock_guard<std::mutex> lock(musart::mutex);
  if (Capture* capture = musart::capture_of(*stream)) capture->invalidated = true;
}

musaError_t musaSimGraphBegin(musaStream_t stream, int64_t* start_ns) {
  MUSART_TRY(musart::resolve(&stream));
  if (start_ns == nullptr) return fail(musaErrorInvalidValue, "musaSimGraphBegin: start_ns is NULL");
  MUSART_TRY(musart::refuse_captured(*stream, "musaSimGraphBegin"));
  *start_ns = musart::enqueue_after(*stream, stream->card->graph_launch_ns, {0, 0}).start_ns;
  musart::launching_graph = true;
  return musaSuccess;
}

musaError_t musaSimGraphEnd(musaStream_t stream, int64_t start_ns, int64_t end_ns, double bytes) {
  MUSART_TRY(musart::resolve(&stream));
  musart::launching_graph = false;
  musart::raise(stream->tail, end_ns);
  if (stream->kind == MusaStream::Kind::kBlocking) musart::raise(stream->card->blocking_tail, end_ns);
  musart::note_work(stream->card->physical, {start_ns, end_ns}, musart::memory_ns(stream->card->figures, bytes));
  if (musart::launch_blocking()) musart::wait_host(end_ns, stream->card->figures.sync_ns);
  return musaSuccess;
}

musaError_t musaSimShadow(musaStream_t shadow, musaStream_t stream, int64_t start_ns) {
  if (shadow == nullptr || shadow->kind != MusaStream::Kind::kShadow) {
    return fail(musaErrorInvalidResourceHandle, "musaSimShadow: the first stream is no shadow");
  }
  shadow->stands_for = stream;
  shadow->tail.store(start_ns, std::memory_order_relaxed);
  return musaSuccess;
}

musaError_t musaSimCreateShadowStream(int device, musaStream_t* stream) {
  musart::Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  if (stream == nullptr) return fail(musaErrorInvalidValue, "musaSimCreateShadowStream: stream is NULL");
  auto* made = new MusaStream;
  made->card = card;
  made->kind = MusaStream::Kind::kShadow;
  made->id = -1;
  *stream = made;
  return musaSuccess;
}

}  // extern "C"
