// Looking at the cards of this host from outside: what they are, how busy they are, who uses them. No call here makes
// the process a user of a card or initialises the device, and all work in a forked child.
//
// Cards are counted physically: MUSA_VISIBLE_DEVICES hides none. What other processes of the same user and
// TORCH_MUSA_SIM_SCOPE hold and do comes from the file they share. What the cards are comes from this process's own
// settings when it uses the device, or when its environment sets TORCH_MUSA_SIM_CARDS, _CARD or _MEMORY; otherwise they
// are the cards of the first process that uses some.
#pragma once

#include "musart/musart.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct musaSimCardInfo {
  char name[64];  // "MTT S5000"
  char model[32];  // "S5000"
  char uuid[40];  // as torch.musa.get_device_properties() shows it
  char serial[32];
  char pci[32];  // "00000000:01:00.0"
  char ecc[32];  // "N/A" for none
  size_t memory;  // bytes
  int major;
  int minor;
  int multiprocessors;
  int clock_mhz;
  int memory_clock_mhz;
  int memory_bus_bits;
  double bandwidth;  // bytes per second of device memory, nominal
  double power_idle_w;
  double power_limit_w;
  double temperature_idle_c;
  double temperature_load_c;
  int links;  // MTLink ports; 0: none
  int links_per_peer;
  int link_version;
  double link_bandwidth;  // bytes per second of one port
  int pci_vendor_id;
  int pci_device_id;
  int pci_generation;
  int pci_lanes;
} musaSimCardInfo;

// Shares are 0 .. 1 of the virtual time of the last one to two virtual seconds of each process (of its whole life when
// it is younger), added up over the processes and cut at 1. Virtual time passes only while a program uses the device.
typedef struct musaSimCardState {
  size_t memory_used;  // bytes, all processes
  double busy;  // something ran on the card
  double memory_busy;  // its memory moved bytes at full bandwidth
  double power_w;  // power_idle_w + busy * (power_limit_w - power_idle_w)
  double temperature_c;  // temperature_idle_c + busy * (temperature_load_c - temperature_idle_c)
  int processes;
} musaSimCardState;

typedef struct musaSimProcess {
  int pid;
  size_t memory;  // bytes of this card
  double busy;  // 0 .. 1, as above
  char command[256];  // its command line, cut at the end
} musaSimProcess;

// Version of the simulated driver, as its tools print it.
MUSART_API const char* musaSimDriverName(void);
MUSART_API musaError_t musaSimCountCards(int* count);
MUSART_API musaError_t musaSimDescribeCard(int card, musaSimCardInfo* info);
MUSART_API musaError_t musaSimObserveCard(int card, musaSimCardState* state);
// Processes that hold memory of the card or have worked on it, by pid. `count`: how many there are; at most `capacity`
// are written.
MUSART_API musaError_t musaSimObserveProcesses(int card, musaSimProcess* processes, int capacity, int* count);
// Physical number of a visible card.
MUSART_API musaError_t musaSimPhysicalCard(int device, int* card);
// The card at the other end of a port: -1 when the port is down because there is no such card. Cards form full meshes
// of links / links_per_peer + 1 neighbours.
MUSART_API musaError_t musaSimLinkPeer(int card, int link, int* peer);

#ifdef __cplusplus
}
#endif
