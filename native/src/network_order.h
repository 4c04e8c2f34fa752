// Numbers in network byte order.
#pragma once
#include <cstdint>

namespace roce {

inline uint32_t get16(const uint8_t* bytes) { return uint32_t{bytes[0]} << 8 | bytes[1]; }

inline void put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

}  // namespace roce
