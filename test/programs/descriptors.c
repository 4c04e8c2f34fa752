// A program closes descriptors of the library, as daemons close all that they find, and opens a file of its own under the same numbers. The
// library must not write there, read there or close it; the program's memory stays, and a context that is opened afterwards works. The
// argument is what is closed: all, doorbell, memory, connection; with "eventfd" the doorbell, whose number an eventfd of the program takes.
// "reopens": all are closed, the device is opened again under the same numbers, and only then the first context is closed. Prints "ok".
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BYTES (64 << 10)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define MAX_FD 64
#define TEXT "a file of the program\n"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t *memory;

// A queue pair that is connected to itself: the bytes of its first half go to its second.
static void open_all(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
  union ibv_gid gid;
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  CHECK((cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0)) != NULL);
  CHECK((qp = ibv_create_qp(pd, &init)) != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
  CHECK((mr = ibv_reg_mr(pd, memory, BYTES, ACCESS)) != NULL);
  connect_qp(qp, qp->qp_num, gid);
  ibv_free_device_list(list);
}

static int post(void) {
  struct ibv_sge sge = {(uintptr_t)memory, BYTES / 2, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
  wr.wr.rdma.remote_addr = (uintptr_t)memory + BYTES / 2;
  wr.wr.rdma.rkey = mr->rkey;
  return ibv_post_send(qp, &wr, &bad);
}

// By a thread that is cancelled at the next cancellation point. Posting is none, or its locks would stay locked.
static void *post_cancelled(void *result) {
  pthread_cancel(pthread_self());
  *(int *)result = post();
  return NULL;
}

static int poll_one(struct ibv_wc *wc) {
  int n;
  while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {}
  return n;
}

static void write_once(void) {
  struct ibv_wc wc;
  for (int i = 0; i < BYTES; i++) memory[i] = (uint8_t)(i < BYTES / 2 ? i * 7 : 0);
  CHECK(post() == 0 && poll_one(&wc) == 1 && wc.status == IBV_WC_SUCCESS);
  CHECK(memcmp(memory, memory + BYTES / 2, BYTES / 2) == 0);
}

static int is_it(int fd, const char *what) {
  char path[64], name[256] = {0};
  if (fd == context->async_fd) return strcmp(what, "all") == 0;
  if (fd == context->cmd_fd) return strcmp(what, "all") == 0 || strcmp(what, "connection") == 0;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (readlink(path, name, sizeof name - 1) < 0) return 0;
  return strcmp(what, "all") == 0 || (strcmp(what, "doorbell") == 0 && strstr(name, "[eventfd]") != NULL) ||
         (strcmp(what, "memory") == 0 && strstr(name, "memfd:") != NULL);
}

static int is_file[MAX_FD], is_event;

static int own_file(void) {
  char name[] = "/tmp/roce-descriptors-XXXXXX";
  int file;
  if (is_event) return eventfd(0, EFD_NONBLOCK);
  CHECK((file = mkstemp(name)) >= 0 && unlink(name) == 0 && write(file, TEXT, sizeof TEXT) == sizeof TEXT);
  return file;
}

// Where the numbers that were closed must not be taken for others meanwhile, no other thread of the program opens anything.
static int replace(const char *what) {
  int count = 0, chosen[MAX_FD], file;
  for (int fd = 3; fd < MAX_FD; fd++) chosen[fd] = is_it(fd, what);
  CHECK((file = own_file()) >= 0);
  for (int fd = 3; fd < MAX_FD; fd++) {
    if (!chosen[fd]) continue;
    CHECK(dup2(file, fd) == fd);
    is_file[fd] = 1;
    count++;
  }
  is_file[file] = 1;
  CHECK(count > 0);
  return file;
}

static void check_file(int file) {
  char text[sizeof TEXT];
  struct stat about, own;
  CHECK(fstat(file, &own) == 0);
  // Nobody has written to it, and it is there: a write comes back by the program's other number.
  if (is_event) {
    static const uint64_t one = 1;
    uint64_t count;
    CHECK(read(file, &count, sizeof count) == -1 && errno == EAGAIN);
    for (int fd = 3; fd < MAX_FD; fd++)
      if (is_file[fd]) CHECK(write(fd, &one, sizeof one) == sizeof one && read(file, &count, sizeof count) == sizeof count && count == 1);
    return;
  }
  CHECK(own.st_size == sizeof TEXT);
  CHECK(pread(file, text, sizeof text, 0) == sizeof text && memcmp(text, TEXT, sizeof text) == 0);
  for (int fd = 3; fd < MAX_FD; fd++)
    if (is_file[fd]) CHECK(fstat(fd, &about) == 0 && about.st_ino == own.st_ino);
}

static void close_all(void) {
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
}

static void reopen(void) {
  struct ibv_context *old = context;
  int numbers[2] = {context->cmd_fd, context->async_fd};
  for (int fd = 3; fd < MAX_FD; fd++)
    if (is_it(fd, "all")) close(fd);
  open_all();
  CHECK(context->cmd_fd == numbers[0] && context->async_fd == numbers[1]);
  write_once();
  ibv_close_device(old);
  // The device sleeps by then: a request has to wake it.
  usleep(50000);
  write_once();
  close_all();
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "all";
  uint8_t *more;
  struct ibv_mr *second;
  struct ibv_async_event event;
  struct ibv_wc wc;
  int file, status, n = -1;
  pthread_t thread;
  pid_t child;
  CHECK((memory = malloc(BYTES)) != NULL && (more = malloc(BYTES)) != NULL);
  memset(more, 5, BYTES);
  open_all();
  write_once();
  if (strcmp(what, "reopens") == 0) {
    reopen();
    puts("ok");
    return 0;
  }
  is_event = strcmp(what, "eventfd") == 0;
  file = replace(is_event ? "doorbell" : what);
  // The device sleeps by then: a request has to wake it.
  usleep(50000);
  // Refused, where the device has heard of the end and destroyed the queue pair.
  CHECK(pthread_create(&thread, NULL, post_cancelled, &n) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(n == 0 || n == EINVAL);
  check_file(file);
  // It may find the memory's end only when more is registered.
  second = ibv_reg_mr(pd, more, BYTES, ACCESS);
  check_file(file);
  for (int i = 0; i < BYTES; i++) CHECK(more[i] == 5);
  while ((n = poll_one(&wc)) > 0) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(n == -1);
  // Nothing is read there: the file would refuse with another error.
  CHECK(ibv_get_async_event(context, &event) == -1 && errno == EIO);
  for (int i = 0; i < BYTES / 2; i++) CHECK(memory[i] == (uint8_t)(i * 7));
  child = fork();
  if (child == 0) {
    for (int i = 0; i < BYTES / 2; i++) CHECK(memory[i] == (uint8_t)(i * 7));
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  check_file(file);
  if (second != NULL) ibv_dereg_mr(second);
  ibv_dereg_mr(mr);
  check_file(file);
  for (int i = 0; i < BYTES / 2; i++) CHECK(memory[i] == (uint8_t)(i * 7) && more[i] == 5);
  // A daemon begins again.
  {
    struct ibv_context *old = context;
    open_all();
    write_once();
    close_all();
    context = old;
  }
  ibv_close_device(context);
  check_file(file);
  printf("ok\n");
  return 0;
}
