// UDP features of this kernel, found out by trying.
#pragma once
#include <cstdint>

namespace roce {

struct Features {
  bool gso = false;
  /// Segments that one GSO message may have: 128 since Linux 6.9 or so, 64 before; 1 without GSO.
  uint32_t gsoMaxSegments = 1;
  bool gro = false;
  bool sendmmsg = false;
};

Features probeFeatures();

}  // namespace roce
