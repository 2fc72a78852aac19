// Whether a row's result may depend on the number of rows.
#pragma once

namespace musa {

/// For the whole process, from the next kernel on. While on, only ways that sum a row in one order are chosen.
void set_batch_invariant(bool on);
bool is_batch_invariant();

}  // namespace musa
