// The mappings of this process, from /proc/self/maps: which of them can be shared, and which are. Nothing is allocated on the heap, whose
// pages may be those that are shared, and as fork waits.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "pages.h"
#include "roce.h"

struct mapping {
  uintptr_t from, to;
  char permissions[8];
  uint64_t offset, inode;
  dev_t device;
  const char *path;
};

static int protection_of(const struct mapping *map) {
  return (map->permissions[0] == 'r' ? PROT_READ : 0) | (map->permissions[1] == 'w' ? PROT_WRITE : 0) |
         (map->permissions[2] == 'x' ? PROT_EXEC : 0);
}

static int is_of(const struct mapping *map, const struct roce_file *file) {
  return map->inode == file->inode && map->device == file->device;
}

// /proc/self/maps as it is read, in the stack: at fork, nothing is allocated.
struct maps {
  int fd;
  size_t at, end;
  char bytes[4096];
  char line[512];  // The start of the last one.
};

static int open_maps(struct maps *maps) {
  maps->at = maps->end = 0;
  // Not by a wrapper of open, as that of paths/paths.c: it may allocate.
  maps->fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  return maps->fd < 0 ? -1 : 0;
}

// EMFILE or EFAULT, and why the mappings can't be read.
static int not_opened(const char **why) {
  const int error = errno == EMFILE ? EMFILE : EFAULT;
  *why = error == EMFILE ? "no descriptor is left for /proc/self/maps" : "/proc/self/maps can't be opened; it is needed";
  return error;
}

// 1, 0 at the end, or −1.
static int next_line(struct maps *maps) {
  for (size_t length = 0;;) {
    char c;
    if (maps->at == maps->end) {
      ssize_t n;
      do n = read(maps->fd, maps->bytes, sizeof maps->bytes);
      while (n < 0 && errno == EINTR);
      if (n <= 0) return (int)n;
      maps->at = 0;
      maps->end = (size_t)n;
    }
    c = maps->bytes[maps->at++];
    maps->line[length] = '\0';
    if (c == '\n') return 1;
    if (length < sizeof maps->line - 1) maps->line[length++] = c;
  }
}

// The same, of mappings.
static int next_mapping(struct maps *maps, struct mapping *map) {
  for (;;) {
    int found = next_line(maps), path = 0;
    unsigned major_, minor_;
    if (found != 1) return found;
    if (sscanf(maps->line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &map->from, &map->to,
               map->permissions, &map->offset, &major_, &minor_, &map->inode, &path) != 7)
      continue;
    map->device = makedev(major_, minor_);
    map->path = maps->line + path;
    return 1;
  }
}

// Why a mapping that /proc/self/maps has under this path can't be shared; NULL where it can: it is private.
static const char *kind_of(const char *path, int is_shared) {
  static const struct {
    const char *start, *kind;
  } kinds[] = {
      {"/anon_hugepage", "it is in huge pages that are shared"},
      {"/SYSV", "it is System V shared memory"},
      {"/dev/shm/", "it is POSIX shared memory"},
      {"/memfd:", "it is a mapped memfd"},
      {"/dev/zero (deleted)", "it is memory that is shared with children (MAP_SHARED)"},
      {"/dev/hugepages/", "it is a mapped file that is shared (MAP_SHARED)"},
      {"/dev/", "it is a device's"},
      {"/", "it is a mapped file that is shared (MAP_SHARED)"},
      {"", "it is a device's"},
  };
  size_t i = 0;
  if (!is_shared) return NULL;
  while (strncmp(path, kinds[i].start, strlen(kinds[i].start)) != 0) i++;
  return kinds[i].kind;
}

int roce_private_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, int writes, struct roce_parts *parts,
                       const char **why) {
  struct maps maps;
  struct mapping map;
  uintptr_t at = start;
  int error = 0;
  if (open_maps(&maps) != 0) return not_opened(why);
  while (at < end && error == 0 && next_mapping(&maps, &map) == 1) {
    const char *kind;
    uintptr_t to = map.to < end ? map.to : end;
    if (map.to <= at) continue;
    if (map.from > at) break;  // A hole.
    kind = kind_of(map.path, map.permissions[3] == 's');
    if (map.permissions[0] != 'r' || map.permissions[2] == 'x') {
      *why = "it is code, or can't be read";
      error = EFAULT;
    } else if (writes && map.permissions[1] != 'w') {
      *why = "it is read-only, and the access flags let the device write";
      error = EFAULT;
    } else if (kind != NULL) {
      if (!is_of(&map, file) || map.offset != map.from) {
        *why = kind;
        error = EFAULT;
      }
    } else if (roce_add_part(parts, (struct roce_part){at, to, map.from, map.to, protection_of(&map), (off_t)at, NULL}) != 0) error = EFAULT;
    at = to;
  }
  close(maps.fd);
  if (error == 0 && at < end) {
    *why = "it is not mapped";
    error = EFAULT;
  }
  return error;
}

int roce_check_mapped(uintptr_t start, uintptr_t end, int writes, const char **why) {
  struct maps maps;
  struct mapping map;
  uintptr_t at = start;
  int is_right = 1;
  if (open_maps(&maps) != 0) return not_opened(why);
  while (at < end && is_right && next_mapping(&maps, &map) == 1) {
    if (map.to <= at) continue;
    if (map.from > at) break;  // A hole.
    is_right = map.permissions[0] == 'r' && (!writes || map.permissions[1] == 'w');
    at = map.to;
  }
  close(maps.fd);
  if (is_right && at >= end) return 0;
  *why = is_right                     ? "it is not mapped"
         : map.permissions[0] != 'r' ? "it can't be read"
                                      : "it is read-only, and the access flags let the device write";
  return EFAULT;
}

int roce_shared_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, struct roce_parts *parts) {
  struct maps maps;
  struct mapping map;
  int error = 0, found = 0;
  if (open_maps(&maps) != 0) return -1;
  while (error == 0 && (found = next_mapping(&maps, &map)) == 1) {
    uintptr_t from = map.from < start ? start : map.from, to = map.to > end ? end : map.to;
    if (from >= to || !is_of(&map, file)) continue;
    error = roce_add_part(parts, (struct roce_part){from, to, map.from, map.to, protection_of(&map),
                                               (off_t)(map.offset + (from - map.from)), NULL});
  }
  close(maps.fd);
  return found < 0 ? -1 : error;
}
