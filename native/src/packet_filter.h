// The filter of frames for a capture of RoCE, in the kernel's packet filter language.
#pragma once
#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace roce {

struct PacketFilterOptions {
  /// Whether frames start with an Ethernet header; else with IP.
  bool ethernet = true;
  /// On a loopback device every packet passes twice: as sent and as received. True takes the latter only.
  bool receivedOnly = false;
  /// Takes ERSPAN (any GRE over IP) and VXLAN too, whatever they carry.
  bool mirrors = false;
  /// Bytes to keep of a frame.
  uint32_t snapLength = 262'144;
  /// Frames longer than this are kept whole.
  uint32_t wholeFrom = 262'144;
};

/// RoCE v2 (UDP to port 4791 over IPv4 with any options, or IPv6), v1 (EtherType 0x8915) pause frames
/// (0x8808) and ICMP errors, behind up to three VLAN tags in the frame, in addition to the one that the kernel may have taken out of it.
std::vector<sock_filter> packetFilter(const PacketFilterOptions& options);

/// Takes nothing.
std::vector<sock_filter> rejectAll();

}  // namespace roce
