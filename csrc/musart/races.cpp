#include "musart/races.h"

#include <string.h>

#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "musart/race_report.h"
#include "musart/settings.h"
#include "musart/stream.h"

namespace musart {
namespace {

constexpr uint64_t kFirst = 1;  // 0 is what nobody knows of a stream

Range range_of(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin + bytes};
}

class RaceChecker final : public Watcher {
 public:
  void saw(const Activity& activity) noexcept override { object(follow(activity)); }
  musaError_t follow(const Activity& activity) noexcept;

  musaError_t access(MusaStream& stream, const void* address, size_t bytes, bool write, const char* op);
  musaError_t host_read(const void* address, size_t bytes, const char* op);
  musaError_t defer(MusaStream& stream, const musaSimDeferredCopy& copy);
  musaError_t host_waited(MusaStream& stream);
  void order(MusaStream& stream, MusaStream& other);
  void passed(musaEvent_t event);

  void hand_out(Range range, musaStream_t owner);
  void take_back(Range range);
  void settle(Range range, musaEvent_t event);
  void forget_memory(Range range);
  void forget_host_memory(Range range);

  bool only_warns = false;

 private:
  struct State {
    VectorClock clock;
    int actor = -1;  // given with the first access
    uint64_t host_version = 0;
  };
  struct Retired {  // what destroyed streams have done
    VectorClock all;
    VectorClock blocking;
  };

  State& submit(MusaStream& stream);
  void release(State& state);
  void settle_time(MusaStream& stream, State& state);
  void host_joins(const VectorClock& clock);
  void host_joins_card(int device);
  const std::string* intern(const char* op) { return &*names_.emplace(op).first; }
  const Actor& actor_of(const Access& access) const { return actors_[static_cast<size_t>(access.actor)]; }
  static Actor describe(const MusaStream& stream) {
    return {const_cast<musaStream_t>(&stream), stream.id, stream.card->index};
  }
  template <class Covered>
  std::vector<DeferredCopy> take_deferred(const Covered& covered);
  std::vector<DeferredCopy> take_covered(const VectorClock& clock);
  musaError_t finish(const std::vector<DeferredCopy>& copies);
  musaError_t report(const std::string& text, const std::string& key);

  // Taken first, by all that may bring copies to their end: who returns from a wait finds the bytes there.
  std::mutex finishing_;
  std::mutex mutex_;
  VectorClock host_;
  uint64_t host_version_ = 1;
  std::unordered_map<musaStream_t, State> streams_;
  std::unordered_map<musaEvent_t, VectorClock> events_;
  std::unordered_map<int, Retired> retired_;
  std::vector<Actor> actors_;
  std::unordered_set<std::string> names_;
  AccessMap memory_;
  DeferredCopies deferred_;
  uint64_t next_serial_ = 1;
  uint32_t next_life_ = 1;
  std::set<std::string> warned_;
};

RaceChecker& checker() {
  static RaceChecker& instance = *new RaceChecker;  // memory is freed after static destructors ran
  return instance;
}

// The stream's state with all that orders work which is given to it now.
RaceChecker::State& RaceChecker::submit(MusaStream& stream) {
  State& state = streams_[&stream];
  if (state.host_version != host_version_) {
    state.clock.join(host_);
    state.host_version = host_version_;
  }
  // The legacy rule: a card's default stream and its blocking streams wait for each other.
  if (stream.kind == MusaStream::Kind::kBlocking) {
    const auto found = streams_.find(stream.card->default_stream);
    if (found != streams_.end()) {
      state.clock.join(found->second.clock);
      release(found->second);
    }
  } else if (stream.kind == MusaStream::Kind::kDefault) {
    state.clock.join(retired_[stream.card->index].blocking);
    for (auto& [other, theirs] : streams_) {
      if (other->kind == MusaStream::Kind::kBlocking && other->card == stream.card) {
        state.clock.join(theirs.clock);
        release(theirs);
      }
    }
  }
  return state;
}

// What the stream does after this is not covered by who has just learnt its clock.
void RaceChecker::release(State& state) {
  if (state.actor >= 0) state.clock.set(state.actor, state.clock.of(state.actor) + 1);
}

void RaceChecker::host_joins(const VectorClock& clock) {
  if (host_.join(clock)) ++host_version_;
}

void RaceChecker::host_joins_card(int device) {
  for (auto& [stream, state] : streams_) {
    if (stream->card->index != device) continue;
    host_joins(state.clock);
    release(state);
  }
  host_joins(retired_[device].all);
}

template <class Covered>
std::vector<DeferredCopy> RaceChecker::take_deferred(const Covered& covered) {
  if (deferred_.empty()) return {};
  std::vector<DeferredCopy> copies = deferred_.take(covered);
  for (DeferredCopy& copy : copies) {
    const bool overtaken = !copy.copy.to_host && memory_.written_by(copy.device()) != copy.serial;
    copy.how = overtaken ? musaSimFinishCompare : musaSimFinishCopy;
  }
  return copies;
}

std::vector<DeferredCopy> RaceChecker::take_covered(const VectorClock& clock) {
  return take_deferred([&](const DeferredCopy& copy) { return copy.time <= clock.of(copy.actor); });
}

musaError_t RaceChecker::finish(const std::vector<DeferredCopy>& copies) {
  musaError_t status = musaSuccess;
  for (const DeferredCopy& copy : copies) {
    if (copy.copy.finish(copy.copy.context, copy.how) == 0) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Actor& stream = actors_[static_cast<size_t>(copy.actor)];
    const musaError_t raced = report(report_host(copy, stream, "", true), "touched " + *copy.op + name_of(stream));
    if (status == musaSuccess) status = raced;
  }
  return status;
}

musaError_t RaceChecker::report(const std::string& text, const std::string& key) {
  if (!only_warns) return fail(musaErrorSimRace, "%s", text.c_str());
  if (warned_.insert(key).second) warn("race: %s", text.c_str());
  return musaSuccess;
}

musaError_t RaceChecker::follow(const Activity& activity) noexcept {
  const std::lock_guard<std::mutex> finishing(finishing_);
  std::vector<DeferredCopy> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    switch (activity.kind) {
      case ActivityKind::kKernel:
      case ActivityKind::kCopy:
      case ActivityKind::kFill:
        return musaSuccess;  // musaSimAccess told of it
      case ActivityKind::kStreamSync:
      case ActivityKind::kStreamQuery: {
        State& state = submit(*activity.stream);
        host_joins(state.clock);
        release(state);
        break;
      }
      case ActivityKind::kDeviceSync:
        host_joins_card(activity.device);
        break;
      case ActivityKind::kEventSync:
      case ActivityKind::kEventQuery:
        if (const auto found = events_.find(activity.event); found != events_.end()) host_joins(found->second);
        break;
      case ActivityKind::kEventRecord: {
        State& state = submit(*activity.stream);
        events_[activity.event] = state.clock;
        release(state);
        return musaSuccess;
      }
      case ActivityKind::kStreamWaitEvent:
        if (const auto found = events_.find(activity.event); found != events_.end()) {
          submit(*activity.stream).clock.join(found->second);
        }
        return musaSuccess;
      case ActivityKind::kEventDestroy:
        events_.erase(activity.event);
        return musaSuccess;
      case ActivityKind::kStreamDestroy: {
        const auto found = streams_.find(activity.stream);
        if (found == streams_.end()) return musaSuccess;
        Retired& retired = retired_[activity.device];
        retired.all.join(found->second.clock);
        if (activity.stream->kind == MusaStream::Kind::kBlocking) retired.blocking.join(found->second.clock);
        streams_.erase(found);
        return musaSuccess;
      }
    }
    done = take_covered(host_);
  }
  return finish(done);
}

musaError_t RaceChecker::access(MusaStream& stream, const void* address, size_t bytes, bool write, const char* op) {
  const Range range = range_of(address, bytes);
  const bool on_host = !is_device_pointer(address);
  std::unique_lock<std::mutex> finishing(finishing_, std::defer_lock);
  if (on_host) finishing.lock();
  std::vector<DeferredCopy> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    State& state = submit(stream);
    if (state.actor < 0) {
      state.actor = static_cast<int>(actors_.size());
      actors_.push_back(describe(stream));
      state.clock.set(state.actor, kFirst);
    }
    if (const auto conflict = memory_.find_conflict(range, write, state.clock)) {
      const Access& earlier = conflict->earlier;
      const Actor before = earlier.actor >= 0 ? actor_of(earlier) : Actor{};
      const Actor owner =
          conflict->owner != nullptr && conflict->owner->alive.load() ? describe(*conflict->owner) : Actor{};
      const uint64_t known = earlier.actor >= 0 ? state.clock.of(earlier.actor) : 0;
      const std::string key = (earlier.op != nullptr ? *earlier.op : "") + '|' + op + '|' + name_of(before) + '|' +
          name_of(describe(stream)) + (conflict->freed ? "|freed" : "");
      MUSART_TRY(report(report_conflict(*conflict, before, {op, write, describe(stream)}, owner, known), key));
    }
    Access mine;
    mine.actor = state.actor;
    mine.time = state.clock.of(state.actor);
    mine.serial = next_serial_++;
    mine.op = intern(op);
    memory_.record(range, write, mine, state.clock);
    // The card has a place in the buffer's order before the host has: what is ordered before must be there.
    if (on_host) done = take_deferred([&](const DeferredCopy& copy) { return overlap(copy.host(), range); });
  }
  return finish(done);
}

musaError_t RaceChecker::host_read(const void* address, size_t bytes, const char* op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Range range = range_of(address, bytes);
  const DeferredCopy* copy =
      deferred_.find([&](const DeferredCopy& each) { return each.copy.to_host && overlap(each.host(), range); });
  if (copy == nullptr) return musaSuccess;
  const Actor& stream = actors_[static_cast<size_t>(copy->actor)];
  return report(report_host(*copy, stream, op, false), std::string("host ") + op + *copy->op);
}

musaError_t RaceChecker::defer(MusaStream& stream, const musaSimDeferredCopy& copy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(&stream);
  if (found == streams_.end() || found->second.actor < 0) {
    return fail(musaErrorInvalidValue, "musaSimDeferCopy: report both sides of the copy with musaSimAccess first");
  }
  DeferredCopy deferred;
  deferred.copy = copy;
  deferred.op = intern(copy.op);
  deferred.actor = found->second.actor;
  deferred.time = found->second.clock.of(deferred.actor);
  if (!copy.to_host) deferred.serial = memory_.written_by(deferred.device());
  deferred_.add(deferred);
  return musaSuccess;
}

musaError_t RaceChecker::host_waited(MusaStream& stream) {
  return follow({.kind = ActivityKind::kStreamSync, .name = "", .device = stream.card->index, .stream = &stream});
}

void RaceChecker::order(MusaStream& stream, MusaStream& other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const VectorClock theirs = submit(other).clock;
  release(streams_[&other]);
  submit(stream).clock.join(theirs);
}

void RaceChecker::passed(musaEvent_t event) {
  const std::lock_guard<std::mutex> finishing(finishing_);
  std::vector<DeferredCopy> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = events_.find(event);
    if (found != events_.end()) done = take_covered(found->second);
  }
  // Nobody is there to be told of a race, and nobody looks at the buffer any more.
  for (const DeferredCopy& copy : done) copy.copy.finish(copy.copy.context, copy.how);
}

void RaceChecker::hand_out(Range range, musaStream_t owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.hand_out(range, next_life_++, owner);
}

void RaceChecker::take_back(Range range) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.take_back(range);
}

void RaceChecker::settle(Range range, musaEvent_t event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (event == nullptr) return memory_.settle(range, nullptr);
  if (const auto found = events_.find(event); found != events_.end()) memory_.settle(range, &found->second);
}

void RaceChecker::forget_memory(Range range) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.erase(range);
}

void RaceChecker::forget_host_memory(Range range) {
  const std::lock_guard<std::mutex> finishing(finishing_);
  std::vector<DeferredCopy> gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    memory_.erase(range);
    gone = deferred_.take([&](const DeferredCopy& copy) { return overlap(copy.host(), range); });
  }
  for (const DeferredCopy& copy : gone) copy.copy.finish(copy.copy.context, musaSimFinishDrop);
}

}  // namespace

void configure_races() {
  const char* strict = setting("TORCH_MUSA_SIM_STRICT");
  if (strcmp(strict, "0") == 0) return;
  checker().only_warns = strcmp(strict, "warn") == 0;
  watch(kWatchRaces, &checker());
}

namespace races {

void forget_memory(const void* address, size_t bytes) { checker().forget_memory(range_of(address, bytes)); }

void forget_host_memory(const void* address, size_t bytes) { checker().forget_host_memory(range_of(address, bytes)); }

musaError_t host_waited(musaStream_t stream) { return checker().host_waited(*stream); }

void order(musaStream_t stream, musaStream_t other) { checker().order(*stream, *other); }

void passed(musaEvent_t event) { checker().passed(event); }

}  // namespace races
}  // namespace musart

using musart::checker;
using musart::range_of;

extern "C" {

musaError_t musaSimAccess(musaStream_t stream, const void* address, size_t bytes, int write, const char* op) {
  MUSART_TRY(musart::resolve(&stream));
  if (op == nullptr) return musart::fail(musaErrorInvalidValue, "musaSimAccess: op is NULL");
  if (address == nullptr || bytes == 0 || !musart::watches_races()) return musaSuccess;
  stream = musart::real_stream(stream);
  if (stream == nullptr) return musaSuccess;
  return checker().access(*stream, address, bytes, write != 0, op);
}

musaError_t musaSimHostRead(const void* address, size_t bytes, const char* op) {
  if (address == nullptr || bytes == 0 || !musart::watches_races()) return musaSuccess;
  return checker().host_read(address, bytes, op);
}

void musaSimBlockTaken(const void* address, size_t bytes, musaStream_t stream) {
  if (musart::watches_races()) checker().hand_out(range_of(address, bytes), stream);
}

void musaSimBlockFreed(const void* address, size_t bytes) {
  if (musart::watches_races()) checker().take_back(range_of(address, bytes));
}

void musaSimBlockSettled(const void* address, size_t bytes, musaEvent_t event) {
  if (musart::watches_races()) checker().settle(range_of(address, bytes), event);
}

musaError_t musaSimDeferCopy(musaStream_t stream, const musaSimDeferredCopy* copy) {
  MUSART_TRY(musart::resolve(&stream));
  if (copy == nullptr || copy->finish == nullptr || copy->op == nullptr) {
    return musart::fail(musaErrorInvalidValue, "musaSimDeferCopy: the copy, its op or its finish is NULL");
  }
  return checker().defer(*stream, *copy);
}

}  // extern "C"
