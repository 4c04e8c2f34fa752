// Which IPv4 Identifications a flow may carry now. A UDP socket can only solve for the Identification,
// and one corrupt packet in 32,768 has a solution; it counts only if it is one that was to be expected.
// docs/icrc.md has the rules and their reasons.
#pragma once
#include <cstdint>

#include "layout.h"

namespace roce {

/// The Identification that comes `count` after another one, which keeps its kMayFragment.
constexpr uint32_t ipIdAfter(uint32_t ipId, uint32_t count) { return (ipId & kMayFragment) | ((ipId + count) & 0xffff); }

class IdWindow {
 public:
  /// How far ahead of a counter an Identification may lie.
  static constexpr uint32_t kReach = 64;
  /// How far behind: a sender with several processors numbers a packet, is held up, and others of its packets go first.
  static constexpr uint32_t kBehind = 256;
  /// The same, both ways, while a source is seen to jump further: kJump[0] where it does not.
  static constexpr uint32_t kJumps = 3;
  static constexpr uint32_t kJump[kJumps] = {0, 1024, 4096};
  /// How long a source is expected to jump as it did, ms.
  static constexpr uint32_t kJumpPeriodMs = 60'000;
  /// Identifications of the segments of one GSO run: 0 … 127 (Linux UDP_MAX_SEGMENTS).
  static constexpr uint32_t kRun = 128;
  /// Counters a source may have at once.
  static constexpr uint32_t kCounters = 4;
  /// Strays: Identifications outside the window. More than so many in a period of milliseconds can't be corruption.
  static constexpr uint32_t kStrays = 4, kStrayPeriodMs = 60'000;
  /// How far a counter may run on, one a millisecond, between a stray and the packet that follows it.
  static constexpr uint32_t kStrayIdle = 1000;

  /// Whether a packet with that Identification (and kMayFragment) counts; if so, the window moves with it. `nowMs` is any
  /// clock of milliseconds that wraps at 2^32; the packet arrived between `arrivedAfterMs` and then.
  bool admit(uint32_t id, uint32_t nowMs, uint32_t arrivedAfterMs);
  /// Whether any packet has come.
  bool anySeen() const { return anySeen_; }
  /// The Identification that the next packet will most probably have, with kMayFragment.
  uint32_t predict() const { return predicted_; }
  /// The next packet will most probably have this one.
  void expect(uint32_t id) { predicted_ = id; }

 private:
  struct Counter {
    uint32_t last = 0;
    uint32_t movedAt = 0;
    bool live = false;
  };

  struct Stray {
    uint32_t id = 0;
    uint32_t seenAt = 0;
    bool live = false;
    bool remembered(uint32_t nowMs) const { return live && nowMs - seenAt <= kStrayPeriodMs; }
  };

  uint32_t jump() const { return kJump[jump_]; }
  /// How far the Identification is ahead of the counter that it moves; 0 where there is none within `reach`.
  uint32_t count(uint32_t id, uint32_t nowMs, uint32_t reach);
  /// How far the Identification is behind a counter, kNever where it is not within the window.
  uint32_t behind(uint32_t id) const;
  bool followsStray(uint32_t id, uint32_t nowMs) const;
  bool admitStray(uint32_t id, uint32_t nowMs);
  void open(uint32_t id, uint32_t nowMs);
  void openCounter(uint32_t id, uint32_t nowMs);
  void noteJump(uint32_t distance, uint32_t nowMs);
  bool good(uint32_t id, uint32_t arrivedAfterMs);

  Counter counters_[kCounters];
  /// The last strays: a ring, `nextStray_` the oldest of them.
  Stray strays_[kStrays];
  uint32_t nextStray_ = 0;
  uint32_t lastGoodMs_ = 0;
  uint32_t predicted_ = 0;
  /// Index in kJump, and when a packet last needed it.
  uint32_t jump_ = 0;
  uint32_t jumpedAt_ = 0;
  bool anySeen_ = false;
  /// A packet had Identification 0, with "don't fragment" and without.
  bool zeroSeen_ = false;
  bool mayFragmentZeroSeen_ = false;
};

}  // namespace roce
