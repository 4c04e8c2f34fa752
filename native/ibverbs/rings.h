// Rings: memory that the device has, too (packages/transport/src/rings.ts). Work queues are posted to (post.c), completion queues are polled
// (poll.c), and the device is woken by its doorbells (doorbell.c).
#pragma once
#include "roce.h"

// A child must not write into the parent's rings.
static inline int is_ours(struct ibv_context *context) { return roce_of(context)->generation == roce_generation; }

static inline uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static inline void store(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

// Whether the flag was set, and now is not.
static inline int taken(uint32_t *flag) {
  return load(flag) == 1 && __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST) == 1;
}

static inline uint32_t *entry(const struct roce_ring *ring, uint32_t index) {
  return ring->words + ROCE_CONTROL_WORDS + (size_t)(index & (ring->capacity - 1)) * ring->stride;
}

// Publishes the entries of a work queue before `index`, and rings the doorbell where the device has to be notified. Receives are not urgent: a
// device that sleeps takes them before the next packet. The caller holds the lock of the ring.
void roce_publish(struct ibv_context *context, struct roce_ring *ring, uint32_t index, int is_urgent);
