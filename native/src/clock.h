// The kernel's coarse clock: of the resolution of a timer tick, and cheap.
#pragma once
#include <time.h>

#include <cstdint>

namespace roce {

/// CLOCK_MONOTONIC_COARSE in milliseconds; wraps around.
inline uint32_t coarseMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint32_t>(uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1'000'000);
}

}  // namespace roce
