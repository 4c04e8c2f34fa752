// The words of packet batches, as packages/transport/src/batch.ts lays them out: the same numbers in
// the same order. test/layout.test.ts compares the two through the exported `layout` object.
#pragma once
#include <cstdint>

namespace roce {

/// Bytes of header room a transmit slot has.
inline constexpr uint32_t kTxHeaderStride = 64;

/// Words of a transmit slot, each an unsigned 32-bit.
namespace tx {
enum Word : uint32_t {
  headerOffset,
  headerLength,
  fragmentFirst,
  fragmentCount,
  payloadLength,
  pad,
  peer,
  trafficClass,
  sourcePort,
  qpn,
  status,
  entry,
  run,
};
inline constexpr uint32_t kSlotWords = 13;
}  // namespace tx

/// Words of a fragment: `length` bytes at a 64-bit offset of a region.
namespace fragment {
enum Word : uint32_t { region, offsetLow, offsetHigh, length };
inline constexpr uint32_t kWords = 4;
}  // namespace fragment

/// Words of a received slot.
namespace rx {
enum Word : uint32_t {
  offset,
  length,
  peer,
  local,
  trafficClass,
  hopLimit,
  verdict,
  ipId,
  sourcePort,
  stampLow,
  stampHigh,
  run,
};
inline constexpr uint32_t kSlotWords = 12;
}  // namespace rx

/// `rx::peer` of a packet from an address that is nobody's in the table of peers.
inline constexpr uint32_t kNoPeer = 0xffff'ffffu;

/// Bit of `rx::ipId`: the IPv4 header has no "don't fragment".
inline constexpr uint32_t kMayFragment = 0x1'0000;

/// Verdict of the ICRC check of a received packet.
enum class Verdict : uint32_t { ok = 0, bad = 1, outOfWindow = 2 };

/// Words of a captured frame.
namespace captured {
enum Word : uint32_t { offset, length, originalLength, seconds, nanoseconds, outgoing };
inline constexpr uint32_t kSlotWords = 6;
}  // namespace captured

/// Words of a received frame of a raw packet queue pair.
namespace frame {
enum Word : uint32_t { offset, length };
inline constexpr uint32_t kSlotWords = 2;
}  // namespace frame

/// Words of a copy from a slab into a region.
namespace copy {
enum Word : uint32_t { source, region, offsetLow, offsetHigh, length };
inline constexpr uint32_t kWords = 5;
}  // namespace copy

}  // namespace roce
