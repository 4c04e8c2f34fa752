// Frames of an AF_XDP socket become packets of an RxBatch, where they lie: every header is checked here, since no kernel has.
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "icrc.h"
#include "peers.h"
#include "rx_slots.h"
#include "xdp_socket.h"
#include "xdp_stats.h"

namespace roce {

/// Local addresses by GID, for the receiver.
using LocalIndex = std::unordered_map<Gid, uint32_t, GidHash>;
/// Numbers of the queue pairs whose packets are the link's.
using QueuePairs = std::unordered_set<uint32_t>;

class XdpReceiver {
 public:
  struct Settings {
    /// The memory that all sockets have parts of: where `slab` is this, packets stay in place.
    uint8_t* memory;
    /// Of it, room for frames that have to be put together.
    uint8_t* scratch;
    size_t scratchBytes;
    uint16_t port;
    /// Takes a FLUSH whose ICRC covers BTH to RETH twice, as rxe of Linux 6.12 makes it.
    bool flushTwice;
    /// Loopback addresses are nobody's on another interface than lo.
    bool loopback;
  };

  XdpReceiver(const Crc* const& crc, const Settings& settings, XdpStats& stats, PeerTable& peers,
              const LocalIndex& locals, const QueuePairs& queuePairs)
      : crc_(crc), settings_(settings), stats_(stats), peers_(peers), locals_(locals), queuePairs_(queuePairs) {}

  /// Starts a batch. Frames of the last one are the kernel's again.
  void begin(const RxArrays& arrays);
  /// Takes what a socket has, as far as there is room. Once a batch.
  void drain(XdpSocket& socket);
  /// Takes one frame; the memory has to stay as it is until the next batch. `own`: the link has sent it itself.
  void take(const uint8_t* frame, uint32_t bytes, bool own);
  uint32_t count() const { return count_; }
  /// Whether the largest of super-packets would find a slot for each of its packets.
  bool roomy() const { return count_ == 0 || arrays_.capacity - count_ >= kSegments; }

 private:
  /// Packets of one super-packet: Linux UDP_MAX_SEGMENTS.
  static constexpr uint32_t kSegments = 128;
  /// The longest datagram that is one packet: headers, 4096 bytes, pad, ICRC.
  static constexpr uint32_t kMostPacket = kTxHeaderStride + 4096 + 3 + kIcrcBytes;

  /// CRCs that each of two searches for the packets of a frame may cost, also where its payload looks like headers all over.
  static constexpr uint32_t kMostTries = 32;
  /// Buffers that one frame may have: a super-packet of 64 KiB has 18.
  static constexpr uint32_t kMostParts = 64;

  /// Values that all packets of a frame share.
  struct Origin {
    Gid source;
    uint32_t peer, local, trafficClass, hopLimit;
    uint16_t sourcePort, ipId;
    /// kMayFragment, or 0.
    uint32_t mayFragment;
  };

  /// Addresses, and what was looked up for them.
  struct Flow {
    Gid source, destination;
    bool own;
    uint32_t local, peer;
    bool isSame(const Flow& other) const {
      return own == other.own && source == other.source && destination == other.destination;
    }
  };

  bool gather(XdpSocket& socket, uint32_t from, uint32_t count, const uint8_t*& frame);
  bool checkSource(const Gid& source, bool own) const;
  void split(const uint8_t* datagram, uint32_t bytes, PseudoHeader& pseudo, const Origin& origin);
  bool isRight(const uint8_t* packet, uint32_t bytes, PseudoHeader& pseudo, uint16_t ipId);
  /// Bytes of each packet of a super-packet; 0 for any other datagram.
  uint32_t findSegment(const uint8_t* datagram, uint32_t bytes, PseudoHeader& pseudo, uint16_t ipId);
  /// Whether a packet may begin behind the first one, where that has so many bytes.
  bool mayBegin(const uint8_t* datagram, uint32_t bytes, uint32_t segment) const;
  void deliver(const uint8_t* packet, uint32_t bytes, const Origin& origin, uint16_t ipId, Verdict verdict);

  const Crc* const& crc_;
  Settings settings_;
  XdpStats& stats_;
  PeerTable& peers_;
  const LocalIndex& locals_;
  const QueuePairs& queuePairs_;

  RxArrays arrays_{};
  bool inPlace_ = false;
  /// That of the batch's last frame: the next one is mostly of the same.
  std::optional<Flow> flow_;
  uint32_t count_ = 0;
  size_t slabUsed_ = 0, scratchUsed_ = 0;
  /// Descriptors whose chunks the batch is still in, by socket.
  struct Held {
    XdpSocket* socket;
    uint32_t from, to;
  };
  std::vector<Held> held_;
  /// Bytes of the packets that the last super-packet was cut into.
  uint32_t lastSegment_ = 0;
};

}  // namespace roce
