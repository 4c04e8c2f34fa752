// Programs of the tests end at the first thing that is wrong, and print it.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(that)                                                              \
  do {                                                                           \
    if (!(that)) {                                                               \
      printf("line %d: %s (errno %d: %s)\n", __LINE__, #that, errno, strerror(errno)); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)
