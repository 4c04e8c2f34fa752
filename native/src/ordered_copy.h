// Copies into memory that another thread or process may poll while they are under way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace roce {

/// Stores the `Word` at the end of a stretch of `length` bytes after everything before it.
template <class Word>
inline void copyEndingIn(uint8_t* target, const uint8_t* source, size_t length) {
  typedef Word Aliasing __attribute__((may_alias));
  const size_t head = length - sizeof(Word);
  Word last;
  std::memcpy(&last, source + head, sizeof last);
  if (head > 0) std::memmove(target, source, head);
  __atomic_store_n(reinterpret_cast<Aliasing*>(target + head), last, __ATOMIC_RELEASE);
}

/// Copies at least one byte. A poller that sees the new last byte sees all of the new bytes: programs wait for the last byte of an RDMA
/// WRITE, and memmove stores the first bytes of some lengths last. The largest word of up to 8 bytes that ends the stretch and is
/// aligned to its size is stored in one piece.
inline void orderedCopy(uint8_t* target, const uint8_t* source, size_t length) {
  const uintptr_t end = reinterpret_cast<uintptr_t>(target) + length;
  if ((end & 7) == 0 && length >= 8) return copyEndingIn<uint64_t>(target, source, length);
  if ((end & 3) == 0 && length >= 4) return copyEndingIn<uint32_t>(target, source, length);
  if ((end & 1) == 0 && length >= 2) return copyEndingIn<uint16_t>(target, source, length);
  copyEndingIn<uint8_t>(target, source, length);
}

}  // namespace roce
