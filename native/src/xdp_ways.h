// How the packets of each peer leave an AF_XDP link: the frame's headers, and the neighbour that they are addressed to.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "peers.h"
#include "xdp_neighbours.h"

namespace roce {

/// Of one peer.
struct XdpWay {
  enum Kind { wire, loop, kernel };
  Kind kind = kernel;
  /// Of `wire`: whether `mac` counts.
  bool known = false;
  Mac mac{};
  Gid hop{};
  /// Coarse milliseconds at which the kernel last got a packet for the neighbour.
  uint32_t checkedMs = 0;
  /// Ethernet, IP and UDP header, without what differs between packets.
  std::array<uint8_t, 14 + 40 + 8> header{};
  uint8_t headerBytes = 0;
  /// Of IPv4: the sum of the header's words, without what differs.
  uint32_t sum = 0;
};

class XdpWays {
 public:
  /// Milliseconds after which the kernel is to check again that a neighbour is there. Less than it takes a neighbour to be reachable
  /// for (base_reachable_time_ms, arp(7)), half at least.
  static constexpr uint32_t kCheckMs = 10'000;

  /// @param ethernet false on lo, which has no neighbours
  XdpWays(int interfaceIndex, bool ethernet, PeerTable& peers);

  /// Finds the way of a peer. `own`: the peer is an address of the link itself.
  void add(uint32_t index, const Gid& source, bool own);
  XdpWay& at(uint32_t index) { return ways_[index]; }
  int fd() const { return neighbours_ ? neighbours_->fd() : -1; }
  /// Takes in the kernel's events of routes and neighbours. @returns whether the interface itself may have changed
  bool refresh();
  /// A packet to that neighbour has gone through the kernel.
  void checked(const Gid& hop, uint32_t nowMs);
  /// The source of frames from now on.
  void setMac(const Mac& mac);
  void close() { neighbours_.reset(); }

 private:
  void resolve(XdpWay& way, const Gid& source, const Peer& peer);
  void buildHeader(XdpWay& way, const Gid& source, const Peer& peer) const;
  void setTarget(XdpWay& way, bool known, const Mac& mac);

  bool ethernet_;
  Mac mac_{};
  PeerTable& peers_;
  std::optional<Neighbours> neighbours_;
  std::vector<XdpWay> ways_;
  /// By peer: the address that its packets come from.
  std::vector<Gid> sources_;
};

}  // namespace roce
