#include "id_window.h"

#include <algorithm>

namespace roce {

bool IdWindow::admit(uint16_t id, uint32_t nowMs, uint32_t arrivedAfterMs) {
  if (!anySeen_) {
    // The first packet of a flow sets the window: nothing is known that could refuse it.
    if (id == 0)
      zeroSeen_ = true;
    else
      openCounter(id, nowMs);
    return good(id, arrivedAfterMs);
  }

  if (admitCounted(id, nowMs, kReach)) return good(id, arrivedAfterMs);

  // Linux sends Identification 0 with "don't fragment" (RFC 6864: it then means nothing), and counts
  // from 0 within a GSO run that is cut in software. Neither shows a counter's value.
  if (id == 0) zeroSeen_ = true;
  if (zeroSeen_ && id < kRun) return good(id, arrivedAfterMs);

  // While a flow is idle its counter runs on: Linux (ip_idents_reserve) adds up to one a jiffy.
  const uint32_t idleMs = nowMs - lastGoodMs_;
  const uint32_t reach = std::min<uint32_t>(kReach + std::min<uint32_t>(idleMs, 0xffff), 0xffff);
  if (admitCounted(id, nowMs, reach)) return good(id, arrivedAfterMs);

  // Late ones, overtaken by others on their way, move nothing.
  if (admitBehind(id)) return true;

  // Two that agree: the source restarted, or has a counter that we did not know. Others may have come in between, from
  // somebody who forges them; he can't make us forget the source's, because before that the window opens.
  if (followsStray(id, nowMs)) {
    openCounter(id, nowMs);
    return good(id, arrivedAfterMs);
  }
  return admitStray(id, nowMs);
}

bool IdWindow::followsStray(uint16_t id, uint32_t nowMs) const {
  return std::any_of(strays_, strays_ + kStrays, [id, nowMs](const Stray& stray) {
    const uint16_t ahead = static_cast<uint16_t>(id - stray.id);
    const uint32_t reach = kReach + std::min(nowMs - stray.seenAt, kStrayIdle);
    return stray.remembered(nowMs) && ahead >= 1 && ahead <= reach;
  });
}

bool IdWindow::admitStray(uint16_t id, uint32_t nowMs) {
  // One corrupt packet in 65,536 is a stray: so many in a minute are whole packets. Somebody sends them under this
  // source's address, or it counts in a way that we can't follow. The window, which is there against corruption, would
  // only take the source's own packets away; so it stands open until the strays have become few. No flow loses more
  // than kStrays packets in a period, fewer than the tries that a requester has (retry_cnt 7).
  Stray& oldest = strays_[nextStray_];
  const bool open = oldest.remembered(nowMs);
  oldest = {id, nowMs, true};
  nextStray_ = (nextStray_ + 1) % kStrays;
  return open;
}

bool IdWindow::admitCounted(uint16_t id, uint32_t nowMs, uint32_t reach) {
  for (Counter& counter : counters_) {
    const uint16_t ahead = static_cast<uint16_t>(id - counter.last);
    if (!counter.live || ahead == 0 || ahead > reach) continue;
    counter.last = id;
    counter.movedAt = nowMs;
    return true;
  }
  return false;
}

bool IdWindow::admitBehind(uint16_t id) const {
  return std::any_of(counters_, counters_ + kCounters, [id](const Counter& counter) {
    return counter.live && static_cast<uint16_t>(counter.last - id) <= kBehind;
  });
}

void IdWindow::openCounter(uint16_t id, uint32_t nowMs) {
  // A free one, else the one that has not moved for longest.
  Counter* oldest = counters_;
  for (Counter& counter : counters_) {
    if (!oldest->live) break;
    if (!counter.live || nowMs - counter.movedAt > nowMs - oldest->movedAt) oldest = &counter;
  }
  *oldest = {id, nowMs, true};
}

bool IdWindow::good(uint16_t id, uint32_t arrivedAfterMs) {
  anySeen_ = true;
  // Not when we looked at it: a thread that was held up looks at an old packet, and the next one may
  // have been sent long after it.
  lastGoodMs_ = arrivedAfterMs;
  predicted_ = id == 0 ? 0 : static_cast<uint16_t>(id + 1);
  return true;
}

}  // namespace roce
