// Calls of libc that libroce-paths.so has wrappers of: they stay what they are. The argument chooses. Prints "ok".
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static uint8_t *pages;
static atomic_int stop, done;

// Not a point of cancellation.
static void *initializes(void *none) {
  pthread_mutexattr_t mutex;
  pthread_condattr_t cond;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_condattr_init(&cond);
  pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
  pthread_cancel(pthread_self());
  CHECK(pthread_mutex_init((pthread_mutex_t *)pages, &mutex) == 0);
  CHECK(pthread_cond_init((pthread_cond_t *)(pages + 4096), &cond) == 0);
  CHECK(sem_init((sem_t *)(pages + 8192), 1, 0) == 0);
  done = 1;
  return none;
}

static void cancel(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, initializes, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && done);
}

static void *locks(void *none) {
  // The table of the wrappers is long, and another entry is looked for each time.
  for (size_t i = 0; i < 500; i++) mlock(pages + 8192 * i, 1);
  while (!stop) mlock(pages + 8192 * 499, 1);
  return none;
}

// A child, and a handler of a signal, may make a system call whatever another thread does.
static void fork_often(void) {
  pthread_t thread;
  int status;
  CHECK(pthread_create(&thread, NULL, locks, NULL) == 0);
  for (int i = 0; i < 400; i++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      madvise(pages, 4096, MADV_DONTDUMP);
      _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  }
  stop = 1;
  pthread_join(thread, NULL);
}

static void on_alarm(int signal) {
  (void)signal;
  madvise(pages, 4096, MADV_DONTDUMP);
  if (++done == 1000) stop = 1;
}

static void handle(void) {
  const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  signal(SIGALRM, on_alarm);
  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  locks(NULL);
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

// Results and errno are those of libc.
static void fail(void) {
  sem_t semaphore;
  errno = 0;
  CHECK(sem_init(&semaphore, 1, (unsigned)-1) == -1 && errno == EINVAL);
  CHECK(madvise(pages + 1, 4096, MADV_DONTDUMP) == -1 && errno == EINVAL);
  CHECK(mlock2(pages, 4096, 1u << 30) == -1 && errno == EINVAL);
  CHECK(mlockall(1 << 30) == -1 && errno == EINVAL);
  errno = ENOTTY;
  CHECK(sem_init(&semaphore, 1, 1) == 0 && errno == ENOTTY);
  CHECK(mlock(pages, 4096) == 0 && munlock(pages, 4096) == 0 && errno == ENOTTY);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  pages = mmap(NULL, 4096 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  if (strcmp(what, "cancels") == 0) cancel();
  else if (strcmp(what, "forks") == 0) fork_often();
  else if (strcmp(what, "handles") == 0) handle();
  else if (strcmp(what, "fails") == 0) fail();
  else CHECK(!"an argument");
  puts("ok");
  return 0;
}
