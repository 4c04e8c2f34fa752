// Slots of a TxBatch, read once and checked: what every sender begins with.
#pragma once
#include <array>

#include "arguments.h"
#include "icrc.h"
#include "peers.h"
#include "regions.h"

namespace roce {

/// The arrays of a batch, valid while no JavaScript runs.
struct TxArrays {
  Words slots;
  Bytes headers;
  Words fragments;
  Bytes regionShared;
};

/// A stretch of memory that goes into a packet.
struct TxPiece {
  const uint8_t* data;
  uint32_t length;
  bool shared;
};

/// A slot; its pieces are those of the reader, until the next slot is read.
struct TxPacket {
  const uint8_t* header;
  uint32_t headerLength, payloadLength, pad, peer;
  uint8_t trafficClass;
  uint16_t sourcePort;
  uint32_t pieceCount;
  uint32_t datagramBytes() const { return headerLength + payloadLength + pad + kIcrcBytes; }
};

class TxSlots {
 public:
  explicit TxSlots(PeerTable& peers) : peers_(peers) {}

  /// Notes the regions that slots `from` … `count` - 1 need.
  static void wantRegions(const TxArrays& arrays, uint32_t from, uint32_t count, Regions& regions);

  void begin(const TxArrays& arrays, const Regions& regions) {
    arrays_ = arrays;
    regions_ = &regions;
  }
  /// Reads and checks a slot. @returns 0, or the errno that becomes its status
  int read(uint32_t slot, TxPacket& packet);
  const TxPiece& piece(uint32_t index) const { return pieces_[index]; }
  uint32_t& status(uint32_t slot) { return arrays_.slots.data[size_t{slot} * tx::kSlotWords + tx::status]; }

 private:
  /// Fragments with bytes in them that one packet may have.
  static constexpr uint32_t kPieces = 256;

  PeerTable& peers_;
  TxArrays arrays_;
  const Regions* regions_ = nullptr;
  std::array<TxPiece, kPieces> pieces_;
};

}  // namespace roce
