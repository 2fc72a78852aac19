#include "backend/native/invariance.h"

#include "mudnn/selection.h"

namespace musa {

void set_batch_invariant(bool on) { mudnn::batch_invariant.store(on); }

bool is_batch_invariant() { return mudnn::batch_invariant.load(); }

}  // namespace musa
