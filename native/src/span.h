// Stretches of memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace roce {

/// The memory under a typed array. Good until JavaScript runs again: it may detach or shrink it.
template <class Element>
struct Span {
  Element* data = nullptr;
  size_t length = 0;
};
using Bytes = Span<uint8_t>;
using Words = Span<uint32_t>;
using Doubles = Span<double>;

}  // namespace roce
