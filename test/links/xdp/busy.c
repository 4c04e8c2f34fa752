// A kernel that is busy now and then: replaces the C library's sendto (LD_PRELOAD). Each hundredth call by which an AF_XDP socket's
// frames are handed over fails with EAGAIN, and so do the next five.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t toLength) {
  static unsigned calls, busy;
  static ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
  if (!next) next = (ssize_t(*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto");
  if (bytes || length) return next(fd, bytes, length, flags, to, toLength);
  if (busy == 0 && ++calls % 100 == 0) busy = 6;
  if (busy == 0) return next(fd, bytes, length, flags, to, toLength);
  busy--;
  errno = EAGAIN;
  return -1;
}
