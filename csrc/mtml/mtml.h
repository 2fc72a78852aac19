// The management library's C API under the real one's names: what the cards are and how they do.
//
// Cards are those of musart_observe.h: all of the host, whatever MUSA_VISIBLE_DEVICES says, with the memory and the
// work of all processes of the user and scope. Handles stay valid until the process ends. Sizes are bytes, clocks MHz,
// power mW, utilisation percent, temperatures degrees Celsius.
#pragma once

#include <stdint.h>

#define MTML_API extern "C" __attribute__((visibility("default")))

enum mtmlReturn : unsigned {
  MTML_SUCCESS = 0,
  MTML_ERROR_DRIVER_NOT_LOADED = 1,  // no mtmlLibraryInit before
  MTML_ERROR_DRIVER_FAILURE = 2,     // the environment holds a value that isn't accepted; stderr says which
  MTML_ERROR_INVALID_ARGUMENT = 3,
  MTML_ERROR_NOT_SUPPORTED = 4,
  MTML_ERROR_NO_PERMISSION = 5,
  MTML_ERROR_INSUFFICIENT_SIZE = 6,
  MTML_ERROR_NOT_FOUND = 7,
  MTML_ERROR_INSUFFICIENT_MEMORY = 8,
  MTML_ERROR_DRIVER_TOO_OLD = 9,
  MTML_ERROR_DRIVER_TOO_NEW = 10,
  MTML_ERROR_TIMEOUT = 11,
  MTML_ERROR_RESOURCE_IS_BUSY = 12,
  MTML_ERROR_UNKNOWN = 999,
};

struct mtmlLibrary;
struct mtmlSystem;
struct mtmlDevice;
struct mtmlGpu;
struct mtmlMemory;

enum : unsigned { MTML_BRAND_MTT = 0, MTML_MEM_TYPE_GDDR6 = 1 };
enum : unsigned { MTML_TOPOLOGY_INTERNAL = 0, MTML_TOPOLOGY_NODE = 4, MTML_TOPOLOGY_SYSTEM = 5 };
enum : unsigned { MTML_P2P_STATUS_OK = 0, MTML_P2P_CAPS_WRITE = 1 };
enum : unsigned { MTML_MTLINK_STATE_DOWN = 0, MTML_MTLINK_STATE_UP = 1 };
enum : unsigned { MTML_MTLINK_CAP_STATUS_NOT_SUPPORTED = 0, MTML_MTLINK_CAP_STATUS_OK = 1, MTML_MTLINK_CAP_COUNT = 2 };
enum : unsigned { MTML_GPU_ENGINE_COMPUTE = 3, MTML_GPU_ENGINE_MAX = 4 };

struct mtmlPciInfo {
  char sbdf[32];
  unsigned segment, bus, device;
  unsigned pciDeviceId;  // device id << 16 | vendor id
  unsigned pciSubsystemId;
  unsigned busWidth;
  float pciMaxSpeed, pciCurSpeed;  // GT/s
  unsigned pciMaxWidth, pciCurWidth;
  unsigned pciMaxGen, pciCurGen;
  int reserved[6];
};

struct mtmlDeviceProperty {
  unsigned virtCap : 1, virtRole : 3, mpcCap : 1, mpcType : 3, mtLinkCap : 1, reserved : 23;
  unsigned reserved2;
};

struct mtmlMtLinkSpec {
  unsigned version;
  unsigned bandWidth;  // GB/s of one port
  unsigned linkNum;
  unsigned reserved[4];
};

struct mtmlMtLinkLayout {
  unsigned localLinkId, remoteLinkId;
  unsigned reserved[4];
};

// ---- library and system
// ----------------------------------------------------------------------------------------------
MTML_API mtmlReturn mtmlLibraryInit(mtmlLibrary** library);
MTML_API mtmlReturn mtmlLibraryShutDown(mtmlLibrary* library);
MTML_API const char* mtmlErrorString(mtmlReturn result);
MTML_API mtmlReturn mtmlLibraryGetVersion(const mtmlLibrary* library, char* version, unsigned length);
MTML_API mtmlReturn mtmlLibraryCountDevice(const mtmlLibrary* library, unsigned* count);
MTML_API mtmlReturn mtmlLibraryInitDeviceByIndex(const mtmlLibrary* library, unsigned index, mtmlDevice** device);
MTML_API mtmlReturn mtmlLibraryInitDeviceByUuid(const mtmlLibrary* library, const char* uuid, mtmlDevice** device);
MTML_API mtmlReturn mtmlLibraryInitDeviceByPciSbdf(const mtmlLibrary* library, const char* sbdf, mtmlDevice** device);
MTML_API mtmlReturn mtmlLibraryFreeDevice(mtmlDevice* device);
MTML_API mtmlReturn mtmlLibraryInitSystem(const mtmlLibrary* library, mtmlSystem** system);
MTML_API mtmlReturn mtmlLibraryFreeSystem(mtmlSystem* system);
MTML_API mtmlReturn mtmlSystemGetDriverVersion(const mtmlSystem* system, char* version, unsigned length);

// ---- devices
// ---------------------------------------------------------------------------------------------------------
MTML_API mtmlReturn mtmlDeviceInitGpu(mtmlDevice* device, mtmlGpu** gpu);
MTML_API mtmlReturn mtmlDeviceFreeGpu(mtmlGpu* gpu);
MTML_API mtmlReturn mtmlDeviceInitMemory(mtmlDevice* device, mtmlMemory** memory);
MTML_API mtmlReturn mtmlDeviceFreeMemory(mtmlMemory* memory);
MTML_API mtmlReturn mtmlDeviceGetIndex(const mtmlDevice* device, unsigned* index);
MTML_API mtmlReturn mtmlDeviceGetName(const mtmlDevice* device, char* name, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetUUID(const mtmlDevice* device, char* uuid, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetSerialNumber(const mtmlDevice* device, unsigned length, char* serial);
MTML_API mtmlReturn mtmlDeviceGetBrand(const mtmlDevice* device, unsigned* brand);
MTML_API mtmlReturn mtmlDeviceGetPciInfo(const mtmlDevice* device, mtmlPciInfo* pci);
MTML_API mtmlReturn mtmlDeviceGetPowerUsage(const mtmlDevice* device, unsigned* power);
MTML_API mtmlReturn mtmlDeviceGetProperty(const mtmlDevice* device, mtmlDeviceProperty* property);
MTML_API mtmlReturn mtmlDeviceGetMtBiosVersion(const mtmlDevice* device, char* version, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetVbiosVersion(const mtmlDevice* device, char* version, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetGpuPath(const mtmlDevice* device, char* path, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetPrimaryPath(const mtmlDevice* device, char* path, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetRenderPath(const mtmlDevice* device, char* path, unsigned length);
MTML_API mtmlReturn mtmlDeviceGetCpuAffinityWithinNode(const mtmlDevice* device, unsigned size, unsigned long* cpu_set);
MTML_API mtmlReturn
mtmlDeviceGetMemoryAffinityWithinNode(const mtmlDevice* device, unsigned size, unsigned long* node_set);

// ---- GPU and memory
// --------------------------------------------------------------------------------------------------
MTML_API mtmlReturn mtmlGpuGetUtilization(const mtmlGpu* gpu, unsigned* percent);
MTML_API mtmlReturn mtmlGpuGetEngineUtilization(const mtmlGpu* gpu, unsigned engine, unsigned* percent);
MTML_API mtmlReturn mtmlGpuGetTemperature(const mtmlGpu* gpu, unsigned* celsius);
MTML_API mtmlReturn mtmlGpuGetClock(const mtmlGpu* gpu, unsigned* mhz);
MTML_API mtmlReturn mtmlGpuGetMaxClock(const mtmlGpu* gpu, unsigned* mhz);
MTML_API mtmlReturn mtmlMemoryGetTotal(const mtmlMemory* memory, uint64_t* bytes);
MTML_API mtmlReturn mtmlMemoryGetUsed(const mtmlMemory* memory, uint64_t* bytes);
MTML_API mtmlReturn mtmlMemoryGetUsedSystem(const mtmlMemory* memory, uint64_t* bytes);
MTML_API mtmlReturn mtmlMemoryGetUtilization(const mtmlMemory* memory, unsigned* percent);
MTML_API mtmlReturn mtmlMemoryGetClock(const mtmlMemory* memory, unsigned* mhz);
MTML_API mtmlReturn mtmlMemoryGetMaxClock(const mtmlMemory* memory, unsigned* mhz);
MTML_API mtmlReturn mtmlMemoryGetBusWidth(const mtmlMemory* memory, unsigned* bits);
MTML_API mtmlReturn mtmlMemoryGetBandwidth(const mtmlMemory* memory, unsigned* gb_per_second);
MTML_API mtmlReturn mtmlMemoryGetSpeed(const mtmlMemory* memory, unsigned* mega_transfers);
MTML_API mtmlReturn mtmlMemoryGetType(const mtmlMemory* memory, unsigned* type);
MTML_API mtmlReturn mtmlMemoryGetVendor(const mtmlMemory* memory, unsigned length, char* vendor);
MTML_API mtmlReturn mtmlMemoryGetEccMode(const mtmlMemory* memory, unsigned* current, unsigned* pending);

// ---- between cards
// ---------------------------------------------------------------------------------------------------
MTML_API mtmlReturn mtmlDeviceGetTopologyLevel(const mtmlDevice* one, const mtmlDevice* other, unsigned* level);
MTML_API mtmlReturn mtmlDeviceCountDeviceByTopologyLevel(const mtmlDevice* device, unsigned level, unsigned* count);
MTML_API mtmlReturn
mtmlDeviceGetDeviceByTopologyLevel(const mtmlDevice* device, unsigned level, unsigned count, mtmlDevice** devices);
MTML_API mtmlReturn
mtmlDeviceGetP2PStatus(const mtmlDevice* one, const mtmlDevice* other, unsigned capability, unsigned* status);
MTML_API mtmlReturn mtmlDeviceGetMtLinkSpec(const mtmlDevice* device, mtmlMtLinkSpec* spec);
MTML_API mtmlReturn mtmlDeviceGetMtLinkState(const mtmlDevice* device, unsigned link, unsigned* state);
MTML_API mtmlReturn mtmlDeviceGetMtLinkRemoteDevice(const mtmlDevice* device, unsigned link, mtmlDevice** remote);
MTML_API mtmlReturn
mtmlDeviceGetMtLinkCapStatus(const mtmlDevice* device, unsigned link, unsigned capability, unsigned* status);
MTML_API mtmlReturn mtmlDeviceCountMtLinkLayouts(const mtmlDevice* one, const mtmlDevice* other, unsigned* count);
MTML_API mtmlReturn
mtmlDeviceGetMtLinkLayouts(const mtmlDevice* one, const mtmlDevice* other, unsigned count, mtmlMtLinkLayout* layouts);
