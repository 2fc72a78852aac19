// The faults that are planned, and the cards that died of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "musart/musart_faults.h"
#include "musart/watch.h"

namespace musart::faults {

constexpr const char* kSetting = "TORCH_MUSA_SIM_FAULTS";

// "launch:3, alloc:10@1, lose:2@after=5ms": the value of TORCH_MUSA_SIM_FAULTS. False with a reason for what isn't one.
bool parse(std::string_view text, std::vector<musaSimFaultPlan>* plans, std::string* reason);
// What the environment asks for. An error when it names a card that isn't among `cards`.
musaError_t read_setting(int cards, std::vector<musaSimFaultPlan>* asked);
void plan_all(const std::vector<musaSimFaultPlan>& asked);

inline bool possible() { return __builtin_expect((watched() & kWatchFaults) != 0, 0); }

// Only when possible(). Fails when the card is dead, or dies now.
musaError_t before_call(int device, const char* name);
// As before_call for musaMalloc of `bytes`, which may itself be the planned fault.
musaError_t before_segment(int device, size_t bytes);

}  // namespace musart::faults
