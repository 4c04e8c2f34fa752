// Memory that has to stay what it is (kept.c).
#pragma once
#include <stdint.h>

// Why a range is not to be shared; NULL where it may be. For libibverbs, which finds it by its name.
const char *libroce_paths_kept(uintptr_t start, uintptr_t end);
