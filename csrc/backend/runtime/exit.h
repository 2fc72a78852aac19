// What has to happen before the interpreter goes away.
#pragma once

namespace musa {

/// Waits until autograd's device threads have let go of every backward pass that is over.
///
/// Such a thread drops its share of a pass after the caller of backward() was told of the end. Where that share is the
/// last, Python objects die with it, for which the thread needs the interpreter: one that is already going away ends
/// the thread by force, which aborts the process. To be called at exit, without the GIL; returns at once when no
/// backward pass has run.
void settle_autograd_threads();

}  // namespace musa
