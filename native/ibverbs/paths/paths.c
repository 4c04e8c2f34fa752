// Programs that look for RDMA devices under /sys and /dev themselves find the one of `roce device`: this library, preloaded, sends
// three folders to the files that the device wrote next to its socket (packages/device/src/system-files.ts). Every other path is the
// machine's, and nothing is changed there.
//
// Functions of libc that take a path have wrappers here; docs/run.md names those that have none. Reads of an open folder or file are
// libc's own. One of the files answers itself: /dev/infiniband/rdma_cm (ucma.c). At the end is one that takes none, and is here since programs reach only preloaded libraries before libc: shmget.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ucma.h"

static const char *const places[] = {"/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/misc/rdma_cm", "/dev/infiniband"};

// Whether a path is one of the places, or below.
static int is_shown(const char *path) {
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    size_t length = strlen(places[i]);
    if (strncmp(path, places[i], length) == 0 && (path[length] == '/' || path[length] == '\0')) return 1;
  }
  return 0;
}

// The folder of the device's files; 0 where there is none.
static int folder(char room[PATH_MAX]) {
  const char *socket = getenv("ROCE_SOCKET");
  return socket != NULL && snprintf(room, PATH_MAX, "%s.root", socket) < PATH_MAX;
}

// The path to ask for in place of another.
static const char *real(const char *path, char room[PATH_MAX]) {
  size_t length;
  if (path == NULL || path[0] != '/' || !is_shown(path) || !folder(room)) return path;
  length = strlen(room);
  if (strlen(path) >= PATH_MAX - length) return path;
  strcpy(room + length, path);
  return room;
}

// libc's function of a name. Threads that are here at once find the same.
#define NEXT(type, name, ...)                                               \
  static type (*next)(__VA_ARGS__);                                         \
  char room[PATH_MAX];                                                      \
  if (next == NULL) next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);   \
  if (next == NULL) return errno = ENOSYS, (type)-1

// The same for functions that take no path.
#define NEXT_DESCRIPTOR(name, ...)                                       \
  static int (*next)(__VA_ARGS__);                                       \
  if (next == NULL) next = (int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name); \
  if (next == NULL) return errno = ENOSYS, -1

#define HAS_MODE(flags) (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE)
#define GET_MODE(flags, mode)            \
  mode_t mode = 0;                       \
  if (HAS_MODE(flags)) {                 \
    va_list rest;                        \
    va_start(rest, flags);               \
    mode = va_arg(rest, mode_t);         \
    va_end(rest);                        \
  }

// Whether it is the device of the connection manager.
static int is_ucma(const char *path) { return path != NULL && strcmp(path, ROCE_UCMA_PATH) == 0; }

#define OPEN(name)                                        \
  int name(const char *path, int flags, ...) {            \
    NEXT(int, name, const char *, int, ...);              \
    GET_MODE(flags, mode)                                 \
    if (is_ucma(path)) return roce_ucma_open(flags);      \
    return next(real(path, room), flags, mode);           \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                              \
  int name(int at, const char *path, int flags, ...) {            \
    NEXT(int, name, int, const char *, int, ...);                 \
    GET_MODE(flags, mode)                                         \
    if (is_ucma(path)) return roce_ucma_open(flags);              \
    return next(at, real(path, room), flags, mode);               \
  }
OPENAT(openat)
OPENAT(openat64)

// Of programs that were compiled with _FORTIFY_SOURCE.
#define OPEN_2(name)                                  \
  int name(const char *path, int flags);              \
  int name(const char *path, int flags) {             \
    NEXT(int, name, const char *, int);               \
    if (is_ucma(path)) return roce_ucma_open(flags);  \
    return next(real(path, room), flags);             \
  }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                        \
  int name(int at, const char *path, int flags);              \
  int name(int at, const char *path, int flags) {             \
    NEXT(int, name, int, const char *, int);                  \
    if (is_ucma(path)) return roce_ucma_open(flags);          \
    return next(at, real(path, room), flags);                 \
  }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

// Functions with a pointer for a result: NULL where libc lacks them.
#define NEXT_POINTER(type, name, ...)                                       \
  static type (*next)(__VA_ARGS__);                                         \
  char room[PATH_MAX];                                                      \
  if (next == NULL) next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);   \
  if (next == NULL) return errno = ENOSYS, (type)0

#define FOPEN(name)                                       \
  FILE *name(const char *path, const char *mode) {        \
    NEXT_POINTER(FILE *, name, const char *, const char *); \
    return next(real(path, room), mode);                  \
  }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
  NEXT_POINTER(DIR *, opendir, const char *);
  return next(real(path, room));
}

int scandir(const char *path, struct dirent ***to, int (*keep)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **)) {
  NEXT(int, scandir, const char *, struct dirent ***, int (*)(const struct dirent *),
       int (*)(const struct dirent **, const struct dirent **));
  return next(real(path, room), to, keep, compare);
}

int scandir64(const char *path, struct dirent64 ***to, int (*keep)(const struct dirent64 *),
              int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
  NEXT(int, scandir64, const char *, struct dirent64 ***, int (*)(const struct dirent64 *),
       int (*)(const struct dirent64 **, const struct dirent64 **));
  return next(real(path, room), to, keep, compare);
}

#define STAT(name, kind)                                  \
  int name(const char *path, struct kind *to) {           \
    NEXT(int, name, const char *, struct kind *);         \
    return next(real(path, room), to);                    \
  }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define FSTATAT(name, kind)                                         \
  int name(int at, const char *path, struct kind *to, int flags) {  \
    NEXT(int, name, int, const char *, struct kind *, int);         \
    return next(at, real(path, room), to, flags);                   \
  }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

// Of a descriptor: it may be the connection manager's.
#define FSTAT(name, kind)                                                     \
  int name(int fd, struct kind *to) {                                         \
    int result;                                                               \
    NEXT_DESCRIPTOR(name, int, struct kind *);                                \
    result = next(fd, to);                                                    \
    if (result == 0) roce_ucma_stat(fd, &to->st_mode, &to->st_rdev);          \
    return result;                                                            \
  }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

#define FXSTAT(name, kind)                                                    \
  int name(int version, int fd, struct kind *to);                             \
  int name(int version, int fd, struct kind *to) {                            \
    int result;                                                               \
    NEXT_DESCRIPTOR(name, int, int, struct kind *);                           \
    result = next(version, fd, to);                                           \
    if (result == 0) roce_ucma_stat(fd, &to->st_mode, &to->st_rdev);          \
    return result;                                                            \
  }
FXSTAT(__fxstat, stat)
FXSTAT(__fxstat64, stat64)

int statx(int at, const char *path, int flags, unsigned mask, struct statx *to) {
  NEXT(int, statx, int, const char *, int, unsigned, struct statx *);
  return next(at, real(path, room), flags, mask, to);
}

// Of programs that were linked with a glibc before 2.33.
#define XSTAT(name, kind)                                         \
  int name(int version, const char *path, struct kind *to);       \
  int name(int version, const char *path, struct kind *to) {      \
    NEXT(int, name, int, const char *, struct kind *);            \
    return next(version, real(path, room), to);                   \
  }
XSTAT(__xstat, stat)
XSTAT(__lxstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat64, stat64)

#define FXSTATAT(name, kind)                                                      \
  int name(int version, int at, const char *path, struct kind *to, int flags);    \
  int name(int version, int at, const char *path, struct kind *to, int flags) {   \
    NEXT(int, name, int, int, const char *, struct kind *, int);                  \
    return next(version, at, real(path, room), to, flags);                        \
  }
FXSTATAT(__fxstatat, stat)
FXSTATAT(__fxstatat64, stat64)

int access(const char *path, int mode) {
  NEXT(int, access, const char *, int);
  return next(real(path, room), mode);
}

int faccessat(int at, const char *path, int mode, int flags) {
  NEXT(int, faccessat, int, const char *, int, int);
  return next(at, real(path, room), mode, flags);
}

ssize_t readlink(const char *path, char *to, size_t size) {
  NEXT(ssize_t, readlink, const char *, char *, size_t);
  return next(real(path, room), to, size);
}

ssize_t readlinkat(int at, const char *path, char *to, size_t size) {
  NEXT(ssize_t, readlinkat, int, const char *, char *, size_t);
  return next(at, real(path, room), to, size);
}

ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t has);
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t has) {
  if (size > has) abort();
  return readlink(path, to, size);
}

ssize_t __readlinkat_chk(int at, const char *path, char *to, size_t size, size_t has);
ssize_t __readlinkat_chk(int at, const char *path, char *to, size_t size, size_t has) {
  if (size > has) abort();
  return readlinkat(at, path, to, size);
}

// The answer is a path that the program may ask for: that of the place, not of our folder.
char *realpath(const char *path, char *to) {
  char own[PATH_MAX];
  char *found;
  size_t length;
  NEXT_POINTER(char *, realpath, const char *, char *);
  found = next(real(path, room), to);
  if (found == NULL || !folder(own)) return found;
  // The folder's own path may have links, too.
  if (next(own, room) == NULL) return found;
  length = strlen(room);
  if (strncmp(found, room, length) == 0 && is_shown(found + length))
    memmove(found, found + length, strlen(found + length) + 1);
  return found;
}

char *__realpath_chk(const char *path, char *to, size_t has);
char *__realpath_chk(const char *path, char *to, size_t has) {
  if (to != NULL && has < PATH_MAX) abort();
  return realpath(path, to);
}

char *canonicalize_file_name(const char *path) { return realpath(path, NULL); }

// Segments in huge pages can't be registered, and libraries that get one don't try other memory: there are none, as on a machine
// without such pages. One with a key may be of another process, too.
int shmget(key_t key, size_t size, int flags) {
  static int (*next)(key_t, size_t, int);
  if (key == IPC_PRIVATE && (flags & SHM_HUGETLB) != 0) return errno = ENOMEM, -1;
  if (next == NULL) next = (int (*)(key_t, size_t, int))dlsym(RTLD_NEXT, "shmget");
  if (next == NULL) return errno = ENOSYS, -1;
  return next(key, size, flags);
}
