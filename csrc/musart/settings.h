// The environment variables of the project. The table is in settings.cpp, nothing else reads them.
#pragma once

#include <vector>

#include "musart/musart_sim.h"

namespace musart {

constexpr int kMaxCards = 512;

// The value in force; never NULL for a declared name.
const char* setting(const char* name);
// Every variable by itself: does it hold an accepted value?
musaError_t check_setting_values();
// From now on later changes of the environment are ignored.
void freeze_settings();

// Which of the `cards` physical cards are visible, in order. CUDA's rule: an index out of range ends the list (with one
// warning), a duplicate or something that is no number is an error.
musaError_t visible_cards(int cards, std::vector<int>* physical);

}  // namespace musart
