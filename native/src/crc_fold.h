// Carry-less folding of 128-bit lanes for the reflected CRC-32 (Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009): shared by the 128- and 512-bit versions.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "gf2.h"

#define ROCE_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define ROCE_PCLMUL_INLINE ROCE_PCLMUL __attribute__((always_inline)) inline

namespace roce::fold {

/// x^n as a factor of a reflected carry-less product, whose result is one bit off (hence the shift).
constexpr int64_t factor(uint32_t n) { return int64_t{gf2::powerOfX(n)} << 1; }

/// Moves a lane `kBits` further: the low half passes 32 bits more than kBits, the high half 32 less.
template <uint32_t kBits>
ROCE_PCLMUL_INLINE __m128i constants() {
  constexpr int64_t low = factor(kBits + 32), high = factor(kBits - 32);
  return _mm_set_epi64x(high, low);
}

ROCE_PCLMUL_INLINE __m128i load(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

/// `lane` moved by the constants' distance, plus `next`.
ROCE_PCLMUL_INLINE __m128i step(__m128i lane, __m128i next, __m128i k) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(lane, k, 0x00), _mm_clmulepi64_si128(lane, k, 0x11)), next);
}

/// 128 bits down to the 32-bit register: fold to 64, then to 32, then Barrett's reduction.
ROCE_PCLMUL_INLINE uint32_t reduce(__m128i lane) {
  constexpr int64_t x96 = factor(96), x64 = factor(64);
  constexpr int64_t polynomial = int64_t{gf2::kPolynomial} << 1 | 1;
  constexpr int64_t quotient = 0x1'f701'1641;  // floor(x^64 / P), reflected
  const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0);

  const __m128i by96 = _mm_clmulepi64_si128(lane, _mm_cvtsi64_si128(x96), 0x00);
  const __m128i bits96 = _mm_xor_si128(_mm_srli_si128(lane, 8), by96);
  const __m128i by64 = _mm_clmulepi64_si128(_mm_and_si128(bits96, low32), _mm_cvtsi64_si128(x64), 0x00);
  const __m128i bits64 = _mm_xor_si128(_mm_srli_si128(bits96, 4), by64);

  const __m128i times =
      _mm_clmulepi64_si128(_mm_and_si128(bits64, low32), _mm_cvtsi64_si128(quotient), 0x00);
  const __m128i whole =
      _mm_clmulepi64_si128(_mm_and_si128(times, low32), _mm_cvtsi64_si128(polynomial), 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(bits64, whole), 1));
}

}  // namespace roce::fold
#endif
