// The CRC over tables ("slicing by 8", Kounavis and Berry, ISCC 2005), and the choice of an
// implementation at run time.
#include "crc.h"

#include <array>
#include <cstring>

#include "gf2.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

namespace roce {
namespace {

/// tables[k][b]: what byte b does to the register when k more bytes follow it.
constexpr auto makeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; bit++) state = gf2::timesX(state);
    tables[0][byte] = state;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (size_t k = 1; k < 8; k++) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xff];
    }
  return tables;
}

alignas(64) constexpr auto kTables = makeTables();

inline uint32_t load32(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

inline uint32_t fourBytes(uint32_t v, size_t following) {
  return kTables[following + 3][v & 0xff] ^ kTables[following + 2][v >> 8 & 0xff] ^
         kTables[following + 1][v >> 16 & 0xff] ^ kTables[following][v >> 24];
}

uint32_t update(uint32_t state, const uint8_t* bytes, size_t length) {
  for (; length >= 8; bytes += 8, length -= 8)
    state = fourBytes(load32(bytes) ^ state, 4) ^ fourBytes(load32(bytes + 4), 0);
  if (length >= 4) {
    state = fourBytes(load32(bytes) ^ state, 0);
    bytes += 4;
    length -= 4;
  }
  for (; length > 0; bytes++, length--) state = (state >> 8) ^ kTables[0][(state ^ *bytes) & 0xff];
  return state;
}

bool runsHere(const Crc& crc) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool pclmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (&crc == &kCrcPclmul) return pclmul;
  if (&crc == &kCrcVpclmul)
    return pclmul && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq");
#elif defined(__aarch64__)
  if (&crc == &kCrcArm) return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
  return &crc == &kCrcTable;
}

// Fastest first.
constexpr const Crc* kAll[] = {
#if defined(__x86_64__)
    &kCrcVpclmul, &kCrcPclmul,
#elif defined(__aarch64__)
    &kCrcArm,
#endif
    &kCrcTable};

}  // namespace

const Crc kCrcTable{"table", update, copyThenUpdate<update>};

const Crc* crcByName(const char* name) {
  for (const Crc* crc : kAll)
    if (std::strcmp(crc->name, name) == 0) return runsHere(*crc) ? crc : nullptr;
  return nullptr;
}

const Crc* crcBest() {
  for (const Crc* crc : kAll)
    if (runsHere(*crc)) return crc;
  return &kCrcTable;
}

}  // namespace roce
