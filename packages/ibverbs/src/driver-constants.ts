/** `enum ibv_gid_type_sysfs` of `<infiniband/driver.h>`, which has other numbers than `enum ibv_gid_type`. */
export const IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0;
/** See above. */
export const IBV_GID_TYPE_SYSFS_ROCE_V2 = 1;
