// For the prebuilt libibverbs.so.1: stat and fstat are functions of the C library since glibc 2.33. The functions behind them are older.
#include <sys/stat.h>

#if defined(__x86_64__)
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define STAT_VERSION 0
#endif

int __xstat(int version, const char* path, struct stat* to);
int __fxstat(int version, int fd, struct stat* to);

int stat(const char* restrict path, struct stat* restrict to) { return __xstat(STAT_VERSION, path, to); }

int fstat(int fd, struct stat* to) { return __fxstat(STAT_VERSION, fd, to); }
