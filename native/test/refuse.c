// A kernel that refuses: replaces the C library's sendmmsg (LD_PRELOAD) and fails as REFUSE asks.
// Compiled and used by refusals.test.ts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static int isRun(struct msghdr *message) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_SEGMENT) return 1;
  return 0;
}

static int fail(int errnum) {
  errno = errnum;
  return -1;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
  static int calls;
  static int (*next)(int, struct mmsghdr *, unsigned int, int);
  if (!next) next = (int (*)(int, struct mmsghdr *, unsigned int, int))dlsym(RTLD_NEXT, "sendmmsg");
  const char *refuse = getenv("REFUSE");
  if (!refuse || fd < 0) return next(fd, messages, count, flags);
  const int odd = calls++ & 1;

  if (!strncmp(refuse, "run:", 4)) {  // runs fail with that number, what stands before them goes
    for (unsigned int i = 0; i < count; i++)
      if (isRun(&messages[i].msg_hdr)) return i ? next(fd, messages, i, flags) : fail(atoi(refuse + 4));
  } else if (!strncmp(refuse, "odd:", 4)) {  // one message a call, and every second call fails with that number
    if (odd) return fail(atoi(refuse + 4));
    count = 1;
  }
  return next(fd, messages, count, flags);
}
