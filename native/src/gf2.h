// Arithmetic in the field of the CRC-32 (the zlib and Ethernet polynomial), for folding constants and
// for undoing what bytes did to a CRC. Elements are reflected as the CRC register is: bit 31 is the
// coefficient of x^0, bit 0 that of x^31. Everything is constexpr: tables are made by the compiler.
#pragma once
#include <cstdint>

namespace roce::gf2 {

inline constexpr uint32_t kPolynomial = 0xedb8'8320u;
inline constexpr uint32_t kOne = 0x8000'0000u;

constexpr uint32_t timesX(uint32_t a) { return (a >> 1) ^ (kPolynomial & (0u - (a & 1u))); }

/// The inverse of `timesX`.
constexpr uint32_t overX(uint32_t a) {
  const uint32_t carry = a >> 31;
  return ((a ^ (kPolynomial & (0u - carry))) << 1) | carry;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 0; i < 32; i++) {
    product ^= b & (0u - (a >> 31));
    a <<= 1;
    b = timesX(b);
  }
  return product;
}

/// x^n. Slow (n steps): for the compiler.
constexpr uint32_t powerOfX(uint32_t n) {
  uint32_t power = kOne;
  for (uint32_t i = 0; i < n; i++) power = timesX(power);
  return power;
}

}  // namespace roce::gf2
