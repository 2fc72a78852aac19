// PYTORCH_MUSA_ALLOC_CONF, on top of torch's own PYTORCH_ALLOC_CONF. What torch's configuration knows is kept there
// (c10::CachingAllocator::AcceleratorAllocatorConfig); here is the rest.
#pragma once

#include <optional>
#include <string>

namespace musa::allocator {

/// Checks and applies the variables (the first call that succeeds does it). Throws ValueError for a key or a value that
/// isn't accepted, with the accepted keys.
void apply_config();

/// The same for a text given at run time; settings that it doesn't name stay.
void apply_settings(const std::string& text);

/// per_process_memory_fraction; what cards begin with.
std::optional<double> configured_fraction();
/// throw_on_musamalloc_oom: beyond the memory fraction a request fails at once, without emptying the cache first.
bool refuses_beyond_fraction();

}  // namespace musa::allocator
