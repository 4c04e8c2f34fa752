// The CRC with VPCLMULQDQ on 512-bit registers: four registers of four lanes, 256 bytes a turn. The
// copying version stores what it has loaded before it folds it: one read of every byte.
#include "crc.h"
#include "crc_fold.h"

#if defined(__x86_64__)
#include <cstring>

// GCC 12's own AVX-512 header initialises "undefined" vectors with themselves (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define ROCE_VPCLMUL __attribute__((target("pclmul,sse4.1,avx512f,avx512vl,vpclmulqdq")))
#define ROCE_VPCLMUL_INLINE ROCE_VPCLMUL __attribute__((always_inline)) inline

namespace roce {
namespace {

/// Below this the narrow version is as fast.
constexpr size_t kLeast = 256;

template <uint32_t kBits>
ROCE_VPCLMUL_INLINE __m512i constants() {
  return _mm512_broadcast_i32x4(fold::constants<kBits>());
}

ROCE_VPCLMUL_INLINE __m512i step(__m512i lanes, __m512i next, __m512i k) {
  constexpr int kXor3 = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, k, 0x00),
                                   _mm512_clmulepi64_epi128(lanes, k, 0x11), next, kXor3);
}

/// Where bytes come from, and, when kCopy, go to.
template <bool kCopy>
struct Cursor {
  const uint8_t* source;
  uint8_t* target;
  size_t left;

  ROCE_VPCLMUL_INLINE __m512i load64(size_t at) const {
    const __m512i bytes = _mm512_loadu_si512(source + at);
    if constexpr (kCopy) _mm512_storeu_si512(target + at, bytes);
    return bytes;
  }
  ROCE_VPCLMUL_INLINE void advance(size_t n) {
    source += n;
    if constexpr (kCopy) target += n;
    left -= n;
  }
};

template <bool kCopy>
ROCE_VPCLMUL_INLINE uint32_t run(uint32_t state, Cursor<kCopy> at) {
  const __m512i by2048 = constants<2048>(), by512 = constants<512>();
  const __m512i seed = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
  __m512i a = _mm512_xor_si512(at.load64(0), seed), b = at.load64(64), c = at.load64(128), d = at.load64(192);
  for (at.advance(256); at.left >= 256; at.advance(256)) {
    a = step(a, at.load64(0), by2048);
    b = step(b, at.load64(64), by2048);
    c = step(c, at.load64(128), by2048);
    d = step(d, at.load64(192), by2048);
  }
  __m512i lanes = step(step(step(a, b, by512), c, by512), d, by512);
  for (; at.left >= 64; at.advance(64)) lanes = step(lanes, at.load64(0), by512);

  const __m128i by128 = fold::constants<128>();
  __m128i lane = _mm512_extracti32x4_epi32(lanes, 0);
  lane = fold::step(lane, _mm512_extracti32x4_epi32(lanes, 1), by128);
  lane = fold::step(lane, _mm512_extracti32x4_epi32(lanes, 2), by128);
  lane = fold::step(lane, _mm512_extracti32x4_epi32(lanes, 3), by128);

  const uint8_t* rest = at.source;
  size_t n = at.left;
  if constexpr (kCopy) {
    std::memcpy(at.target, at.source, n);
    rest = at.target;
  }
  for (; n >= 16; rest += 16, n -= 16) lane = fold::step(lane, fold::load(rest), by128);
  state = fold::reduce(lane);
  return n > 0 ? kCrcTable.update(state, rest, n) : state;
}

ROCE_VPCLMUL uint32_t update(uint32_t state, const uint8_t* bytes, size_t length) {
  if (length < kLeast) return kCrcPclmul.update(state, bytes, length);
  return run(state, Cursor<false>{bytes, nullptr, length});
}

ROCE_VPCLMUL uint32_t updateCopy(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  if (length < kLeast) return kCrcPclmul.updateCopy(state, target, source, length);
  return run(state, Cursor<true>{source, target, length});
}

}  // namespace

const Crc kCrcVpclmul{"vpclmul", update, updateCopy};

}  // namespace roce
#endif
