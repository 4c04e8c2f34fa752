// The invariant CRC of RoCEv2 packets (IBTA vol 1 Annex A17.3.3 on §7.8.1): CRC-32 over eight bytes of
// ones, the IP and UDP headers with what routers may change masked to ones, and the packet from its BTH
// through the pad, where the BTH's FECN/BECN byte is masked too. docs/icrc.md explains how a UDP socket,
// which sees no IP header, can send and check it.
#pragma once
#include <cstring>

#include "address.h"
#include "crc.h"
#include "layout.h"

namespace roce {

inline constexpr uint32_t kIcrcBytes = 4;
inline constexpr uint32_t kBthBytes = 12;
/// The bytes of a BTH with the destination QPN, and the bit in the first of them that programs at a shared address have in theirs
/// (docs/sharing.md).
inline constexpr uint32_t kDestinationQpByte = 5;
inline constexpr uint8_t kSharedQp = 0x80;
/// FLUSH of a reliable connection, whose ICRC rxe of Linux 6.12 computes over BTH to RETH twice (docs/quirks.md): its opcode, and
/// its bytes with the ICRC.
inline constexpr uint8_t kFlushOpcode = 0x1c;
inline constexpr uint32_t kFlushBytes = kBthBytes + 4 + 16 + kIcrcBytes;
/// The longest payload of a UDP datagram over IPv4, used for IPv6 too.
inline constexpr uint32_t kMaxDatagram = 65507;

/// The value that a byte adds to the CRC register after the BTH, by its place: the CRC is linear, so a packet that differs from another in these bytes differs
/// in the register by these values alone.
struct IcrcAdds {
  /// Two bytes of the Identification of an IPv4 header, three of the PSN.
  enum Place : uint32_t { idHigh, idLow, psnHigh, psnMiddle, psnLow };
  uint32_t of[5][256];
};
extern const IcrcAdds kIcrcAdds;

/// The masked headers in front of the BTH, and room to lay the packet's own headers behind them.
class PseudoHeader {
 public:
  PseudoHeader() = default;
  /// Of datagrams from `source` to `destination`; ports, length and Identification are set later.
  PseudoHeader(const Gid& source, const Gid& destination);

  /// Of a packet whose headers are seen: every bit of them is covered, but for what routers may change.
  /// @param ip an IPv4 header without options, or an IPv6 header, with the UDP header behind it
  static PseudoHeader seen(const uint8_t* ip);

  void setSource(const Gid& source);
  void setPorts(uint16_t source, uint16_t destination);

  /// "Don't fragment" of an IPv4 header, set in a new header; ignored for IPv6.
  void setMayFragment(bool may) {
    if (!v6_) bytes_[kFlagsByte] = may ? 0 : kDontFragment;
  }

  /// Bytes of a datagram, without its ICRC, up to which one pass over a copy behind the headers is cheaper than two passes.
  static constexpr uint32_t kShort = kTxHeaderStride + 256;

  /// The CRC register after the first `length` bytes of one datagram, kBthBytes … kShort. `datagramBytes` is the UDP payload
  /// with its ICRC, `ipId` the Identification (ignored for IPv6).
  uint32_t start(const Crc& crc, uint32_t datagramBytes, uint16_t ipId, const uint8_t* datagram, uint32_t length) {
    put16(v6_ ? 8 + 4 : 8 + 2, v6_ ? datagramBytes + 8 : datagramBytes + 28);
    if (!v6_) put16(8 + 4, ipId);
    put16(length_ - 4, datagramBytes + 8);
    std::memcpy(bytes_ + length_, datagram, length);
    bytes_[length_ + 4] = 0xff;
    return crc.update(~0u, bytes_, length_ + length);
  }

  /// The CRC register after a datagram that lies in one piece; `bytes` with its ICRC, kBthBytes + kIcrcBytes at least. Of packets that follow
  /// one of their length and BTH, but for the PSN, what is behind the BTH alone is looked at, where it lies.
  uint32_t over(const Crc& crc, const uint8_t* datagram, uint32_t bytes, uint16_t ipId) {
    if (isLikeLast(datagram, bytes)) {
      if (!hasBase_) findBase(crc, datagram, bytes);
      const auto& adds = kIcrcAdds.of;
      uint32_t state = base_ ^ adds[IcrcAdds::psnHigh][datagram[9]] ^ adds[IcrcAdds::psnMiddle][datagram[10]] ^
                       adds[IcrcAdds::psnLow][datagram[11]];
      if (!v6_) state ^= adds[IcrcAdds::idHigh][ipId >> 8] ^ adds[IcrcAdds::idLow][ipId & 0xff];
      return crc.update(state, datagram + kBthBytes, bytes - kBthBytes - kIcrcBytes);
    }
    const uint32_t covered = bytes - kIcrcBytes, first = covered <= kShort ? covered : kBthBytes;
    const uint32_t state = start(crc, bytes, ipId, datagram, first);
    return first == covered ? state : crc.update(state, datagram + first, covered - first);
  }

  bool isV6() const { return v6_; }

 private:
  /// Whether the packet has the length, the BTH but for its PSN, and the headers before it of the last one; else it is the last one from now on.
  bool isLikeLast(const uint8_t* datagram, uint32_t bytes) {
    uint64_t head;
    std::memcpy(&head, datagram, sizeof head);
    const uint8_t ackReq = datagram[8], flags = bytes_[kFlagsByte];
    if (isLastKnown_ && head == head_ && ackReq == ackReq_ && bytes == lastBytes_ && flags == flags_) return true;
    head_ = head;
    ackReq_ = ackReq;
    lastBytes_ = bytes;
    flags_ = flags;
    isLastKnown_ = true;
    hasBase_ = false;
    return false;
  }

  /// The register after the BTH of such a packet with PSN and Identification 0.
  void findBase(const Crc& crc, const uint8_t* datagram, uint32_t bytes) {
    uint8_t bth[kBthBytes];
    std::memcpy(bth, datagram, kBthBytes);
    bth[9] = bth[10] = bth[11] = 0;
    base_ = start(crc, bytes, 0, bth, kBthBytes);
    hasBase_ = true;
  }

  void put16(uint32_t at, uint32_t value) {
    bytes_[at] = static_cast<uint8_t>(value >> 8);
    bytes_[at + 1] = static_cast<uint8_t>(value);
  }

  static constexpr uint32_t kMost = 8 + 40 + 8;
  static constexpr uint32_t kFlagsByte = 8 + 6;
  static constexpr uint8_t kDontFragment = 0x40;

  bool v6_ = false;
  uint8_t length_ = 0;
  /// Of the last datagram that `over` looked at, unless the headers have changed since: see isLikeLast and findBase.
  bool isLastKnown_ = false, hasBase_ = false;
  uint8_t ackReq_ = 0, flags_ = 0;
  uint32_t lastBytes_ = 0, base_ = 0;
  uint64_t head_ = 0;
  alignas(16) uint8_t bytes_[kMost + kShort];
};

/// The ICRC as it stands in a packet: little-endian.
inline uint32_t loadIcrc(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
inline void storeIcrc(uint8_t* p, uint32_t icrc) {
  for (int i = 0; i < 4; i++) p[i] = static_cast<uint8_t>(icrc >> (8 * i));
}

/// The difference between two IPv4 Identifications that explains `difference`, the exclusive or of the
/// right ICRC and the one computed, for a datagram of `datagramBytes` (ICRC included; what is covered twice counts twice), with
/// kMayFragment where the two differ in "don't fragment", too; -1 when none does.
int32_t solveIpId(uint32_t difference, uint32_t datagramBytes);

}  // namespace roce
