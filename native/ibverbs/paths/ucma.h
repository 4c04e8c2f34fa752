// The emulated /dev/infiniband/rdma_cm (ucma.c).
#pragma once
#include <sys/stat.h>

#define ROCE_UCMA_PATH "/dev/infiniband/rdma_cm"

// open() of it: a descriptor, or −1 and errno.
int roce_ucma_open(int flags);
// Shows a descriptor of it as the character device that librdmacm expects; others stay as they are.
void roce_ucma_stat(int fd, mode_t *mode, dev_t *device);
