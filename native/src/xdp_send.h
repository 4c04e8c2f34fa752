// Slots of a TxBatch become Ethernet frames in the memory of an AF_XDP socket, headers and ICRC included.
#pragma once
#include <vector>

#include "crc.h"
#include "tx_slots.h"
#include "xdp_socket.h"
#include "xdp_stats.h"
#include "xdp_ways.h"

namespace roce {

class XdpSender {
 public:
  struct Settings {
    /// FLUSHes with an ICRC over BTH to RETH twice, as rxe of Linux 6.12 expects it.
    bool flushTwice = false;
    /// Where packets to addresses of the link itself wait, in the memory that packets are received in.
    uint8_t* loop = nullptr;
    uint32_t loopSlots = 0;
    uint32_t sendSlots = 0;
  };
  /// Bytes of a packet that waits there: the largest frame.
  static constexpr uint32_t kLoopStride = 4352;

  XdpSender(const Crc* const& crc, const Settings& settings, XdpStats& stats, PeerTable& peers, XdpWays& ways,
            XdpSocket& socket);
  ~XdpSender();
  XdpSender(const XdpSender&) = delete;
  XdpSender& operator=(const XdpSender&) = delete;

  /// Sends slots `from` … `count` - 1 in order and writes their status.
  /// @returns the first slot not taken, `count` when all were
  uint32_t send(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count);
  /// Whether the last batch ended early, for want of a place to send from.
  bool blocked() const { return blocked_; }
  /// Whether packets have gone through the kernel for want of a neighbour since the last call.
  bool missed() {
    const bool missed = missed_;
    missed_ = false;
    return missed;
  }
  /// Asks the kernel to send what it has not taken yet. @returns whether it has taken all
  bool kick();
  /// Bytes of IP packet that the interface takes.
  void setMtu(uint32_t mtu) { mtu_ = mtu; }

  /// A packet that waits for the link's own receiver.
  struct Looped {
    const uint8_t* frame;
    uint32_t bytes;
  };
  /// Those since the last call of `recycle`.
  const std::vector<Looped>& looped() const { return looped_; }
  /// The receiver is done with the first ones.
  void recycle(size_t number);

 private:
  /// Frames that are handed over at once: the kernel takes 32 at a call (xsk.c TX_BATCH_SIZE).
  static constexpr uint32_t kBurst = 32;

  bool takeSlot(uint32_t& slot);
  void reap();
  void publish(uint32_t slot, uint32_t bytes);
  /// Writes a frame. @returns its bytes
  uint32_t build(uint8_t* frame, const TxPacket& packet, const Peer& peer, const XdpWay& way, uint16_t ipId);
  int loop(const TxPacket& packet, const Peer& peer, const XdpWay& way);
  /// Has the kernel check the neighbour of a way, from time to time, by sending it this packet. False where it did not send.
  bool check(const TxPacket& packet, const Peer& peer, const XdpWay& way, uint32_t nowMs);
  int throughKernel(const TxPacket& packet, const Peer& peer, const XdpWay& way);

  const Crc* const& crc_;
  Settings settings_;
  XdpStats& stats_;
  PeerTable& peers_;
  XdpWays& ways_;
  XdpSocket& socket_;
  TxSlots slots_;
  uint64_t runs_ = 0;
  uint32_t mtu_ = 1500;
  bool blocked_ = false, missed_ = false;
  /// Places that are free, and of the others how many descriptors the kernel still has.
  std::vector<uint32_t> free_;
  std::vector<uint8_t> pending_;
  uint32_t produced_ = 0, completed_ = 0, unkicked_ = 0;
  /// Raw IP sockets, by family, made when needed.
  int raw4_ = -1, raw6_ = -1;
  std::vector<uint8_t> staging_;
  std::vector<Looped> looped_;
  uint32_t loopNext_ = 0, loopUsed_ = 0;
};

}  // namespace roce
