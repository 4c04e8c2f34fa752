// Which IPv4 Identifications a flow may carry now. A UDP socket can only solve for the Identification,
// and one corrupt packet in 65,536 has a solution; it counts only if it is one that was to be expected.
// docs/icrc.md has the rules and their reasons.
#pragma once
#include <cstdint>

namespace roce {

class IdWindow {
 public:
  /// How far ahead of a counter, and behind it, an Identification may lie.
  static constexpr uint32_t kReach = 64;
  /// Identifications of the segments of one GSO run: 0 … 127 (Linux UDP_MAX_SEGMENTS).
  static constexpr uint32_t kRun = 128;
  /// Counters a source may have at once.
  static constexpr uint32_t kCounters = 4;
  /// Identifications outside the window, in one period of milliseconds, that corruption can't explain.
  static constexpr uint32_t kStrays = 16, kStrayPeriodMs = 1000;

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

  bool admitCounted(uint16_t id, uint32_t nowMs, uint32_t reach);
  bool admitBehind(uint16_t id) const;
  void openCounter(uint16_t id, uint32_t nowMs);
  bool good(uint16_t id, uint32_t arrivedAfterMs);
  bool tooManyStrays(uint32_t nowMs);

  Counter counters_[kCounters];
  uint32_t lastGoodMs_ = 0;
  uint16_t predicted_ = 0;
  uint16_t stray_ = 0;
  uint32_t strays_ = 0;
  uint32_t straysSinceMs_ = 0;
  bool strayKnown_ = false;
  bool anySeen_ = false;
  bool zeroSeen_ = false;
};

}  // namespace roce
