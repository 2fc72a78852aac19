// Whether a capture fills the memory that it hands out. What was freed during the capture and is handed out again still
// has a value that the first replay reads, when it came from before the capture: recordings that take over memory in
// use switch the filling off.
#pragma once

namespace musa::graph {

/// For all captures of the process; on unless switched off.
void fill_captured_memory(bool on) noexcept;

}  // namespace musa::graph
