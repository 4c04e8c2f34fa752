// CRC-32 (the polynomial of zlib, Ethernet and the RoCE ICRC), in several ways.
//
// All of them work on the raw register: start with ~0, pass what comes back on to the next piece, and
// invert at the end. `zlib.crc32(bytes, seed)` is `~update(~seed, bytes)`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace roce {

/// One implementation of the CRC.
struct Crc {
  const char* name;
  /// Runs `length` bytes through the register.
  uint32_t (*update)(uint32_t state, const uint8_t* bytes, size_t length);
  /// The same, and copies the bytes. Every byte of `source` is read once: what is checksummed is what
  /// arrives in `target`, even while another thread writes to `source`.
  uint32_t (*updateCopy)(uint32_t state, uint8_t* target, const uint8_t* source, size_t length);
};

/// The implementation with that name, or nullptr when this processor cannot run it (or there is none).
const Crc* crcByName(const char* name);
/// The fastest one that this processor can run.
const Crc* crcBest();

/// `updateCopy` by an `update`, block by block, so that the second look finds the copy in the first-level cache. Blocks are a multiple of what the
/// fast ways take at once: only the last one has a rest.
template <uint32_t (*kUpdate)(uint32_t, const uint8_t*, size_t), size_t kBlock = 4096>
uint32_t copyThenUpdate(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  while (length > 0) {
    const size_t n = length < kBlock ? length : kBlock;
    std::memcpy(target, source, n);
    state = kUpdate(state, target, n);
    target += n;
    source += n;
    length -= n;
  }
  return state;
}

extern const Crc kCrcTable;  // everywhere: slicing by 8 over tables
#if defined(__x86_64__)
extern const Crc kCrcPclmul;   // PCLMULQDQ, SSE4.1
extern const Crc kCrcVpclmul;  // VPCLMULQDQ on 512 bits, AVX-512 F and VL
#elif defined(__aarch64__)
extern const Crc kCrcArm;  // the CRC32 instructions, of ARMv8.1 and of most ARMv8.0 processors
#endif

}  // namespace roce
