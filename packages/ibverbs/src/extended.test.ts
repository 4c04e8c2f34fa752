/** Queries of newer verbs. */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { expect, test } from 'vitest';
import { createQp, good, openSide } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL } = constants.errno;

test('ibv_query_device_ex gives the values of ibv_query_device, and zeros for features of hardware', async () => {
  const { context } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const plain: Partial<v.ibv_device_attr> = {};
  const attr: Partial<v.ibv_device_attr_ex> = {};
  expect(await v.ibv_query_device(context, plain)).toBe(0);
  expect(await v.ibv_query_device_ex(context, null, attr)).toBe(0);
  expect(attr.orig_attr).toEqual(plain);
  expect(attr).toMatchObject({
    comp_mask: 0,
    device_cap_flags_ex:
      BigInt(plain.device_cap_flags!) | v.IBV_DEVICE_FLUSH_GLOBAL | v.IBV_DEVICE_ATOMIC_WRITE,
    tso_caps: { max_tso: 0, supported_qpts: 0 },
    packet_pacing_caps: {
      supported_qpts:
        (1 << v.IBV_QPT_RC) |
        (1 << v.IBV_QPT_UC) |
        (1 << v.IBV_QPT_UD) |
        (1 << v.IBV_QPT_RAW_PACKET) |
        (1 << v.IBV_QPT_XRC_SEND),
    },
    phys_port_cnt_ex: 1,
  });
  expect(await v.ibv_query_device_ex(context, {}, attr)).toBe(0);
  expect(await v.ibv_query_device_ex(context, { comp_mask: 1 }, attr)).toBe(EINVAL);
  expect(v.lastError()?.attribute).toBe('input.comp_mask');
});

test('ibv_query_gid_type gives RoCE v2, in the numbers of sysfs', async () => {
  const { context } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const type: number[] = [];
  expect(await v.ibv_query_gid_type(context, 1, 0, type)).toBe(0);
  expect(type).toEqual([v.IBV_GID_TYPE_SYSFS_ROCE_V2]);
  for (const [port, index] of [
    [2, 0],
    [1, 1],
  ]) {
    expect(await v.ibv_query_gid_type(context, port, index, type)).toBe(-1);
    expect(v.errno).toBe(EINVAL);
  }
});

test('ibv_get_srq_num distinguishes queues', async () => {
  const { pd } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const numbers = new Set<number>();
  for (let i = 0; i < 3; i++) {
    const srq = good(await v.ibv_create_srq(pd, { attr: { max_wr: 4, max_sge: 1 } }));
    const num: number[] = [];
    expect(v.ibv_get_srq_num(srq, num)).toBe(0);
    expect(num[0]).toBeGreaterThan(0);
    expect(num[0]).toBeLessThan(2 ** 24);
    numbers.add(num[0]);
  }
  expect(numbers.size).toBe(3);
});

test('ibv_query_qp_data_in_order promises nothing', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const qp = await createQp(side, v.IBV_QPT_RC);
  for (const op of [v.IBV_WR_SEND, v.IBV_WR_RDMA_WRITE, v.IBV_WR_RDMA_READ])
    expect(v.ibv_query_qp_data_in_order(qp, op, 0)).toBe(0);
});

test('a device has no index of the kernel, and survives fork without preparation', async () => {
  const [device] = v.ibv_get_device_list();
  expect(v.ibv_get_device_index(device)).toBe(-1);
  expect(v.ibv_is_fork_initialized()).toBe(v.IBV_FORK_UNNEEDED);
});
