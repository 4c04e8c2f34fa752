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
  /// @param runs counts the run slots that were read
  TxSlots(PeerTable& peers, uint64_t& runs) : peers_(peers), runs_(runs) {}

  /// Notes the regions that slots `from` … `count` - 1 need.
  static void wantRegions(const TxArrays& arrays, uint32_t from, uint32_t count, Regions& regions);

  /// A batch of slots `from` … `count` - 1.
  void begin(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count) {
    arrays_ = arrays;
    regions_ = &regions;
    from_ = from;
    count_ = count;
    run_.end = 0;
    counted_ = count;
  }
  /// Reads and checks a slot, the one behind the last or `from`; after `seek` the one that it was called with. The packet's header is good until the next
  /// call. @returns 0, or the errno that becomes its status
  int read(uint32_t slot, TxPacket& packet);
  /// Goes back to a slot: of a run that it is inside of, the first is read again.
  void seek(uint32_t slot);
  /// Whether the slot is of the run that the one before it is of.
  bool goesOn(uint32_t slot) const { return slot > run_.first && slot < run_.end; }
  const TxPiece& piece(uint32_t index) const { return pieces_[index]; }
  uint32_t& status(uint32_t slot) { return arrays_.slots.data[size_t{slot} * tx::kSlotWords + tx::status]; }

 private:
  /// Fragments with bytes in them that one packet may have.
  static constexpr uint32_t kPieces = 256;

  /// The run at hand: slots `first` … `end` - 1, of which the first one is written.
  struct Run {
    uint32_t first, end = 0;
    /// Why it can't be sent, or 0.
    int errnum;
    uint32_t psn, fragment;
    TxPacket packet;
    uint8_t header[kTxHeaderStride];
    /// The region of the last fragment that was read.
    uint32_t region;
    Bytes memory;
    bool shared, hasRegion;
  };

  bool isShared(uint32_t region) const {
    return region < arrays_.regionShared.length && arrays_.regionShared.data[region] != 0;
  }
  /// Reads and checks all of a packet but its payload.
  int readHeader(const uint32_t* words, TxPacket& packet);
  int beginRun(uint32_t slot, uint32_t packets, uint32_t fragment, uint32_t fragments, int errnum, const TxPacket& packet);
  int readRun(uint32_t slot, TxPacket& packet);

  PeerTable& peers_;
  uint64_t& runs_;
  TxArrays arrays_;
  const Regions* regions_ = nullptr;
  uint32_t from_ = 0, count_ = 0;
  /// The run slot that was counted last: one may be read twice.
  uint32_t counted_ = 0;
  Run run_;
  std::array<TxPiece, kPieces> pieces_;
};

}  // namespace roce
