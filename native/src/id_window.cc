#include "id_window.h"

#include <algorithm>

namespace roce {
namespace {

/// More than any distance between two Identifications.
constexpr uint32_t kNever = 0x1'0000;

/// How far an Identification is ahead of another one, if both headers have "don't fragment" or neither.
uint32_t aheadOf(uint32_t id, uint32_t other) {
  return ((id ^ other) & kMayFragment) != 0 ? kNever : (id - other) & 0xffff;
}

}  // namespace

bool IdWindow::admit(uint32_t id, uint32_t nowMs, uint32_t arrivedAfterMs) {
  if (!anySeen_) {
    // The first packet of a flow sets the window: nothing is known that could refuse it.
    open(id, nowMs);
    return good(id, arrivedAfterMs);
  }

  if (jump_ != 0 && nowMs - jumpedAt_ > kJumpPeriodMs) jump_ = 0;
  if (const uint32_t ahead = count(id, nowMs, std::max(kReach, jump())); ahead != 0) {
    if (ahead > kReach) noteJump(ahead, nowMs);
    return good(id, arrivedAfterMs);
  }

  // Linux sends Identification 0 with "don't fragment" (RFC 6864: it then means nothing), and counts
  // from 0 within a GSO run that is cut in software. Neither shows a counter's value.
  if (id == 0) zeroSeen_ = true;
  if (zeroSeen_ && id < kRun) return good(id, arrivedAfterMs);
  // Simple devices send nothing else.
  if (mayFragmentZeroSeen_ && id == kMayFragment) return good(id, arrivedAfterMs);

  // While a flow is idle its counter runs on: Linux (ip_idents_reserve) adds up to one a jiffy.
  const uint32_t idleMs = nowMs - lastGoodMs_;
  const uint32_t reach = std::min<uint32_t>(kReach + std::min<uint32_t>(idleMs, 0xffff), 0xffff);
  if (count(id, nowMs, reach) != 0) return good(id, arrivedAfterMs);

  // Late ones, overtaken by others on their way, move nothing.
  if (const uint32_t distance = behind(id); distance != kNever) {
    if (distance > kBehind / 2) noteJump(distance, nowMs);
    return true;
  }

  // Two that agree: the source restarted, or has a counter that we did not know. Others may have come in between, from
  // somebody who forges them; he can't make us forget the source's, because before that the window opens.
  if (followsStray(id, nowMs)) {
    open(id, nowMs);
    return good(id, arrivedAfterMs);
  }
  return admitStray(id, nowMs);
}

bool IdWindow::followsStray(uint32_t id, uint32_t nowMs) const {
  return std::any_of(strays_, strays_ + kStrays, [id, nowMs](const Stray& stray) {
    const uint32_t ahead = aheadOf(id, stray.id);
    const uint32_t reach = kReach + std::min(nowMs - stray.seenAt, kStrayIdle);
    // Without "don't fragment", 0 after 0 is a source that does not count.
    return stray.remembered(nowMs) && ahead <= reach && (ahead >= 1 || id == kMayFragment);
  });
}

bool IdWindow::admitStray(uint32_t id, uint32_t nowMs) {
  // Close to a counter, it shows that the source's packets overtake each other by more than was known.
  for (const Counter& counter : counters_) {
    if (!counter.live) continue;
    const uint32_t distance = std::min(aheadOf(id, counter.last), aheadOf(counter.last, id));
    if (distance <= kJump[kJumps - 1]) noteJump(distance, nowMs);
  }
  // One corrupt packet in 32,768 is a stray: so many in a minute are whole packets. Somebody sends them under this
  // source's address, or it counts in a way that we can't follow. The window, which is there against corruption, would
  // only take the source's own packets away; so it stands open until the strays have become few. No flow loses more
  // than kStrays packets in a period, fewer than the tries that a requester has (retry_cnt 7).
  Stray& oldest = strays_[nextStray_];
  const bool open = oldest.remembered(nowMs);
  oldest = {id, nowMs, true};
  nextStray_ = (nextStray_ + 1) % kStrays;
  return open;
}

uint32_t IdWindow::count(uint32_t id, uint32_t nowMs, uint32_t reach) {
  for (Counter& counter : counters_) {
    const uint32_t ahead = aheadOf(id, counter.last);
    if (!counter.live || ahead == 0 || ahead > reach) continue;
    counter.last = id;
    counter.movedAt = nowMs;
    return ahead;
  }
  return 0;
}

uint32_t IdWindow::behind(uint32_t id) const {
  uint32_t least = kNever;
  for (const Counter& counter : counters_)
    if (counter.live) least = std::min(least, aheadOf(counter.last, id));
  return least <= std::max(kBehind, jump()) ? least : kNever;
}

void IdWindow::noteJump(uint32_t distance, uint32_t nowMs) {
  // Twice as much as was seen, so that the next one, if it is larger, is not lost.
  uint32_t needed = 0;
  while (needed < kJumps - 1 && std::max(kBehind, kJump[needed]) < 2 * distance) needed++;
  if (needed == 0 || needed < jump_) return;
  jump_ = needed;
  jumpedAt_ = nowMs;
}

void IdWindow::open(uint32_t id, uint32_t nowMs) {
  if (id == 0)
    zeroSeen_ = true;
  else if (id == kMayFragment)
    mayFragmentZeroSeen_ = true;
  else
    openCounter(id, nowMs);
}

void IdWindow::openCounter(uint32_t id, uint32_t nowMs) {
  // A free one, else the one that has not moved for longest.
  Counter* oldest = counters_;
  for (Counter& counter : counters_) {
    if (!oldest->live) break;
    if (!counter.live || nowMs - counter.movedAt > nowMs - oldest->movedAt) oldest = &counter;
  }
  *oldest = {id, nowMs, true};
}

bool IdWindow::good(uint32_t id, uint32_t arrivedAfterMs) {
  anySeen_ = true;
  // Not when we looked at it: a thread that was held up looks at an old packet, and the next one may
  // have been sent long after it.
  lastGoodMs_ = arrivedAfterMs;
  predicted_ = (id & 0xffff) == 0 ? id : ipIdAfter(id, 1);
  return true;
}

}  // namespace roce
