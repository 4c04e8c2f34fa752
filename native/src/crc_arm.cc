// The CRC with the CRC32 instructions of arm64, which are of this very polynomial: eight bytes an instruction. One depends on the one
// before, so three run side by side over a third of a block each, and tables put the parts together.
#include "crc.h"

#if defined(__aarch64__)
#include <arm_acle.h>

#include <array>
#include <cstring>

#include "gf2.h"

#define ROCE_CRC32 __attribute__((target("arch=armv8-a+crc")))

namespace roce {
namespace {

/// Bytes of each of the three parts of a block.
constexpr size_t kPart = 168;

/// The register after kPart bytes of zeroes, by each byte of the register before them.
constexpr auto makeSkip() {
  std::array<std::array<uint32_t, 256>, 4> tables{};
  const uint32_t power = gf2::powerOfX(8 * kPart);
  for (uint32_t place = 0; place < 4; place++)
    for (uint32_t byte = 0; byte < 256; byte++) tables[place][byte] = gf2::multiply(byte << (8 * place), power);
  return tables;
}
alignas(64) constexpr auto kSkip = makeSkip();

inline uint32_t skipPart(uint32_t state) {
  return kSkip[0][state & 0xff] ^ kSkip[1][state >> 8 & 0xff] ^ kSkip[2][state >> 16 & 0xff] ^ kSkip[3][state >> 24];
}

inline uint64_t load64(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

ROCE_CRC32 uint32_t update(uint32_t state, const uint8_t* p, size_t n) {
  for (; n >= 3 * kPart; p += 3 * kPart, n -= 3 * kPart) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < kPart; i += 8) {
      state = __crc32d(state, load64(p + i));
      second = __crc32d(second, load64(p + kPart + i));
      third = __crc32d(third, load64(p + 2 * kPart + i));
    }
    state = skipPart(skipPart(state) ^ second) ^ third;
  }
  for (; n >= 8; p += 8, n -= 8) state = __crc32d(state, load64(p));
  if ((n & 4) != 0) {
    uint32_t word;
    std::memcpy(&word, p, sizeof word);
    state = __crc32w(state, word);
    p += 4;
  }
  if ((n & 2) != 0) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    state = __crc32h(state, half);
    p += 2;
  }
  return (n & 1) != 0 ? __crc32b(state, *p) : state;
}

}  // namespace

const Crc kCrcArm{"arm", update, copyThenUpdate<update, 8 * 3 * kPart>};

}  // namespace roce
#endif
