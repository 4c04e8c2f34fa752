// A program whose memory is a file of a file system that it serves itself, and whose bytes it never hands out. The device that reads them
// ends the program, and answers others. Prints "ok", or "skipped" where a program can't have such a file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BYTES 65536
#define SKIPPED 3

static void answer(int fd, uint64_t id, int error, const void *bytes, size_t length) {
  uint8_t reply[512];
  struct fuse_out_header head = {(uint32_t)(sizeof head + length), error, id};
  memcpy(reply, &head, sizeof head);
  if (length > 0) memcpy(reply + sizeof head, bytes, length);
  if (write(fd, reply, head.len) < 0) perror("fuse");
}

// Everything but the bytes of the file.
static void *serve(void *descriptor) {
  static uint8_t request[1 << 20];
  const int fd = (int)(long)descriptor;
  while (read(fd, request, sizeof request) > 0) {
    const struct fuse_in_header *head = (struct fuse_in_header *)request;
    struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
    struct fuse_attr_out about = {.attr = {.ino = 1, .size = BYTES, .mode = S_IFREG | 0600, .nlink = 1}};
    struct fuse_open_out opened = {0};
    if (head->opcode == FUSE_INIT) answer(fd, head->unique, 0, &init, sizeof init);
    else if (head->opcode == FUSE_GETATTR) answer(fd, head->unique, 0, &about, sizeof about);
    else if (head->opcode == FUSE_OPEN) answer(fd, head->unique, 0, &opened, sizeof opened);
    else if (head->opcode != FUSE_READ) answer(fd, head->unique, -ENOSYS, NULL, 0);
  }
  return NULL;
}

static int block(const char *path) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = ibv_open_device(list[0]);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  char options[128];
  pthread_t thread;
  struct stat about;
  uint8_t *at;
  int file;
  snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", fuse);
  // The mount goes with the process.
  if (fuse < 0 || unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return SKIPPED;
  if (mount("blocks", path, "fuse", MS_NOSUID | MS_NODEV, options) != 0) return SKIPPED;
  CHECK(pthread_create(&thread, NULL, serve, (void *)(long)fuse) == 0);
  file = open(path, O_RDWR);
  // Its size is asked for.
  CHECK(file >= 0 && fstat(file, &about) == 0 && about.st_size == BYTES);
  at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  // While it is served: the end of a process waits for the answer.
  CHECK(at != MAP_FAILED && close(file) == 0);
  // The device looks at its first byte.
  ibv_reg_mr(pd, at, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  return 4;
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = ibv_open_device(list[0]);
  struct ibv_port_attr attr;
  char path[] = "/tmp/roce-blocks-XXXXXX";
  int status;
  pid_t child;
  CHECK(close(mkstemp(path)) == 0);
  CHECK(context != NULL && ibv_query_port(context, 1, &attr) == 0 && (child = fork()) >= 0);
  if (child == 0) _exit(block(path));
  CHECK(waitpid(child, &status, 0) == child && unlink(path) == 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return puts("skipped") < 0;
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  CHECK(ibv_query_port(context, 1, &attr) == 0);
  puts("ok");
  return 0;
}
