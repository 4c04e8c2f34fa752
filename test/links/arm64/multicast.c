// QEMU's user emulation (7.2) knows no IP_MULTICAST_IF, and without it no socket opens: loaded before the C library of the emulated
// program (LD_PRELOAD), it takes the option and does nothing. Compiled by arm64.test.ts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

int setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
  static int (*next)(int, int, int, const void *, socklen_t);
  if (!next) next = (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
  if (level == IPPROTO_IP && option == IP_MULTICAST_IF) return 0;
  return next(fd, level, option, value, length);
}
