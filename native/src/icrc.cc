#include "icrc.h"

#include <array>

#include "gf2.h"

namespace roce {
namespace {

/// Powers of x^-8, each undoing one byte of zeroes: kUndo[n] for n < 256, kUndo256[n] for n * 256.
constexpr auto makeUndo(uint32_t step) {
  std::array<uint32_t, 258> powers{};
  powers[0] = gf2::kOne;
  for (size_t n = 1; n < powers.size(); n++) powers[n] = gf2::multiply(powers[n - 1], step);
  return powers;
}
constexpr uint32_t undoOneByte() {
  uint32_t power = gf2::kOne;
  for (int bit = 0; bit < 8; bit++) power = gf2::overX(power);
  return power;
}
constexpr auto kUndo = makeUndo(undoOneByte());
constexpr auto kUndo256 = makeUndo(kUndo[256]);

constexpr IcrcAdds makeAdds() {
  // Bytes between each of these places and the end of the BTH.
  constexpr uint32_t kBehind[] = {35, 34, 2, 1, 0};
  IcrcAdds adds{};
  for (uint32_t place = 0; place < 5; place++)
    for (uint32_t byte = 0; byte < 256; byte++) {
      uint32_t state = byte;
      for (uint32_t bit = 0; bit < 8 * (kBehind[place] + 1); bit++) state = gf2::timesX(state);
      adds.of[place][byte] = state;
    }
  return adds;
}

constexpr uint32_t kIpv4Id = 8 + 4;           // where the Identification stands in the pseudo-header
constexpr uint32_t kIpv4Pseudo = 8 + 20 + 8;  // bytes in front of the BTH

}  // namespace

constexpr IcrcAdds kIcrcAdds = makeAdds();

PseudoHeader::PseudoHeader(const Gid& source, const Gid& destination) : v6_(!isMappedV4(destination)) {
  std::memset(bytes_, 0xff, kMost);
  uint8_t* ip = bytes_ + 8;
  if (v6_) {
    ip[0] = 0x6f;  // version; traffic class, flow label and hop limit stay masked
    ip[6] = IPPROTO_UDP;
    std::memcpy(ip + 24, destination.data(), 16);
    length_ = 8 + 40 + 8;
  } else {
    ip[0] = 0x45;  // no options; type of service, time to live and checksum stay masked
    ip[6] = kDontFragment;
    ip[7] = 0;
    ip[9] = IPPROTO_UDP;
    std::memcpy(ip + 16, destination.data() + 12, 4);
    length_ = kIpv4Pseudo;
  }
  setSource(source);
}

PseudoHeader PseudoHeader::seen(const uint8_t* ip) {
  PseudoHeader header;
  header.v6_ = ip[0] >> 4 == 6;
  const uint8_t ipBytes = header.v6_ ? 40 : 20;
  header.length_ = static_cast<uint8_t>(8 + ipBytes + 8);
  uint8_t* masked = header.bytes_ + 8;
  std::memset(header.bytes_, 0xff, 8);
  std::memcpy(masked, ip, ipBytes + 8u);
  if (header.v6_) {
    masked[0] |= 0x0f;
    std::memset(masked + 1, 0xff, 3);
    masked[7] = 0xff;
  } else {
    masked[1] = masked[8] = masked[10] = masked[11] = 0xff;
  }
  masked[ipBytes + 6] = masked[ipBytes + 7] = 0xff;
  return header;
}

void PseudoHeader::setSource(const Gid& source) {
  uint8_t* const to = bytes_ + 8 + (v6_ ? 8 : 12);
  const uint8_t* const from = source.data() + (v6_ ? 0 : 12);
  const size_t length = v6_ ? 16 : 4;
  if (std::memcmp(to, from, length) == 0) return;
  std::memcpy(to, from, length);
  isLastKnown_ = false;
}

void PseudoHeader::setPorts(uint16_t source, uint16_t destination) {
  const uint8_t ports[] = {static_cast<uint8_t>(source >> 8), static_cast<uint8_t>(source),
                           static_cast<uint8_t>(destination >> 8), static_cast<uint8_t>(destination)};
  if (std::memcmp(bytes_ + length_ - 8, ports, sizeof ports) == 0) return;
  std::memcpy(bytes_ + length_ - 8, ports, sizeof ports);
  isLastKnown_ = false;
}

int32_t solveIpId(uint32_t difference, uint32_t datagramBytes) {
  // The CRC is linear: the two bytes of the Identification went into the low half of a register that
  // was zero otherwise, the byte with the flags into the next eight bits, and then they and what follows moved it on by 8 bits
  // a byte. Undo that: what is left must fit into these 17 bits, which a random difference does twice in 65,536.
  const uint32_t moved = kIpv4Pseudo - kIpv4Id + datagramBytes - kIcrcBytes;
  uint32_t start = gf2::multiply(difference, kUndo[moved & 255]);
  if (moved >= 256) start = gf2::multiply(start, kUndo256[moved >> 8]);
  const uint32_t flags = start >> 16;
  if (flags != 0 && flags != 0x40) return -1;
  return static_cast<int32_t>((flags != 0 ? kMayFragment : 0) | (start & 0xff) << 8 | (start >> 8 & 0xff));
}

}  // namespace roce
