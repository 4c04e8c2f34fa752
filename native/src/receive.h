// Batch receive: datagrams into the slab, super-packets into packets, and a verdict on every ICRC.
#pragma once
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "arguments.h"
#include "local.h"
#include "peers.h"
#include "rx_slots.h"
#include "stats.h"

namespace roce {

class Receiver {
 public:
  struct Settings {
    /// False takes any Identification that solves the ICRC.
    bool idWindow = true;
    /// Takes a FLUSH whose ICRC covers BTH to RETH twice, as rxe of Linux 6.12 makes it.
    bool flushTwice = false;
  };

  Receiver(const Crc* const& crc, const Settings& settings, Stats& stats, PeerTable& peers,
           std::vector<std::unique_ptr<Local>>& locals);

  /// The bytes of slab that a datagram to that socket may need.
  static uint32_t strideOf(const UdpSocket& socket) { return socket.gro() ? 65536 : 8192; }

  /// From the next batch on, slots have the time at which the kernel took their packet in, of sockets that stamp.
  void stamp() { stamping_ = true; }
  /// From now on, any Identification that solves the ICRC is taken.
  void openIdWindow() { settings_.idWindow = false; }
  /// Starts a batch.
  void begin(const RxArrays& arrays);
  /// Takes what has arrived at one local address, as far as there is room, in one system call.
  /// @param share how many addresses have still to share the room, this one included
  /// @param one one datagram at most
  /// @returns whether there may be more
  bool drain(uint32_t local, uint32_t share, bool one = false);
  /// Whether the batch had no room for what may have been left.
  bool full() const { return full_; }
  /// Packets in the batch.
  uint32_t count() const { return count_; }

 private:
  static constexpr uint32_t kDatagrams = 64;
  /// Packets of one super-packet: Linux UDP_MAX_SEGMENTS.
  static constexpr uint32_t kSegments = 128;
  struct alignas(cmsghdr) Control {
    uint8_t bytes[128];
  };
  /// A datagram as the kernel handed it over.
  struct Datagram {
    uint8_t* data;
    uint32_t bytes;
    uint32_t segmentBytes;
    uint32_t trafficClass = 0;
    uint32_t hopLimit = 0;
    /// ns of CLOCK_MONOTONIC; 0 where the kernel gave none.
    uint64_t stamp = 0;
  };
  /// The Identifications of the packets of one datagram: the first one's (with kMayFragment), then the same or counting.
  struct Series {
    bool known = false;
    uint32_t base = 0;
    uint16_t stride = 1;
  };

  /// The packets of one datagram that are a run (rx::run), as they come.
  class Run {
   public:
    /// The next packet was written to `slot`; `bytes` with its ICRC.
    void add(uint32_t* slot, const uint8_t* packet, uint32_t bytes) {
      uint64_t head;
      std::memcpy(&head, packet, sizeof head);
      const uint32_t psn = uint32_t{packet[9]} << 16 | uint32_t{packet[10]} << 8 | packet[11];
      if (slot_ != nullptr && bytes == bytes_ && head == head_ && packet[8] == ackReq_ && psn == psn_) {
        slot_[rx::run]++;
      } else {
        slot_ = slot;
        bytes_ = bytes;
        head_ = head;
        ackReq_ = packet[8];
      }
      psn_ = (psn + 1) & 0xff'ffff;
    }
    /// A packet came that is in no run.
    void end() { slot_ = nullptr; }

   private:
    /// That of the first packet, which counts the others; null: there is none.
    uint32_t* slot_ = nullptr;
    uint32_t bytes_ = 0;
    /// The first eight bytes of the BTH and the one with AckReq; the PSN that goes on.
    uint64_t head_ = 0;
    uint8_t ackReq_ = 0;
    uint32_t psn_ = 0;
  };

  void prepare(uint8_t* places, uint32_t datagrams, uint32_t stride);
  void readControl(const msghdr& message, Datagram& datagram) const;
  void resolve(const Endpoint& source, uint32_t local);
  void split(const Datagram& datagram, Local& local, uint32_t localIndex, uint16_t sourcePort);
  Verdict check(const uint8_t* packet, uint32_t bytes, uint32_t index, PseudoHeader& pseudo, Series& series,
                uint32_t& ipId);
  bool explain(uint32_t difference, uint32_t coveredBytes, bool v6, uint32_t& ipId);

  const Crc* const& crc_;
  Settings settings_;
  Stats& stats_;
  PeerTable& peers_;
  std::vector<std::unique_ptr<Local>>& locals_;
  bool stamping_ = false;

  // The batch at hand.
  RxArrays arrays_{};
  uint32_t count_ = 0;
  bool full_ = false;
  size_t slabUsed_ = 0;
  uint32_t nowMs_ = 0;
  uint32_t arrivedAfterMs_ = 0;
  /// While stamping: CLOCK_MONOTONIC, and CLOCK_REALTIME, of which the kernel's stamps are, at the last call to it, ns.
  int64_t monotonicNs_ = 0;
  int64_t realNs_ = 0;

  // Whose packets are at hand; of the batch before as long as no peer came or went.
  uint64_t peerChanges_ = 0;
  Gid sourceGid_{};
  uint32_t sourceLocal_ = kNoPeer;
  uint32_t sourcePeer_ = kNoPeer;
  IdWindow* window_ = nullptr;

  /// The slab that `headers_` are prepared for, and how many of them the kernel filled since.
  uint8_t* places_ = nullptr;
  uint32_t stride_ = 0;
  uint32_t prepared_ = 0;
  uint32_t filled_ = 0;
  std::array<mmsghdr, kDatagrams> headers_{};
  std::array<iovec, kDatagrams> iovecs_{};
  std::array<Endpoint, kDatagrams> sources_{};
  std::array<Control, kDatagrams> control_{};
};

}  // namespace roce
