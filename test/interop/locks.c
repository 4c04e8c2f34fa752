// Preloaded to a program in the guest that insists on a lock of a file: the guest's kernel is built without such locks.
#include <sys/types.h>
#include <unistd.h>

int lockf(int file, int command, off_t bytes) {
  (void)file, (void)command, (void)bytes;
  return 0;
}
