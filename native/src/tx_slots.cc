#include "tx_slots.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace roce {
namespace {

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

}  // namespace

void TxSlots::wantRegions(const TxArrays& arrays, uint32_t from, uint32_t count, Regions& regions) {
  const size_t fragments = arrays.fragments.length / fragment::kWords;
  for (uint32_t slot = from; slot < count;) {
    const uint32_t* words = arrays.slots.data + size_t{slot} * tx::kSlotWords;
    const uint32_t first = load(words[tx::fragmentFirst]), run = load(words[tx::run]);
    const uint32_t packets = run > 1 ? std::min(run, count - slot) : 1;
    const uint32_t number = run > 1 ? packets : load(words[tx::fragmentCount]);
    slot += packets;
    if (first > fragments || number > fragments - first) continue;  // `read` reports it
    uint32_t last = 0;
    for (uint32_t i = first; i < first + number; i++) {
      const uint32_t region = load(arrays.fragments.data[size_t{i} * fragment::kWords + fragment::region]);
      if (i == first || region != last) regions.want(region);
      last = region;
    }
  }
}

int TxSlots::readHeader(const uint32_t* words, TxPacket& packet) {
  const uint32_t headerOffset = load(words[tx::headerOffset]);
  packet.headerLength = load(words[tx::headerLength]);
  packet.payloadLength = load(words[tx::payloadLength]);
  packet.pad = load(words[tx::pad]);
  packet.peer = load(words[tx::peer]);
  const uint32_t trafficClass = load(words[tx::trafficClass]), sourcePort = load(words[tx::sourcePort]);

  if (packet.headerLength < kBthBytes || packet.headerLength > kTxHeaderStride) return EINVAL;
  if (headerOffset > arrays_.headers.length || packet.headerLength > arrays_.headers.length - headerOffset)
    return EFAULT;
  if (packet.pad > 3 || trafficClass > 0xff || sourcePort > 0xffff) return EINVAL;
  if (packet.payloadLength > kMaxDatagram || packet.datagramBytes() > kMaxDatagram) return EMSGSIZE;
  if (peers_.at(packet.peer) == nullptr) return EINVAL;
  packet.header = arrays_.headers.data + headerOffset;
  packet.trafficClass = static_cast<uint8_t>(trafficClass);
  packet.sourcePort = static_cast<uint16_t>(sourcePort);
  return 0;
}

int TxSlots::read(uint32_t slot, TxPacket& packet) {
  if (goesOn(slot)) return readRun(slot, packet);
  const uint32_t* words = arrays_.slots.data + size_t{slot} * tx::kSlotWords;
  const int errnum = readHeader(words, packet);
  const uint32_t first = load(words[tx::fragmentFirst]), count = load(words[tx::fragmentCount]);
  const uint32_t run = load(words[tx::run]);
  if (run > 1) return beginRun(slot, run, first, count, errnum, packet) != 0 ? run_.errnum : readRun(slot, packet);
  if (errnum != 0) return errnum;

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
    pieces_[packet.pieceCount++] = {memory.data + offset, length, isShared(region)};
    sum += length;
  }
  return sum == packet.payloadLength ? 0 : EINVAL;
}

int TxSlots::beginRun(uint32_t slot, uint32_t packets, uint32_t fragment, uint32_t fragments, int errnum,
                      const TxPacket& packet) {
  run_.first = slot;
  run_.end = slot + std::min(packets, count_ - slot);
  run_.errnum = errnum;
  run_.fragment = fragment;
  run_.hasRegion = false;
  if (errnum != 0) return errnum;
  const size_t number = arrays_.fragments.length / fragment::kWords;
  if (fragment > number || run_.end - slot > number - fragment) return run_.errnum = EFAULT;
  if (fragments != 1 || packet.payloadLength == 0) return run_.errnum = EINVAL;
  std::memcpy(run_.header, packet.header, packet.headerLength);
  run_.psn = uint32_t{run_.header[9]} << 16 | uint32_t{run_.header[10]} << 8 | run_.header[11];
  run_.packet = packet;
  run_.packet.header = run_.header;
  run_.packet.pieceCount = 1;
  if (slot != counted_) runs_++;
  counted_ = slot;
  return 0;
}

int TxSlots::readRun(uint32_t slot, TxPacket& packet) {
  if (run_.errnum != 0) return run_.errnum;
  const uint32_t by = slot - run_.first, psn = run_.psn + by;
  packet = run_.packet;
  run_.header[9] = static_cast<uint8_t>(psn >> 16);
  run_.header[10] = static_cast<uint8_t>(psn >> 8);
  run_.header[11] = static_cast<uint8_t>(psn);
  const uint32_t* fields = arrays_.fragments.data + size_t{run_.fragment + by} * fragment::kWords;
  const uint32_t region = load(fields[fragment::region]), length = load(fields[fragment::length]);
  const uint64_t offset = uint64_t{load(fields[fragment::offsetHigh])} << 32 | load(fields[fragment::offsetLow]);
  if (!run_.hasRegion || region != run_.region) {
    run_.region = region;
    run_.memory = regions_->at(region);
    run_.shared = isShared(region);
    run_.hasRegion = true;
  }
  if (length != packet.payloadLength) return EINVAL;
  if (offset > run_.memory.length || length > run_.memory.length - offset) return EFAULT;
  pieces_[0] = {run_.memory.data + offset, length, run_.shared};
  return 0;
}

void TxSlots::seek(uint32_t slot) {
  run_.end = 0;
  for (uint32_t at = from_; at < slot;) {
    const uint32_t run = load(arrays_.slots.data[size_t{at} * tx::kSlotWords + tx::run]);
    const uint32_t packets = run > 1 ? std::min(run, count_ - at) : 1;
    if (packets > slot - at) {
      TxPacket packet;
      read(at, packet);
    }
    at += packets;
  }
}

}  // namespace roce
