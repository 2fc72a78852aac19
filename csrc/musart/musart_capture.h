// Stream capture and what graphs need of the clocks. The runtime keeps who is captured and what depends on what; what a
// node does is the business of whoever captures.
#pragma once

#include "musart/musart_sim.h"

// What only captures report; values of musaError_t.
#define musaErrorIllegalState ((musaError_t)401)
#define musaErrorStreamCaptureUnsupported ((musaError_t)900)
#define musaErrorStreamCaptureInvalidated ((musaError_t)901)
#define musaErrorStreamCaptureMerge ((musaError_t)902)
#define musaErrorStreamCaptureUnmatched ((musaError_t)903)
#define musaErrorStreamCaptureUnjoined ((musaError_t)904)
#define musaErrorStreamCaptureIsolation ((musaError_t)905)
#define musaErrorStreamCaptureImplicit ((musaError_t)906)
#define musaErrorCapturedEvent ((musaError_t)907)
#define musaErrorStreamCaptureWrongThread ((musaError_t)908)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum musaStreamCaptureMode {
  musaStreamCaptureModeGlobal = 0,
  musaStreamCaptureModeThreadLocal = 1,
  musaStreamCaptureModeRelaxed = 2,
} musaStreamCaptureMode;

typedef enum musaStreamCaptureStatus {
  musaStreamCaptureStatusNone = 0,
  musaStreamCaptureStatusActive = 1,
  musaStreamCaptureStatusInvalidated = 2,
} musaStreamCaptureStatus;

// Begins a capture on `stream`, which must be no default stream. `owner` is the caller's, not NULL. A stream that waits
// for an event of the capture joins it. While it lasts, no clock moves for its streams, and calls that would wait for
// them fail with musaErrorStreamCaptureUnsupported and invalidate it.
MUSART_API musaError_t musaSimCaptureBegin(musaStream_t stream, musaStreamCaptureMode mode, void* owner);
// Ends it, whatever the status says: Invalidated after an error, Unjoined when another stream's work wasn't joined.
MUSART_API musaError_t musaSimCaptureEnd(musaStream_t stream);
MUSART_API musaError_t musaStreamIsCapturing(musaStream_t stream, musaStreamCaptureStatus* status);
// The owner of the capture that `stream` takes part in; NULL when there is none.
MUSART_API void* musaSimCaptureOwner(musaStream_t stream);
// Number of captures under way in the process. Cheap.
MUSART_API int musaSimCaptureCount(void);
// One more node on a captured stream: its number, and the numbers of the nodes it waits for (valid until the end).
MUSART_API musaError_t
musaSimCaptureNode(musaStream_t stream, int* node, const int** dependencies, int* dependency_count);
MUSART_API void musaSimCaptureInvalidate(musaStream_t stream);

// A launch of a graph: the host pays graph_launch_ns instead of launch_ns for each node. `start_ns`: when its first
// nodes start. Until the end memory that the calling thread asks for costs no time. The end comes with musaSimGraphEnd,
// when all nodes have run; `bytes` were moved in the card's memory.
MUSART_API musaError_t musaSimGraphBegin(musaStream_t stream, int64_t* start_ns);
MUSART_API musaError_t musaSimGraphEnd(musaStream_t stream, int64_t start_ns, int64_t end_ns, double bytes);
// A stream of a card on which launches advance its own tail and nothing else: kernels of a graph are timed on it.
// Never destroyed; synchronising does nothing.
MUSART_API musaError_t musaSimCreateShadowStream(int device, musaStream_t* stream);
// From now on the shadow works for `stream` (NULL: for nobody), beginning at `start_ns`. Who watches sees that stream.
MUSART_API musaError_t musaSimShadow(musaStream_t shadow, musaStream_t stream, int64_t start_ns);

#ifdef __cplusplus
}
#endif
