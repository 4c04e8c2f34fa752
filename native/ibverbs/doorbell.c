// The memory of all rings, and the doorbells: how the device hears of what was posted. No system call is made but for a device that sleeps.
#include <sys/mman.h>
#include <sys/syscall.h>

#include "rings.h"

int roce_rings_open(struct roce_context *r, int arena, int doorbell, const struct roce_hello_reply *shape) {
  // After mlockall(MCL_FUTURE) the kernel would make all of the pages at once, and lock them: not those that can't be accessed yet.
  void *at = mmap(NULL, shape->arena_bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, arena, 0);
  int error = at == MAP_FAILED ? errno : 0;
  close(arena);
  if (error == 0) {
    munlock(at, shape->arena_bytes);
    if (mprotect(at, shape->arena_bytes, PROT_READ | PROT_WRITE) != 0) error = errno;
    if (error != 0) munmap(at, shape->arena_bytes);
  }
  if (error != 0) {
    if (error == EAGAIN)
      dprintf(STDERR_FILENO, "libibverbs of roce run: the limit of locked memory (ulimit -l) has no room for %u MiB of rings, after mlockall(MCL_FUTURE)\n",
              shape->arena_bytes >> 20);
    else dprintf(STDERR_FILENO, "libibverbs of roce run: %u MiB of addresses for rings: %s (limit of address space: ulimit -v)\n",
                 shape->arena_bytes >> 20, strerror(error));
    close(doorbell);
    errno = error;
    return -1;
  }
  r->arena = at;
  r->arena_bytes = shape->arena_bytes;
  r->doorbell = roce_marked_file_of(doorbell);
  r->bells = (struct roce_ring){.words = (uint32_t *)(r->arena + shape->bells_offset), .capacity = shape->bells_capacity, .stride = 1};
  pthread_mutex_init(&r->bells_lock, NULL);
  return 0;
}

void roce_rings_close(struct roce_context *r) {
  munmap(r->arena, r->arena_bytes);
  roce_close_file(&r->doorbell);
}

void roce_take_queue(struct roce_context *r, const struct roce_queue_place *place, struct roce_ring *ring) {
  ring->id = place->id;
  ring->capacity = place->capacity;
  ring->stride = place->stride;
  ring->words = (uint32_t *)(r->arena + place->offset);
  if (ring->capacity > 0) ring->producer = load(ring->words + ROCE_CONTROL_PRODUCER);
}

void roce_publish(struct ibv_context *context, struct roce_ring *ring, uint32_t index, int is_urgent) {
  struct roce_context *r = roce_of(context);
  ring->producer = index;
  store(ring->words + ROCE_CONTROL_PRODUCER, index);
  if (!taken(ring->words + ROCE_CONTROL_SLEEPING)) return;
  pthread_mutex_lock(&r->bells_lock);
  *entry(&r->bells, r->bells.producer) = ring->id;
  store(r->bells.words + ROCE_CONTROL_PRODUCER, ++r->bells.producer);
  // In the error state they are flushed at once. A device that enters it takes what rang before it sleeps.
  if (load(ring->words + ROCE_CONTROL_STATE) == IBV_QPS_ERR) is_urgent = 1;
  if (is_urgent && taken(r->bells.words + ROCE_CONTROL_SLEEPING)) {
    static const uint64_t one = 1;
    // A program that closed the doorbell may have another file under its number, which must never be written to. So fstat and F_GETSIG before each write:
    // about 250 ns of processor time beside the write's 150, where any system call takes 80 (November 2026). Nothing that takes less tells the files
    // apart, and to wake the device costs far more.
    // Without a doorbell, requests would wait for whatever else wakes the device.
    if (!roce_is_open(&r->doorbell)) {
      roce_report_closed();
      roce_end_connection(r);
    } else {
      // Posting is no cancellation point, as write would be.
      while (syscall(SYS_write, r->doorbell.fd, &one, sizeof one) < 0 && errno == EINTR) continue;
    }
  }
  pthread_mutex_unlock(&r->bells_lock);
}
