// The course of a whole program on the cards, in little memory: what `musa-sim run --report` draws.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "musart/watch.h"

namespace musa {

/// One piece of work on a stream, or one wait of the host. torch_musa_sim/cli/_trace.py knows the layout.
struct TraceEvent {
  int64_t start_ns;  // virtual
  int64_t end_ns;
  double bytes;
  int64_t allocated;  // bytes of the card that tensors hold, just after it
  int64_t stream;     // the runtime's id; -1: all streams of the card
  int32_t name;       // index into the names
  int16_t device;
  uint8_t kind;  // musart::ActivityKind
  uint8_t unused;
};
static_assert(sizeof(TraceEvent) == 48);

class RunTrace final : public musart::Watcher {
 public:
  /// There is one, never destroyed: a thread may be in the middle of telling it something.
  static RunTrace& instance();

  void start();
  void stop();

  struct Recording {
    std::vector<std::string> names;
    std::vector<TraceEvent> events;
    int64_t dropped = 0;  // beyond kMostEvents
  };
  Recording take();

  void saw(const musart::Activity& activity) noexcept override;

 private:
  static constexpr size_t kMostEvents = 4'000'000;  // 192 MB

  std::mutex mutex_;
  bool recording_ = false;
  Recording now_;
  std::unordered_map<const char*, int32_t> names_;
};

}  // namespace musa
