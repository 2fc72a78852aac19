// The number of intra-op threads on autograd's device threads.
//
// On cpu backward runs in the thread that called it and so obeys that thread's torch.set_num_threads. A device has
// threads of its own, which read the setting once, when they start.
#pragma once

namespace musa {

namespace detail {
enum class ThreadKind : unsigned char { kUnknown, kOther, kAutograd };
extern constinit thread_local ThreadKind thread_kind __attribute__((tls_model("initial-exec"), visibility("hidden")));
void sync_autograd_thread();
}  // namespace detail

/// Brings an autograd device thread up to the last torch.set_num_threads of the process, once per backward; does
/// nothing on any other thread. To be called before a kernel runs: one thread-local read in the calling thread.
inline void sync_thread_count() {
  if (detail::thread_kind != detail::ThreadKind::kOther) {
    detail::sync_autograd_thread();
  }
}

}  // namespace musa
