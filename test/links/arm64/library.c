// Is linked with the library of `roce run`, and calls it without a device.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void) {
  int count = -1;
  struct ibv_device **list = ibv_get_device_list(&count);
  printf("%s; %d devices\n", ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), list == NULL ? -errno : count);
  return 0;
}
