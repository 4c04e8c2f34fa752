#include "tx_slots.h"

#include <cerrno>

namespace roce {
namespace {

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

}  // namespace

void TxSlots::wantRegions(const TxArrays& arrays, uint32_t from, uint32_t count, Regions& regions) {
  const size_t fragments = arrays.fragments.length / fragment::kWords;
  for (uint32_t slot = from; slot < count; slot++) {
    const uint32_t* words = arrays.slots.data + size_t{slot} * tx::kSlotWords;
    const uint32_t first = load(words[tx::fragmentFirst]), number = load(words[tx::fragmentCount]);
    if (first > fragments || number > fragments - first) continue;  // `read` reports it
    for (uint32_t i = first; i < first + number; i++)
      regions.want(load(arrays.fragments.data[size_t{i} * fragment::kWords + fragment::region]));
  }
}

int TxSlots::read(uint32_t slot, TxPacket& packet) {
  const uint32_t* words = arrays_.slots.data + size_t{slot} * tx::kSlotWords;
  const uint32_t headerOffset = load(words[tx::headerOffset]);
  packet.headerLength = load(words[tx::headerLength]);
  packet.payloadLength = load(words[tx::payloadLength]);
  packet.pad = load(words[tx::pad]);
  packet.peer = load(words[tx::peer]);
  const uint32_t trafficClass = load(words[tx::trafficClass]), sourcePort = load(words[tx::sourcePort]);
  const uint32_t first = load(words[tx::fragmentFirst]), count = load(words[tx::fragmentCount]);

  if (packet.headerLength < kBthBytes || packet.headerLength > kTxHeaderStride) return EINVAL;
  if (headerOffset > arrays_.headers.length || packet.headerLength > arrays_.headers.length - headerOffset)
    return EFAULT;
  if (packet.pad > 3 || trafficClass > 0xff || sourcePort > 0xffff) return EINVAL;
  if (packet.payloadLength > kMaxDatagram || packet.datagramBytes() > kMaxDatagram) return EMSGSIZE;
  if (peers_.at(packet.peer) == nullptr) return EINVAL;
  packet.header = arrays_.headers.data + headerOffset;
  packet.trafficClass = static_cast<uint8_t>(trafficClass);
  packet.sourcePort = static_cast<uint16_t>(sourcePort);

  const size_t fragments = arrays_.fragments.length / fragment::kWords;
  if (first > fragments || count > fragments - first) return EFAULT;
  uint64_t sum = 0;
  packet.pieceCount = 0;
  for (uint32_t i = first; i < first + count; i++) {
    const uint32_t* fields = arrays_.fragments.data + size_t{i} * fragment::kWords;
    const uint32_t length = load(fields[fragment::length]);
    if (length == 0) continue;
    const uint32_t region = load(fields[fragment::region]);
    const uint64_t offset =
        uint64_t{load(fields[fragment::offsetHigh])} << 32 | load(fields[fragment::offsetLow]);
    const Bytes memory = regions_->at(region);
    if (offset > memory.length || length > memory.length - offset) return EFAULT;
    if (packet.pieceCount == kPieces) return EINVAL;
    const bool shared = region < arrays_.regionShared.length && arrays_.regionShared.data[region] != 0;
    pieces_[packet.pieceCount++] = {memory.data + offset, length, shared};
    sum += length;
  }
  return sum == packet.payloadLength ? 0 : EINVAL;
}

}  // namespace roce
