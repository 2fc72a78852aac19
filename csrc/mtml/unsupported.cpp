// What the real library has and a simulated card has not: video engines, displays, fans, virtual cards, parts of cards,
// records of worn memory, a reset. Clients expect MTML_ERROR_NOT_SUPPORTED here, whatever the arguments.
#include "mtml/mtml.h"

#define NOT_SUPPORTED(name) \
  MTML_API mtmlReturn name() { return MTML_ERROR_NOT_SUPPORTED; }

NOT_SUPPORTED(mtmlDeviceInitVpu)
NOT_SUPPORTED(mtmlDeviceFreeVpu)
NOT_SUPPORTED(mtmlVpuGetClock)
NOT_SUPPORTED(mtmlVpuGetMaxClock)
NOT_SUPPORTED(mtmlVpuGetUtilization)
NOT_SUPPORTED(mtmlVpuGetCodecCapacity)
NOT_SUPPORTED(mtmlDeviceCountFan)
NOT_SUPPORTED(mtmlDeviceGetFanSpeed)
NOT_SUPPORTED(mtmlDeviceGetFanRpm)
NOT_SUPPORTED(mtmlDeviceGetPcieSlotInfo)
NOT_SUPPORTED(mtmlDeviceCountDisplayInterface)
NOT_SUPPORTED(mtmlDeviceGetDisplayInterfaceSpec)
NOT_SUPPORTED(mtmlDeviceCountGpuCores)
NOT_SUPPORTED(mtmlDeviceCountSupportedVirtTypes)
NOT_SUPPORTED(mtmlDeviceCountAvailVirtTypes)
NOT_SUPPORTED(mtmlDeviceCountActiveVirtDevices)
NOT_SUPPORTED(mtmlDeviceGetMpcMode)
NOT_SUPPORTED(mtmlDeviceSetMpcMode)
NOT_SUPPORTED(mtmlDeviceCountSupportedMpcProfiles)
NOT_SUPPORTED(mtmlDeviceCountMpcInstances)
NOT_SUPPORTED(mtmlMemoryGetRetiredPagesCount)
NOT_SUPPORTED(mtmlMemoryGetRetiredPages)
NOT_SUPPORTED(mtmlMemoryGetRetiredPagesPendingStatus)
NOT_SUPPORTED(mtmlMemoryGetEccErrorCounter)
NOT_SUPPORTED(mtmlMemoryClearEccErrorCounts)
NOT_SUPPORTED(mtmlDeviceReset)
