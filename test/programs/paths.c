// Asks libc for a path in every way there is, and prints a line for each that fails. Compiled with and without _FORTIFY_SOURCE.
//
//   paths FOLDER FILE TEXT   FOLDER has FILE, which begins with TEXT
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (void)printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)))

static const char *text;

static int begins(int fd) {
  char bytes[64] = {0};
  ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
  if (fd >= 0) close(fd);
  return n >= 0 && strncmp(bytes, text, strlen(text)) == 0;
}

static int begins_stream(FILE *file) {
  char bytes[64] = {0};
  int right = file != NULL && fgets(bytes, sizeof bytes, file) != NULL && strncmp(bytes, text, strlen(text)) == 0;
  if (file != NULL) fclose(file);
  return right;
}

int main(int argc, char **argv) {
  // Not known at compile time: with _FORTIFY_SOURCE these are calls of __open_2 and the like.
  volatile int flags = O_RDONLY;
  volatile size_t size = 0;
  char path[PATH_MAX], to[PATH_MAX], *found;
  const char *name;
  struct dirent **list, *one;
  struct dirent64 **list64;
  struct stat info;
  struct stat64 info64;
  struct statx infox;
  int count, seen = 0;
  DIR *folder;
  if (argc != 4) return 2;
  name = argv[2];
  text = argv[3];
  snprintf(path, sizeof path, "%s/%s", argv[1], name);

  CHECK(begins(open(path, flags)));
  CHECK(begins(open64(path, flags)));
  CHECK(begins(openat(AT_FDCWD, path, flags)));
  CHECK(begins(openat64(AT_FDCWD, path, flags)));
  CHECK(begins_stream(fopen(path, "r")));
  CHECK(begins_stream(fopen64(path, "r")));
  CHECK(stat(path, &info) == 0 && S_ISREG(info.st_mode));
  CHECK(lstat(path, &info) == 0 && S_ISREG(info.st_mode));
  CHECK(fstatat(AT_FDCWD, path, &info, 0) == 0 && S_ISREG(info.st_mode));
  CHECK(stat64(path, &info64) == 0 && lstat64(path, &info64) == 0 && fstatat64(AT_FDCWD, path, &info64, 0) == 0);
  CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &infox) == 0 && S_ISREG(infox.stx_mode));
  CHECK(access(path, R_OK) == 0 && faccessat(AT_FDCWD, path, R_OK, 0) == 0);
  CHECK(realpath(path, to) != NULL && strcmp(to, path) == 0);
  CHECK((found = realpath(path, NULL)) != NULL && strcmp(found, path) == 0);
  CHECK((found = canonicalize_file_name(path)) != NULL && strcmp(found, path) == 0);
  CHECK(readlink("/dev/infiniband/uverbs0", to, sizeof to - size) == 9 && memcmp(to, "/dev/null", 9) == 0);
  CHECK(readlinkat(AT_FDCWD, "/dev/infiniband/uverbs0", to, sizeof to - size) == 9);
  CHECK(stat("/dev/infiniband/uverbs0", &info) == 0 && S_ISCHR(info.st_mode));

  CHECK((folder = opendir(argv[1])) != NULL);
  while (folder != NULL && (one = readdir(folder)) != NULL) seen |= strcmp(one->d_name, name) == 0;
  CHECK(seen);
  CHECK(folder != NULL && begins(openat(dirfd(folder), name, flags)));
  CHECK((count = scandir(argv[1], &list, NULL, alphasort)) >= 3);
  CHECK(scandir64(argv[1], &list64, NULL, alphasort64) == count);

  // The machine's own, and what is not there.
  CHECK(open("/sys/class/infiniband_other/x", flags) < 0 && errno == ENOENT);
  CHECK(open("/sys/class/infiniband/other0", flags) < 0 && errno == ENOENT);
  CHECK(open("/dev/infiniband/umad0", flags) < 0 && errno == ENOENT);
  CHECK(realpath("/proc/self/../version", to) != NULL && strcmp(to, "/proc/version") == 0);
  CHECK(access("/sys/class/net/lo", R_OK) == 0 && opendir("/sys/class/net") != NULL);
  CHECK((count = open("/tmp", O_TMPFILE | O_RDWR, 0640)) >= 0 && fstat(count, &info) == 0 && (info.st_mode & 0777) == 0640);
  // The connection manager's file, which the device answers: a character device.
  const int files[] = {open("/dev/infiniband/rdma_cm", flags), open64("/dev/infiniband/rdma_cm", flags),
                       openat(AT_FDCWD, "/dev/infiniband/rdma_cm", flags), openat64(AT_FDCWD, "/dev/infiniband/rdma_cm", flags)};
  for (int i = 0; i < 4; i++) CHECK(files[i] >= 0 && fstat(files[i], &info) == 0 && S_ISCHR(info.st_mode));
  puts("done");
  return 0;
}
