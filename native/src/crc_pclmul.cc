// The CRC with PCLMULQDQ: four lanes of 128 bits, then one, then the table for the last bytes.
#include "crc.h"
#include "crc_fold.h"

#if defined(__x86_64__)
namespace roce {
namespace {

ROCE_PCLMUL uint32_t update(uint32_t state, const uint8_t* p, size_t n) {
  if (n < 16) return kCrcTable.update(state, p, n);
  const __m128i by128 = fold::constants<128>();
  __m128i lane = _mm_xor_si128(fold::load(p), _mm_cvtsi32_si128(static_cast<int>(state)));
  if (n >= 128) {
    const __m128i by512 = fold::constants<512>();
    __m128i lane1 = fold::load(p + 16), lane2 = fold::load(p + 32), lane3 = fold::load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
      lane = fold::step(lane, fold::load(p), by512);
      lane1 = fold::step(lane1, fold::load(p + 16), by512);
      lane2 = fold::step(lane2, fold::load(p + 32), by512);
      lane3 = fold::step(lane3, fold::load(p + 48), by512);
    }
    lane = fold::step(fold::step(fold::step(lane, lane1, by128), lane2, by128), lane3, by128);
  } else {
    p += 16;
    n -= 16;
  }
  for (; n >= 16; p += 16, n -= 16) lane = fold::step(lane, fold::load(p), by128);
  state = fold::reduce(lane);
  return n > 0 ? kCrcTable.update(state, p, n) : state;
}

}  // namespace

const Crc kCrcPclmul{"pclmul", update, copyThenUpdate<update>};

}  // namespace roce
#endif
