// Batch send: slots of a TxBatch become datagrams with their ICRC, and runs of equal ones GSO messages.
#pragma once
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "local.h"
#include "peers.h"
#include "regions.h"
#include "stats.h"
#include "tx_slots.h"

namespace roce {

class Sender {
 public:
  /// Bytes that it allocates in addition to its own size.
  static constexpr uint32_t kStagingBytes = 256 * 1024;
  struct Settings {
    bool gso = true;
    uint32_t maxSegments = 64;
    /// FLUSHes with an ICRC over BTH to RETH twice, as rxe of Linux 6.12 expects it.
    bool flushTwice = false;
  };

  Sender(const Crc* const& crc, const Settings& settings, Stats& stats, PeerTable& peers,
         std::vector<std::unique_ptr<Local>>& locals);

  /// Sends slots `from` … `count` - 1 in order and writes their status.
  /// @returns the first slot not taken, `count` when all were
  uint32_t send(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count);

  /// Whether the last batch ended early.
  bool blocked() const { return blocked_; }
  /// The descriptor that was full then; -1 if no descriptor reports the room that was missing.
  int blockedFd() const { return full_ != nullptr ? full_->fd() : -1; }
  /// To be called before a local address goes.
  void forget(const Local& local) {
    if (full_ != nullptr && local.transmit.has(*full_)) full_ = nullptr;
  }

 private:
  /// A datagram, or a run of them, in the making.
  struct Message {
    uint32_t firstSlot, packets, bytes;
    uint32_t peer;
    UdpSocket* socket;
  };
  /// Room for the three control messages a datagram may carry.
  struct alignas(cmsghdr) Control {
    uint8_t bytes[2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))];
  };

  /// Makes a message of the slots from `slot` on. @returns the slot after the last it took
  uint32_t build(uint32_t slot, uint32_t count);
  /// Whether a packet, which is checked, leaves from `socket` to where the first one goes.
  bool sameRoute(const TxPacket& first, const TxPacket& packet, const UdpSocket& socket) const;
  void append(const TxPacket& packet, PseudoHeader& pseudo, uint16_t ipId);
  /// In one piece and with one pass for the ICRC: of a short packet the calls cost more than the bytes.
  void appendShort(const TxPacket& packet, PseudoHeader& pseudo, uint16_t ipId);
  void gather(const uint8_t* data, uint32_t length);
  uint8_t* stage(uint32_t length);
  void finish(const Message& message, const TxPacket& first, const Peer& peer, uint32_t segmentBytes);
  /// Passes the messages built to the kernel. @returns true when all were handled; else `resume` is
  /// the slot to go on from, and `blocked_` is true where sending stops there
  bool transmit(uint32_t& resume);
  void setStatus(const Message& message, uint32_t status);
  uint32_t stagingLeft() const { return kStagingBytes - staged_; }

  static constexpr uint32_t kMessages = 64;
  /// Up to here copying into the staging area, in the pass that checksums, is cheaper than handing the
  /// kernel one more stretch to gather (measured from 64 to 4096 bytes; at 4096 they are even).
  static constexpr uint32_t kInline = 2048;
  /// Stretches of one message: what is gathered by reference is longer than kInline, and what is staged
  /// in between, each time, is one stretch.
  static constexpr uint32_t kIovecs = 2 * (kMaxDatagram / kInline) + 1;

  const Crc* const& crc_;
  Settings settings_;
  Stats& stats_;
  PeerTable& peers_;
  std::vector<std::unique_ptr<Local>>& locals_;

  // The batch at hand.
  TxSlots slots_;
  bool blocked_ = false;
  /// The socket that was full.
  const UdpSocket* full_ = nullptr;
  /// Slots before this one go singly: a run of them was too long for the path.
  uint32_t singlesUntil_ = 0;

  // The messages in the making.
  std::unique_ptr<uint8_t[]> staging_;
  uint32_t staged_ = 0;
  msghdr* gathering_ = nullptr;
  std::array<Message, kMessages> messages_;
  std::array<mmsghdr, kMessages> headers_{};
  std::array<Control, kMessages> control_{};
  std::array<std::array<iovec, kIovecs>, kMessages> iovecs_;
  uint32_t messageCount_ = 0;
};

}  // namespace roce
