// torch.musa.set_sync_debug_mode: find where a program waits for the card without saying so.
#pragma once

namespace musa {

enum class SyncDebugMode : int { kDefault = 0, kWarn = 1, kError = 2 };

SyncDebugMode sync_debug_mode();
void set_sync_debug_mode(SyncDebugMode mode);

/// To be called where CUDA's counterpart of an operator would wait for a stream: warns or throws, as the mode says.
void note_synchronization();

}  // namespace musa
