// For prebuilt libraries (build.mjs --prebuilt): asks the C library for the first versions of functions whose newest version is
// newer than glibc 2.28. test/installed.test.ts holds the result to 2.28.
#pragma once

#if defined(__x86_64__)
#define ROCE_FIRST "GLIBC_2.2.5"
#define ROCE_FIRST_BARRIER "GLIBC_2.3.3"
#define ROCE_FIRST_PROTOCOL "GLIBC_2.4"
#elif defined(__aarch64__)
#define ROCE_FIRST "GLIBC_2.17"
#define ROCE_FIRST_BARRIER ROCE_FIRST
#define ROCE_FIRST_PROTOCOL ROCE_FIRST
#endif

#define ROCE_VERSION(name, version) __asm__(".symver " #name ", " #name "@" version)
ROCE_VERSION(dlsym, ROCE_FIRST);
ROCE_VERSION(dlvsym, ROCE_FIRST);
ROCE_VERSION(pthread_barrierattr_getpshared, ROCE_FIRST_BARRIER);
ROCE_VERSION(pthread_condattr_getpshared, ROCE_FIRST);
ROCE_VERSION(pthread_mutexattr_destroy, ROCE_FIRST);
ROCE_VERSION(pthread_mutexattr_getprotocol, ROCE_FIRST_PROTOCOL);
ROCE_VERSION(pthread_mutexattr_getpshared, ROCE_FIRST);
ROCE_VERSION(pthread_mutexattr_init, ROCE_FIRST);
ROCE_VERSION(pthread_mutexattr_settype, ROCE_FIRST);
ROCE_VERSION(pthread_rwlockattr_getpshared, ROCE_FIRST);
ROCE_VERSION(pthread_sigmask, ROCE_FIRST);
