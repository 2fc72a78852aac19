#include "musart/fault_plan.h"

#include <stdarg.h>
#include <stdio.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "musart/clock.h"
#include "musart/musart_capture.h"
#include "musart/runtime.h"
#include "musart/settings.h"
#include "musart/stream.h"
#include "musart/text.h"

namespace musart::faults {
namespace {

std::mutex& mutex = *new std::mutex;
std::vector<musaSimFaultPlan>& plans = *new std::vector<musaSimFaultPlan>;

struct Death {
  musaError_t error = musaSuccess;
  std::string cause;
};
std::array<Death, kMaxCards>& deaths = *new std::array<Death, kMaxCards>;

// Sees memory errors where work touches bad memory, and dead cards where the host waits for them.
class Observer final : public Watcher {
 public:
  void saw(const Activity& activity) noexcept override;
};
Observer& observer = *new Observer;

// Under the mutex: looks are needed while something is planned or a card is dead.
void update_watch() {
  const bool needed = !plans.empty() ||
      std::any_of(deaths.begin(), deaths.end(), [](const Death& death) { return death.error != musaSuccess; });
  if (needed) {
    watch(kWatchFaults, &observer);
  } else {
    unwatch(kWatchFaults);
  }
}

__attribute__((format(printf, 3, 4))) void die(int device, musaError_t error, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (deaths[device].error == musaSuccess) deaths[device] = {error, text};
}

musaError_t fail_dead(int device, const char* name) {
  return fail(
      deaths[device].error,
      "%s needs card musa:%d, which is dead for this process: %s. Other cards go on. A new process finds the card as "
      "it was, and so does this one after torch.musa.faults.reset(%d)",
      name, device, deaths[device].cause.c_str(), device);
}

bool is_due(const musaSimFaultPlan& plan, int device) {
  return (plan.device < 0 || plan.device == device) && host_now() >= plan.after_ns;
}

// What happens to a card by itself: it is lost, or its memory has gone bad and whatever runs next finds that.
void strike(int device, const char* name) {
  std::erase_if(plans, [&](const musaSimFaultPlan& plan) {
    const bool by_itself =
        plan.fault == musaSimFaultLostCard || (plan.fault == musaSimFaultMemory && plan.address == nullptr);
    if (!by_itself || !is_due(plan, device)) return false;
    if (plan.fault == musaSimFaultLostCard) {
      die(device, musaErrorDevicesUnavailable, "card musa:%d is lost, it has fallen off the bus (a planned fault)",
          device);
    } else {
      die(device, musaErrorECCUncorrectable, "%s met an uncorrectable memory error on card musa:%d (a planned fault)",
          name, device);
    }
    return true;
  });
}

// Counts one call of `kind`; true when it is the one that shall fail.
bool counts_out(musaSimFault kind, int device) {
  bool fails = false;
  std::erase_if(plans, [&](musaSimFaultPlan& plan) {
    if (plan.fault != kind || !is_due(plan, device) || --plan.count > 0) return false;
    fails = true;
    return true;
  });
  return fails;
}

musaError_t check(int device, const char* name) {
  strike(device, name);
  update_watch();
  return deaths[device].error == musaSuccess ? musaSuccess : fail_dead(device, name);
}

bool overlaps(const musaSimFaultPlan& plan, const MemoryAccess& access) {
  const auto start = reinterpret_cast<uintptr_t>(plan.address);
  const auto other = reinterpret_cast<uintptr_t>(access.address);
  return start < other + access.bytes && other < start + plan.bytes;
}

void Observer::saw(const Activity& activity) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  switch (activity.kind) {
    case ActivityKind::kStreamDestroy:
    case ActivityKind::kEventDestroy:
      return;
    case ActivityKind::kKernel:
    case ActivityKind::kCopy:
    case ActivityKind::kFill:
      std::erase_if(plans, [&](const musaSimFaultPlan& plan) {
        if (plan.fault != musaSimFaultMemory || plan.address == nullptr || host_now() < plan.after_ns) return false;
        for (const MemoryAccess& access : activity.accesses) {
          if (!overlaps(plan, access)) continue;
          die(plan.device, musaErrorECCUncorrectable,
              "%s touched %p on card musa:%d, where an uncorrectable memory error is (a planned fault)", activity.name,
              plan.address, plan.device);
          return true;
        }
        return false;
      });
      break;
    default:
      if (activity.device >= 0) strike(activity.device, activity.name);
  }
  update_watch();
  const int device = activity.device;
  if (device >= 0 && deaths[device].error != musaSuccess) object(fail_dead(device, activity.name));
}

std::optional<int64_t> parse_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    double ns;
  };
  constexpr Unit kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const auto number = parse_number(text.substr(0, unit_at));
  if (!number || *number > 1e6 || unit_at == std::string_view::npos) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (text.substr(unit_at) == unit.name) return static_cast<int64_t>(*number * unit.ns);
  }
  return std::nullopt;
}

// "3", "3@1", "2@after=5ms", "3@1@after=5ms"; the number is a card's where the fault is a card's.
bool parse_entry(std::string_view entry, musaSimFaultPlan* plan, std::string* reason) {
  struct Kind {
    const char* name;
    musaSimFault fault;
  };
  static constexpr Kind kKinds[] = {{"alloc", musaSimFaultAllocation}, {"segment", musaSimFaultSegment},
                                    {"launch", musaSimFaultLaunch},    {"copy", musaSimFaultCopy},
                                    {"lose", musaSimFaultLostCard},    {"ecc", musaSimFaultMemory}};
  const auto refuse = [&](const char* why) {
    *reason = "holds '" + std::string(entry) + "', " + why;
    return false;
  };
  const size_t colon = entry.find(':');
  if (colon == std::string_view::npos) return refuse("which has no ':' between fault and number");
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& known) {
    return trim(entry.substr(0, colon)) == known.name;
  });
  if (kind == std::end(kKinds)) return refuse("which is no fault");
  const bool of_a_card = kind->fault == musaSimFaultLostCard || kind->fault == musaSimFaultMemory;
  *plan = {kind->fault, -1, of_a_card ? 0 : 1, 0, nullptr, 0};
  bool first = true;
  for (const std::string_view part : split(entry.substr(colon + 1), '@')) {
    constexpr std::string_view kAfter = "after=";
    if (!first && trim(part).starts_with(kAfter)) {
      const auto ns = parse_duration(trim(part).substr(kAfter.size()));
      if (!ns) return refuse("where the time after after= isn't a number with ns, us, ms or s");
      plan->after_ns = *ns;
      continue;
    }
    const auto number = parse_int(trim(part));
    const bool is_card = of_a_card == first;
    if (!number || *number < (is_card ? 0 : 1) || (is_card && *number >= kMaxCards)) {
      return refuse(is_card ? "where a card's number is expected" : "where a count from 1 on is expected");
    }
    if (is_card) {
      if (plan->device >= 0) return refuse("which names two cards");
      plan->device = static_cast<int>(*number);
    } else if (first) {
      plan->count = *number;
    } else {
      return refuse("which has one number too many");
    }
    first = false;
  }
  return true;
}

}  // namespace

bool parse(std::string_view text, std::vector<musaSimFaultPlan>* result, std::string* reason) {
  result->clear();
  if (trim(text).empty()) return true;
  for (const std::string_view entry : split(text, ',')) {
    musaSimFaultPlan plan{};
    if (!parse_entry(trim(entry), &plan, reason)) return false;
    result->push_back(plan);
  }
  return true;
}

musaError_t read_setting(int cards, std::vector<musaSimFaultPlan>* asked) {
  std::string reason;
  if (!parse(setting(kSetting), asked, &reason)) return fail(musaErrorInvalidValue, "%s %s", kSetting, reason.c_str());
  for (const musaSimFaultPlan& plan : *asked) {
    if (plan.device < cards) continue;
    return fail(musaErrorInvalidValue, "%s names card %d: valid are 0 .. %d", kSetting, plan.device, cards - 1);
  }
  return musaSuccess;
}

void plan_all(const std::vector<musaSimFaultPlan>& asked) {
  const std::lock_guard<std::mutex> lock(mutex);
  plans.insert(plans.end(), asked.begin(), asked.end());
  update_watch();
}

musaError_t before_call(int device, const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return check(device, name);
}

musaError_t before_segment(int device, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  MUSART_TRY(check(device, "musaMalloc"));
  const bool fails = counts_out(musaSimFaultSegment, device);
  update_watch();
  if (!fails) return musaSuccess;
  return fail(
      musaErrorMemoryAllocation, "musaMalloc of %s on card musa:%d failed (a planned fault)",
      format_bytes(bytes).c_str(), device);
}

}  // namespace musart::faults

using musart::fail;

extern "C" {

musaError_t musaSimPlanFault(const musaSimFaultPlan* plan) {
  MUSART_TRY(musart::ready());
  if (plan == nullptr || plan->fault < 0 || plan->fault >= musaSimFaultCount) {
    return fail(musaErrorInvalidValue, "musaSimPlanFault: the plan is NULL or of an unknown fault");
  }
  const bool of_a_card = plan->fault == musaSimFaultLostCard || plan->fault == musaSimFaultMemory;
  if (plan->device >= musart::card_count || plan->device < (of_a_card ? 0 : -1)) {
    return fail(
        musaErrorInvalidDevice, "musaSimPlanFault: there is no card %d, valid are 0 .. %d", plan->device,
        musart::card_count - 1);
  }
  if (plan->count < (of_a_card ? 0 : 1) || plan->after_ns < 0) {
    return fail(
        musaErrorInvalidValue, "musaSimPlanFault: count %lld, after %lld ns; a count begins at 1, a time at 0",
        static_cast<long long>(plan->count), static_cast<long long>(plan->after_ns));
  }
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  musart::faults::plans.push_back(*plan);
  musart::faults::update_watch();
  return musaSuccess;
}

int musaSimPlannedFaults(musaSimFaultPlan* plans, int room) {
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  const auto& planned = musart::faults::plans;
  std::copy_n(planned.begin(), std::min<size_t>(planned.size(), room > 0 ? room : 0), plans);
  return static_cast<int>(planned.size());
}

void musaSimClearFaults(void) {
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  musart::faults::plans.clear();
  musart::faults::update_watch();
}

musaError_t musaSimCardHealth(int device) {
  musart::Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  return musart::faults::deaths[device].error;
}

musaError_t musaSimResetCard(int device) {
  musart::Card* card = nullptr;
  MUSART_TRY(musart::card_at(device, &card));
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  musart::faults::deaths[device] = {};
  musart::faults::update_watch();
  return musaSuccess;
}

musaError_t musaSimBeforeWork(musaStream_t stream, musaSimFault kind, const char* name) {
  if (!musart::faults::possible()) return musaSuccess;
  MUSART_TRY(musart::resolve(&stream));
  if (stream->kind == MusaStream::Kind::kShadow) {
    stream = stream->stands_for;
    if (stream == nullptr) return musaSuccess;  // work that only its time is asked of
  }
  const int device = stream->card->index;
  // What is captured doesn't run: it doesn't count, and only a dead card refuses it.
  if (musaSimCaptureCount() != 0 && musaSimCaptureOwner(stream) != nullptr) {
    return musart::faults::before_call(device, name);
  }
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  MUSART_TRY(musart::faults::check(device, name));
  if (musart::faults::counts_out(kind, device)) {
    musart::faults::die(
        device, musaErrorLaunchFailure, "%s failed on stream %lld of card musa:%d (a planned fault)", name,
        static_cast<long long>(stream->id), device);
  }
  return musart::faults::check(device, name);
}

musaError_t musaSimCheckCard(int device, const char* name) {
  if (!musart::faults::possible()) return musaSuccess;
  return musart::faults::before_call(device, name);
}

musaError_t musaSimBeforeAllocation(int device, size_t bytes) {
  if (!musart::faults::possible()) return musaSuccess;
  const std::lock_guard<std::mutex> lock(musart::faults::mutex);
  const bool fails = musart::faults::counts_out(musaSimFaultAllocation, device);
  musart::faults::update_watch();
  if (!fails) return musaSuccess;
  return fail(
      musaErrorMemoryAllocation, "the request for %s on card musa:%d failed (a planned fault)",
      musart::format_bytes(bytes).c_str(), device);
}

}  // extern "C"
