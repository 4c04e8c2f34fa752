// Slots of an RxBatch, as every receiver fills them.
#pragma once
#include <cstring>

#include "address.h"
#include "layout.h"
#include "span.h"

namespace roce {

/// The arrays of a batch, valid while no JavaScript runs.
struct RxArrays {
  Bytes slab;
  Words slots;
  Bytes sources;
  uint32_t capacity;
};

/// A packet that was received.
struct RxPacket {
  /// In the slab.
  uint32_t offset;
  /// Without the ICRC.
  uint32_t length;
  uint32_t peer, local, trafficClass, hopLimit;
  Verdict verdict;
  /// An Identification, and kMayFragment.
  uint32_t ipId;
  uint16_t sourcePort;
};

inline void writeRxSlot(const RxArrays& arrays, uint32_t index, const RxPacket& packet, const Gid& source) {
  uint32_t* slot = arrays.slots.data + size_t{index} * rx::kSlotWords;
  slot[rx::offset] = packet.offset;
  slot[rx::length] = packet.length;
  slot[rx::peer] = packet.peer;
  slot[rx::local] = packet.local;
  slot[rx::trafficClass] = packet.trafficClass;
  slot[rx::hopLimit] = packet.hopLimit;
  slot[rx::verdict] = static_cast<uint32_t>(packet.verdict);
  slot[rx::ipId] = packet.ipId;
  slot[rx::sourcePort] = packet.sourcePort;
  slot[rx::run] = 1;
  std::memcpy(arrays.sources.data + size_t{index} * source.size(), source.data(), source.size());
}

}  // namespace roce
