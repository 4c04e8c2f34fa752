/** Tag matching by libibverbs' names: ibv_post_srq_ops(3), completions with tags, rendezvous. */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { beforeEach, expect, test } from 'vitest';
import { completions, connect, createQp, good, openSide, type Side } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, ENOMEM, EOPNOTSUPP } = constants.errno;
const [EAGER, RENDEZVOUS] = [3, 1];
const TM =
  v.IBV_SRQ_INIT_ATTR_TYPE | v.IBV_SRQ_INIT_ATTR_PD | v.IBV_SRQ_INIT_ATTR_CQ | v.IBV_SRQ_INIT_ATTR_TM;

let [a, b]: Side[] = [];
let qpA: v.ibv_qp;
let cq: v.ibv_cq_ex;
let srq: v.ibv_srq;

beforeEach(async () => {
  const network = new MemoryNetwork();
  a = await openSide(network, '10.0.0.1');
  b = await openSide(network, '10.0.0.2');
  const wc_flags = v.IBV_WC_EX_WITH_TM_INFO | v.IBV_WC_STANDARD_FLAGS;
  cq = good(await v.ibv_create_cq_ex(b.context, { cqe: 64, wc_flags }));
  const attr = { max_wr: 8, max_sge: 2 };
  const init = {
    attr,
    comp_mask: TM,
    srq_type: v.IBV_SRQT_TM,
    pd: b.pd,
    cq,
    tm_cap: { max_num_tags: 2, max_ops: 4 },
  };
  srq = good(await v.ibv_create_srq_ex(b.context, init));
  qpA = await createQp(a, v.IBV_QPT_RC);
  const cap = { max_send_wr: 0, max_send_sge: 0 };
  const qpB = good(
    await v.ibv_create_qp(b.pd, { send_cq: b.cq, recv_cq: b.cq, srq, cap, qp_type: v.IBV_QPT_RC }),
  );
  await connect(qpA, b.gid, qpB.qp_num);
  await connect(qpB, a.gid, qpA.qp_num);
});

const add = (tag: bigint, recv_wr_id: bigint, num_sge?: number): v.ibv_ops_wr => ({
  ...{ wr_id: recv_wr_id + 100n, opcode: v.IBV_WR_TAG_ADD, flags: v.IBV_OPS_SIGNALED },
  tm: {
    add: {
      ...{ recv_wr_id, tag, mask: 0xffffn, ...(num_sge === undefined ? {} : { num_sge }) },
      sg_list: [{ addr: b.mr.addr + 64n * recv_wr_id, length: 64, lkey: b.mr.lkey }],
    },
  },
});

async function next() {
  for (let turn = 0; v.ibv_start_poll(cq) !== 0; turn++) {
    expect(turn).toBeLessThan(10_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const info: { tag?: bigint; priv?: number } = {};
  v.ibv_wc_read_tm_info(cq, info);
  const { wr_id, status } = cq;
  const found = [wr_id, status, v.ibv_wc_read_opcode(cq), v.ibv_wc_read_wc_flags(cq), info.tag, info.priv];
  v.ibv_end_poll(cq);
  return found;
}

function send(opcode: number, tag: bigint, rest: Uint8Array) {
  const view = new DataView(a.buffer.buffer);
  view.setUint32(0, opcode << 24);
  view.setUint32(4, 9);
  view.setBigUint64(8, tag);
  a.buffer.set(rest, 16);
  const sg_list = [{ addr: a.mr.addr, length: 16 + rest.length, lkey: a.mr.lkey }];
  expect(v.ibv_post_send(qpA, { sg_list, opcode: v.IBV_WR_SEND })).toBe(0);
}

test('a chain of operations, of which the first bad one is named', async () => {
  const chain = add(1n, 1n);
  chain.next = add(2n, 2n);
  chain.next.next = { ...add(3n, 3n), next: { opcode: v.IBV_WR_TAG_SYNC } };
  const bad: (v.ibv_ops_wr | null)[] = [];
  expect(await v.ibv_post_srq_ops(srq, chain, bad)).toBe(ENOMEM);
  expect(bad[0]).toBe(chain.next.next);
  expect(await next()).toEqual([101n, 0, v.IBV_WC_TM_ADD, 0, 0n, 0]);
  expect(await next()).toEqual([102n, 0, v.IBV_WC_TM_ADD, 0, 0n, 0]);
  send(EAGER, 0x1_0002n, Uint8Array.of(7, 8));
  const flags = v.IBV_WC_TM_MATCH | v.IBV_WC_TM_DATA_VALID;
  expect(await next()).toEqual([2n, 0, v.IBV_WC_TM_RECV, flags, 0x1_0002n, 9]);
  expect([...b.buffer.subarray(128, 131)]).toEqual([7, 8, 0]);
  for (const [handle, status] of [
    [chain.tm!.handle, v.IBV_WC_SUCCESS],
    [chain.next.tm!.handle, v.IBV_WC_TM_ERR],
  ] as const) {
    expect(
      await v.ibv_post_srq_ops(srq, { opcode: v.IBV_WR_TAG_DEL, flags: 1, tm: { handle: handle! } }),
    ).toBe(0);
    expect((await next()).slice(0, 3)).toEqual([0n, status, v.IBV_WC_TM_DEL]);
  }
});

test('rendezvous: the data is read, and the sender hears of it', async () => {
  expect(await v.ibv_post_srq_ops(srq, { ...add(5n, 1n), flags: 0 })).toBe(0);
  const inbox = [{ addr: a.mr.addr + 4096n, length: 64, lkey: a.mr.lkey }];
  expect(v.ibv_post_recv(qpA, { wr_id: 3n, sg_list: inbox })).toBe(0);
  a.buffer.set([1, 2, 3], 1024);
  const request = new DataView(new ArrayBuffer(16));
  request.setBigUint64(0, a.mr.addr + 1024n);
  request.setUint32(8, a.mr.rkey);
  request.setUint32(12, 3);
  send(RENDEZVOUS, 5n, new Uint8Array(request.buffer));
  expect(await next()).toEqual([1n, 0, v.IBV_WC_TM_RECV, v.IBV_WC_TM_MATCH, 5n, 9]);
  expect(await next()).toEqual([1n, 0, v.IBV_WC_TM_RECV, v.IBV_WC_TM_DATA_VALID, 0n, 0]);
  expect([...b.buffer.subarray(64, 68)]).toEqual([1, 2, 3, 0]);
  expect(await completions(a.cq, 1)).toMatchObject([{ wr_id: 3n, byte_len: 16 }]);
});

test('refuses what there is none of', async () => {
  const refused = async (wr: unknown) => {
    expect(await v.ibv_post_srq_ops(srq, wr as v.ibv_ops_wr)).toBeGreaterThan(0);
    return v.errno;
  };
  expect(await refused(null)).toBe(EINVAL);
  expect(await refused({ opcode: 7 })).toBe(EOPNOTSUPP);
  expect(await refused({ opcode: v.IBV_WR_TAG_ADD })).toBe(EINVAL);
  expect(await refused(add(1n, 1n, 2))).toBe(EINVAL);
  expect(await refused({ opcode: v.IBV_WR_TAG_DEL, tm: { handle: -1 } })).toBe(EINVAL);
  expect(await refused({ opcode: v.IBV_WR_TAG_SYNC, flags: 2, tm: { unexpected_cnt: 0.5 } })).toBe(EINVAL);
  const plain = good(await v.ibv_create_srq(b.pd, { attr: { max_wr: 1, max_sge: 1 } }));
  expect(await v.ibv_post_srq_ops(plain, { opcode: v.IBV_WR_TAG_SYNC })).toBe(EINVAL);
});

test('a device names its limits', async () => {
  const attr: Partial<v.ibv_device_attr_ex> = {};
  expect(await v.ibv_query_device_ex(a.context, null, attr)).toBe(0);
  expect(attr.tm_caps).toMatchObject({ max_rndv_hdr_size: 64, max_num_tags: 1024, flags: v.IBV_TM_CAP_RC });
});
