// Frames from a network interface: an AF_PACKET socket with a ring that it shares with the kernel
// (packet(7), TPACKET_V3). Knows nothing of JavaScript.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "packet_filter.h"

struct tpacket3_hdr;
struct tpacket_block_desc;

namespace roce {

struct PacketRingOptions {
  std::string interface;
  /// Bytes to keep of a frame.
  uint32_t snapLength = 262'144;
  /// Frames longer than this are kept whole: several packets in one, by segmentation offload.
  uint32_t wholeFrom = 262'144;
  /// Frames to other hosts too, as a mirror port brings them.
  bool promiscuous = true;
  /// Mirrors in ERSPAN and VXLAN too.
  bool mirrors = false;
  /// Bytes of the ring, rounded up to whole blocks.
  uint32_t buffer = 64u << 20;
};

/// A frame in the ring. Good until the next call of `next`.
struct RingFrame {
  const uint8_t* bytes;
  uint32_t captured;
  uint32_t original;
  uint32_t seconds;
  uint32_t nanoseconds;
  bool outgoing;
  /// A VLAN tag that the kernel has taken out of the frame, where it belongs behind the addresses.
  bool tagged;
  uint16_t tpid;
  uint16_t tci;
};

class PacketRing {
 public:
  /// A block goes to the reader when it is full, or so old.
  static constexpr uint32_t kRetireMs = 20;

  /// @throws SystemFailure: EPERM without CAP_NET_RAW, ENODEV, EPROTONOSUPPORT for an interface whose
  /// frames start with neither Ethernet nor IP, ENOMEM, …
  explicit PacketRing(const PacketRingOptions& options);
  ~PacketRing() { close(); }
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;

  /// -1 once closed.
  int fd() const { return fd_; }
  /// Frames start with an Ethernet header; else with IP.
  bool ethernet() const { return ethernet_; }

  /// The next frame, false if there is none yet. Call `release` when done with it: until then it comes again.
  bool next(RingFrame& frame);
  void release();
  /// The kernel takes no more frames; what is in the ring can be read. @throws SystemFailure
  void finish();
  /// An error that the socket reports, for example ENETDOWN, once; else 0.
  int takeError();

  /// Frames that the filter took, and those of them that found no room in the ring.
  uint64_t received();
  uint64_t dropped();
  void close();

 private:
  void open(const PacketRingOptions& options);
  void set(int option, const void* value, size_t length);
  void attach(std::vector<sock_filter> code);
  void readStatistics();
  tpacket_block_desc* block() const;
  bool enterBlock();

  int fd_ = -1;
  bool ethernet_ = true;
  uint8_t* ring_ = nullptr;
  size_t ringBytes_ = 0;
  uint32_t blocks_ = 0;
  uint32_t current_ = 0;
  /// Frames of the current block that are left, and the next one; none while the kernel has the block.
  uint32_t left_ = 0;
  tpacket3_hdr* frame_ = nullptr;
  uint64_t received_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace roce
