// How the cards of the host reach each other.
#include "mtml/handles.h"

namespace {

using mtml::card_of;

// Cards of one half of an 8-card node sit at the same processor (measured on an 8x S5000 node: NUMA 4 + 4).
constexpr int kCardsPerProcessor = 4;

unsigned level_between(int one, int other) {
  if (one == other) return MTML_TOPOLOGY_INTERNAL;
  return one / kCardsPerProcessor == other / kCardsPerProcessor ? MTML_TOPOLOGY_NODE : MTML_TOPOLOGY_SYSTEM;
}

mtmlReturn both(const mtmlDevice* one, const mtmlDevice* other, const void* result, int* first, int* second) {
  MTML_TRY(card_of(one, result, first));
  return card_of(other, result, second);
}

// Calls `take(card)` for each other card at most `level` away, until it returns false.
template <typename Take>
mtmlReturn for_each_near(int card, unsigned level, Take take) {
  int count = 0;
  MTML_TRY(mtml::translate(musaSimCountCards(&count)));
  for (int other = 0; other < count; ++other) {
    if (other != card && level_between(card, other) <= level && !take(other)) break;
  }
  return MTML_SUCCESS;
}

// The peer of a port; MTML_ERROR_INVALID_ARGUMENT when the card has no such port.
mtmlReturn peer_of(const mtmlDevice* device, unsigned link, const void* result, int* peer) {
  int card = 0;
  MTML_TRY(card_of(device, result, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  if (info.links == 0) return MTML_ERROR_NOT_SUPPORTED;
  if (link >= static_cast<unsigned>(info.links)) return MTML_ERROR_INVALID_ARGUMENT;
  return mtml::translate(musaSimLinkPeer(card, static_cast<int>(link), peer));
}

// The ports of `card` that lead to `peer`, in order, until `take` returns false.
template <typename Take>
mtmlReturn for_each_link(int card, int peer, Take take) {
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  for (int link = 0; link < info.links; ++link) {
    int found = -1;
    MTML_TRY(mtml::translate(musaSimLinkPeer(card, link, &found)));
    if (found == peer && !take(static_cast<unsigned>(link))) break;
  }
  return MTML_SUCCESS;
}

}  // namespace

mtmlReturn mtmlDeviceGetTopologyLevel(const mtmlDevice* one, const mtmlDevice* other, unsigned* level) {
  int first = 0;
  int second = 0;
  MTML_TRY(both(one, other, level, &first, &second));
  *level = level_between(first, second);
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceCountDeviceByTopologyLevel(const mtmlDevice* device, unsigned level, unsigned* count) {
  int card = 0;
  MTML_TRY(card_of(device, count, &card));
  *count = 0;
  return for_each_near(card, level, [count](int) { return ++*count != 0; });
}

mtmlReturn mtmlDeviceGetDeviceByTopologyLevel(
    const mtmlDevice* device, unsigned level, unsigned count, mtmlDevice** devices) {
  int card = 0;
  MTML_TRY(card_of(device, devices, &card));
  unsigned written = 0;
  return for_each_near(card, level, [&](int other) {
    if (written < count) devices[written++] = mtml::device_at(other);
    return written < count;
  });
}

// Every card reaches every other: over MTLink within a mesh, over PCIe otherwise.
mtmlReturn mtmlDeviceGetP2PStatus(
    const mtmlDevice* one, const mtmlDevice* other, unsigned capability, unsigned* status) {
  int first = 0;
  int second = 0;
  MTML_TRY(both(one, other, status, &first, &second));
  if (capability > MTML_P2P_CAPS_WRITE) return MTML_ERROR_INVALID_ARGUMENT;
  *status = MTML_P2P_STATUS_OK;
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMtLinkSpec(const mtmlDevice* device, mtmlMtLinkSpec* spec) {
  int card = 0;
  MTML_TRY(card_of(device, spec, &card));
  musaSimCardInfo info{};
  MTML_TRY(mtml::describe(card, &info));
  if (info.links == 0) return MTML_ERROR_NOT_SUPPORTED;
  *spec = {};
  spec->version = static_cast<unsigned>(info.link_version);
  spec->bandWidth = static_cast<unsigned>(info.link_bandwidth / 1e9 + 0.5);
  spec->linkNum = static_cast<unsigned>(info.links);
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMtLinkState(const mtmlDevice* device, unsigned link, unsigned* state) {
  int peer = -1;
  MTML_TRY(peer_of(device, link, state, &peer));
  *state = peer >= 0 ? MTML_MTLINK_STATE_UP : MTML_MTLINK_STATE_DOWN;
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMtLinkRemoteDevice(const mtmlDevice* device, unsigned link, mtmlDevice** remote) {
  int peer = -1;
  MTML_TRY(peer_of(device, link, remote, &peer));
  if (peer < 0) return MTML_ERROR_NOT_FOUND;
  *remote = mtml::device_at(peer);
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceGetMtLinkCapStatus(
    const mtmlDevice* device, unsigned link, unsigned capability, unsigned* status) {
  int peer = -1;
  MTML_TRY(peer_of(device, link, status, &peer));
  if (capability >= MTML_MTLINK_CAP_COUNT) return MTML_ERROR_INVALID_ARGUMENT;
  *status = peer >= 0 ? MTML_MTLINK_CAP_STATUS_OK : MTML_MTLINK_CAP_STATUS_NOT_SUPPORTED;
  return MTML_SUCCESS;
}

mtmlReturn mtmlDeviceCountMtLinkLayouts(const mtmlDevice* one, const mtmlDevice* other, unsigned* count) {
  int first = 0;
  int second = 0;
  MTML_TRY(both(one, other, count, &first, &second));
  *count = 0;
  return for_each_link(first, second, [count](unsigned) { return ++*count != 0; });
}

mtmlReturn mtmlDeviceGetMtLinkLayouts(
    const mtmlDevice* one, const mtmlDevice* other, unsigned count, mtmlMtLinkLayout* layouts) {
  int first = 0;
  int second = 0;
  MTML_TRY(both(one, other, layouts, &first, &second));
  unsigned near = 0;
  MTML_TRY(for_each_link(first, second, [&](unsigned link) {
    if (near < count) layouts[near] = {link, 0, {}};
    return ++near < count;
  }));
  unsigned far = 0;
  return for_each_link(second, first, [&](unsigned link) {
    if (far < near) layouts[far].remoteLinkId = link;
    return ++far < near;
  });
}
