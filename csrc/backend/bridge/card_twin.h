// Operators that generated code must not run on the CPU view of a tensor but on the card: random ones (their numbers
// come from the card's generator), those without a CPU kernel, and those of other packages, which may have a kernel of
// their own for musa.
#pragma once

#include <string>

namespace musa {

/// Name under which the twin of an operator is found, "musa_card::aten_multinomial" with the operator's own overload.
/// The twin has the operator's schema and tags. It takes and returns CPU tensors, those in card memory stand for musa
/// tensors, and runs the operator on the musa tensors. Defined at the first call for (`name`, `overload`).
std::string card_twin(const std::string& name, const std::string& overload);

}  // namespace musa
