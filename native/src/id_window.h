// Which IPv4 Identifications a flow may carry now. A UDP socket can only solve for the Identification,
// and one corrupt packet in 65,536 has a solution; it counts only if it is one that was to be expected.
// docs/icrc.md has the rules and their reasons.
#pragma once
#include <cstdint>

namespace roce {

class IdWindow {
 public:
  /// How far ahead of a counter an Identification may lie.
  static constexpr uint32_t kReach = 64;
  /// How far behind: a sender with several processors numbers a packet, is held up, and others of its packets go first.
  static constexpr uint32_t kBehind = 256;
  /// Identifications of the segments of one GSO run: 0 … 127 (Linux UDP_MAX_SEGMENTS).
  static constexpr uint32_t kRun = 128;
  /// Counters a source may have at once.
  static constexpr uint32_t kCounters = 4;
  /// Strays: Identifications outside the window. More than so many in a period of milliseconds can't be corruption.
  static constexpr uint32_t kStrays = 4, kStrayPeriodMs = 60'000;
  /// How far a counter may run on, one a millisecond, between a stray and the packet that follows it.
  static constexpr uint32_t kStrayIdle = 1000;

  /// Whether a packet with that Identification counts; if so, the window moves with it. `nowMs` is any
  /// clock of milliseconds that wraps at 2^32; the packet arrived between `arrivedAfterMs` and then.
  bool admit(uint16_t id, uint32_t nowMs, uint32_t arrivedAfterMs);
  /// The Identification that the next packet will most probably have.
  uint16_t predict() const { return predicted_; }

 private:
  struct Counter {
    uint16_t last = 0;
    uint32_t movedAt = 0;
    bool live = false;
  };

  struct Stray {
    uint16_t id = 0;
    uint32_t seenAt = 0;
    bool live = false;
    bool remembered(uint32_t nowMs) const { return live && nowMs - seenAt <= kStrayPeriodMs; }
  };

  bool admitCounted(uint16_t id, uint32_t nowMs, uint32_t reach);
  bool admitBehind(uint16_t id) const;
  bool followsStray(uint16_t id, uint32_t nowMs) const;
  bool admitStray(uint16_t id, uint32_t nowMs);
  void openCounter(uint16_t id, uint32_t nowMs);
  bool good(uint16_t id, uint32_t arrivedAfterMs);

  Counter counters_[kCounters];
  /// The last strays: a ring, `nextStray_` the oldest of them.
  Stray strays_[kStrays];
  uint32_t nextStray_ = 0;
  uint32_t lastGoodMs_ = 0;
  uint16_t predicted_ = 0;
  bool anySeen_ = false;
  bool zeroSeen_ = false;
};

}  // namespace roce
