// Included by all of both libraries: what glibc has under a version newer than 2.28 is asked for by its first one, as programs may run on an
// older glibc than that of the build. There these are in libdl and libpthread, which both libraries therefore need by name (build.mjs).
#pragma once
#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__aarch64__)
#define ROCE_GLIBC(name, version) __asm__(".symver " #name ", " #name "@GLIBC_2.17")
#else
#define ROCE_GLIBC(name, version) __asm__(".symver " #name ", " #name "@GLIBC_" version)
#endif
ROCE_GLIBC(dlsym, "2.2.5");
ROCE_GLIBC(dlvsym, "2.2.5");
ROCE_GLIBC(pthread_sigmask, "2.2.5");
ROCE_GLIBC(pthread_mutexattr_init, "2.2.5");
ROCE_GLIBC(pthread_mutexattr_destroy, "2.2.5");
ROCE_GLIBC(pthread_mutexattr_settype, "2.2.5");
ROCE_GLIBC(pthread_mutexattr_getpshared, "2.2.5");
ROCE_GLIBC(pthread_mutexattr_getprotocol, "2.4");
ROCE_GLIBC(pthread_condattr_getpshared, "2.2.5");
ROCE_GLIBC(pthread_rwlockattr_getpshared, "2.2.5");
ROCE_GLIBC(pthread_barrierattr_getpshared, "2.3.3");
#endif
