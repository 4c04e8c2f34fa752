/** Extended posting: batches of ibv_wr_post(3). */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { completions, connect, createQp, good, openSide, QKEY, type Side } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, ENOMEM, EOPNOTSUPP } = constants.errno;
const EVERY = 0x1bff;

async function createQpEx(side: Side, qp_type: number, send_ops_flags = EVERY) {
  const { pd, cq } = side;
  const cap = { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
  return good(
    await v.ibv_create_qp_ex(side.context, {
      send_cq: cq,
      recv_cq: cq,
      cap,
      qp_type,
      comp_mask: v.IBV_QP_INIT_ATTR_PD | v.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      pd,
      send_ops_flags,
    }),
  );
}

/** Two sides; the first posts by batches. */
async function open(type: number = v.IBV_QPT_RC, flags = EVERY) {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  const [qpA, qpB] = [await createQpEx(a, type, flags), await createQp(b, type)];
  await connect(qpA, b.gid, qpB.qp_num);
  await connect(qpB, a.gid, qpA.qp_num);
  const qpx = v.ibv_qp_to_qp_ex(qpA)!;
  qpx.wr_flags = v.IBV_SEND_SIGNALED;
  return { a, b, qpA, qpB, qpx };
}

const done = async (side: Side, count: number) =>
  (await completions(side.cq, count)).map(({ wr_id, status, opcode }) => [wr_id, status, opcode]);
/** Nothing was posted. */
const expectNone = (side: Side, qp: v.ibv_qp) => {
  expect(qp.verbs.sendPending).toBe(0);
  expect(v.ibv_poll_cq(side.cq, 1, [])).toBe(0);
};

test('a batch of every operation on memory is carried out in order', async () => {
  const { a, b, qpx } = await open();
  a.buffer.set([1, 2, 3, 4, 5, 6, 7, 8], 0);
  new DataView(b.buffer.buffer).setBigUint64(64, 40n, true);
  const { rkey } = b.mr;
  const at = (offset: number) => b.mr.addr + BigInt(offset);
  v.ibv_wr_start(qpx);
  qpx.wr_id = 1n;
  v.ibv_wr_rdma_write(qpx, rkey, at(0));
  v.ibv_wr_set_sge_list(qpx, 2, [
    { addr: a.buffer.subarray(4), length: 4, lkey: a.mr.lkey },
    { addr: a.buffer, length: 4, lkey: a.mr.lkey },
    { addr: 0n, length: 99, lkey: 0 },
  ]);
  qpx.wr_id = 2n;
  v.ibv_wr_rdma_read(qpx, rkey, at(0));
  v.ibv_wr_set_sge(qpx, a.mr.lkey, a.buffer.subarray(100), 8);
  qpx.wr_id = 3n;
  v.ibv_wr_atomic_fetch_add(qpx, rkey, at(64), 2);
  v.ibv_wr_set_sge(qpx, a.mr.lkey, a.buffer.subarray(200), 8);
  qpx.wr_id = 4n;
  v.ibv_wr_atomic_cmp_swp(qpx, rkey, at(64), 42n, 7n);
  v.ibv_wr_set_sge(qpx, a.mr.lkey, a.buffer.subarray(208), 8);
  expect(qpx.qp_base.verbs.sendPending).toBe(0);
  expect(v.ibv_wr_complete(qpx)).toBe(0);
  expect(await done(a, 4)).toEqual([
    [1n, 0, v.IBV_WC_RDMA_WRITE],
    [2n, 0, v.IBV_WC_RDMA_READ],
    [3n, 0, v.IBV_WC_FETCH_ADD],
    [4n, 0, v.IBV_WC_COMP_SWAP],
  ]);
  expect([...b.buffer.subarray(0, 8)]).toEqual([5, 6, 7, 8, 1, 2, 3, 4]);
  expect([...a.buffer.subarray(100, 108)]).toEqual([5, 6, 7, 8, 1, 2, 3, 4]);
  const numbers = new DataView(a.buffer.buffer);
  expect([numbers.getBigUint64(200, true), numbers.getBigUint64(208, true)]).toEqual([40n, 42n]);
  expect(new DataView(b.buffer.buffer).getBigUint64(64, true)).toBe(7n);
});

test('data, FLUSH, and a pointer in one piece', async () => {
  const { a, b, qpA, qpB, qpx } = await open();
  const access = v.IBV_ACCESS_LOCAL_WRITE | v.IBV_ACCESS_REMOTE_WRITE | v.IBV_ACCESS_FLUSH_GLOBAL;
  const memory = new Uint8Array(64);
  const mr = good(await v.ibv_reg_mr(b.pd, memory, 64, access));
  const qp_access_flags = v.IBV_ACCESS_REMOTE_WRITE | v.IBV_ACCESS_FLUSH_GLOBAL;
  expect(await v.ibv_modify_qp(qpB, { qp_access_flags }, v.IBV_QP_ACCESS_FLAGS)).toBe(0);
  const pointer = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
  v.ibv_wr_start(qpx);
  v.ibv_wr_rdma_write(qpx, mr.rkey, mr.addr);
  v.ibv_wr_set_inline_data(qpx, new Uint8Array(32).fill(9), 32);
  v.ibv_wr_flush(qpx, mr.rkey, mr.addr, 32, v.IBV_FLUSH_GLOBAL, v.IBV_FLUSH_RANGE);
  v.ibv_wr_atomic_write(qpx, mr.rkey, mr.addr + 56n, pointer);
  pointer.fill(0); // It was copied.
  expect(v.ibv_wr_complete(qpx)).toBe(0);
  expect((await done(a, 3)).map(([, ...rest]) => rest)).toEqual([
    [0, v.IBV_WC_RDMA_WRITE],
    [0, v.IBV_WC_FLUSH],
    [0, v.IBV_WC_ATOMIC_WRITE],
  ]);
  expect([...memory.subarray(0, 32)]).toEqual(new Array(32).fill(9));
  expect([...memory.subarray(56)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);

  v.ibv_wr_start(qpx);
  v.ibv_wr_flush(qpx, mr.rkey, mr.addr, 32, v.IBV_FLUSH_PERSISTENT, v.IBV_FLUSH_MR);
  expect(v.ibv_wr_complete(qpx)).toBe(0);
  expect((await done(a, 1))[0][1]).toBe(v.IBV_WC_REM_INV_REQ_ERR);
  expect(qpA.state).toBe(v.IBV_QPS_ERR);
});

test.each([v.IBV_QPT_RC, v.IBV_QPT_UC, v.IBV_QPT_UD])('SENDs of type %d, with their flags', async (type) => {
  const { a, b, qpB, qpx } = await open(type, v.IBV_QP_EX_WITH_SEND | v.IBV_QP_EX_WITH_SEND_WITH_IMM);
  for (let i = 0; i < 2; i++)
    v.ibv_post_recv(qpB, {
      wr_id: i,
      sg_list: [{ addr: b.buffer.subarray(i * 256), length: 256, lkey: b.mr.lkey }],
    });
  const ah =
    type === v.IBV_QPT_UD
      ? good(await v.ibv_create_ah(a.pd, { is_global: 1, port_num: 1, grh: { dgid: b.gid, hop_limit: 1 } }))
      : undefined;
  const address = () => ah && v.ibv_wr_set_ud_addr(qpx, ah, qpB.qp_num, QKEY);
  v.ibv_wr_start(qpx);
  qpx.wr_flags = v.IBV_SEND_SIGNALED | v.IBV_SEND_SOLICITED;
  v.ibv_wr_send(qpx);
  v.ibv_wr_set_inline_data_list(qpx, 2, [
    { addr: Uint8Array.of(1, 2, 3), length: 2 },
    { addr: Uint8Array.of(4), length: 1 },
  ]);
  address();
  qpx.wr_flags = 0;
  v.ibv_wr_send_imm(qpx, 77);
  address();
  expect(v.ibv_wr_complete(qpx)).toBe(0);
  const received = await completions(b.cq, 2);
  const grh = type === v.IBV_QPT_UD ? 40 : 0;
  expect(received).toMatchObject([
    { wr_id: 0n, status: 0, byte_len: 3 + grh },
    { wr_id: 1n, status: 0, byte_len: grh, imm_data: 77 },
  ]);
  expect([...b.buffer.subarray(grh, grh + 3)]).toEqual([1, 2, 4]);
  // The second asked for no completion.
  expect(await done(a, 1)).toEqual([[0n, 0, v.IBV_WC_SEND]]);
  expect(v.ibv_poll_cq(a.cq, 1, [])).toBe(0);
});

test('windows are bound and invalidated in a batch', async () => {
  const { a, qpx } = await open();
  const mw = good(await v.ibv_alloc_mw(a.pd, v.IBV_MW_TYPE_2));
  const bind_info = { mr: a.mr, addr: a.buffer, length: 64, mw_access_flags: v.IBV_ACCESS_REMOTE_READ };
  const key = v.ibv_inc_rkey(mw.rkey);
  v.ibv_wr_start(qpx);
  v.ibv_wr_bind_mw(qpx, mw, key, bind_info);
  v.ibv_wr_local_inv(qpx, key);
  expect(v.ibv_wr_complete(qpx)).toBe(0);
  expect((await done(a, 2)).map(([, ...rest]) => rest)).toEqual([
    [0, v.IBV_WC_BIND_MW],
    [0, v.IBV_WC_LOCAL_INV],
  ]);
});

describe('all or nothing', () => {
  test('abort posts nothing, and the next batch begins empty', async () => {
    const { a, qpA, qpx } = await open();
    v.ibv_wr_start(qpx);
    v.ibv_wr_send(qpx);
    v.ibv_wr_abort(qpx);
    expectNone(a, qpA);
    v.ibv_wr_start(qpx);
    expect(v.ibv_wr_complete(qpx)).toBe(0);
    expectNone(a, qpA);
  });

  type Build = (qpx: v.ibv_qp_ex, o: Awaited<ReturnType<typeof open>>) => void;
  const send: Build = (qpx) => v.ibv_wr_send(qpx);
  test.each<[string, Build[], number, string | undefined]>([
    ['more than the queue holds', new Array(9).fill(send), ENOMEM, undefined],
    ['a list that is too long', [send, (qpx) => v.ibv_wr_set_sge_list(qpx, 3, [])], EINVAL, 'num_sge'],
    [
      'more inline data than fits',
      [send, send, (qpx) => v.ibv_wr_set_inline_data(qpx, new Uint8Array(65), 65)],
      EINVAL,
      'sg_list',
    ],
    ['an operation without its flag', [send, (qpx) => v.ibv_wr_send_inv(qpx, 1)], EOPNOTSUPP, 'opcode'],
    [
      'a setter before a builder',
      [(qpx) => v.ibv_wr_set_inline_data(qpx, new Uint8Array(1), 1)],
      EINVAL,
      'qp',
    ],
    ['no 8 bytes', [(qpx) => v.ibv_wr_atomic_write(qpx, 1, 0, new Uint8Array(4))], EINVAL, 'sg_list'],
    [
      'no 8 bytes of a larger buffer',
      [(qpx) => v.ibv_wr_atomic_write(qpx, 1, 0, new Uint8Array(64).subarray(0, 4))],
      EINVAL,
      'sg_list',
    ],
    ['a level that there is not', [(qpx) => v.ibv_wr_flush(qpx, 1, 0, 8, 1, 2)], EINVAL, 'level'],
    [
      'a datagram’s address for a connection',
      [send, (qpx) => v.ibv_wr_set_ud_addr(qpx, null as never, 1, 1)],
      EINVAL,
      'ah',
    ],
    ['another start', [send, (qpx) => v.ibv_wr_start(qpx)], EINVAL, 'qp'],
  ])('%s: complete returns the errno, and nothing is posted', async (_, builds, code, attribute) => {
    const opened = await open(v.IBV_QPT_RC, EVERY & ~v.IBV_QP_EX_WITH_SEND_WITH_INV);
    const { a, qpA, qpx } = opened;
    v.ibv_wr_start(qpx);
    for (const build of builds) build(qpx, opened);
    // Calls after the error change nothing.
    v.ibv_wr_send(qpx);
    expect(v.ibv_wr_complete(qpx)).toBe(code);
    expect(v.lastError()?.attribute).toBe(attribute);
    expectNone(a, qpA);
    expect(v.ibv_wr_complete(qpx)).toBe(EINVAL);
  });

  test('a window keeps its key where the batch is refused', async () => {
    const { a, qpx } = await open();
    const mw = good(await v.ibv_alloc_mw(a.pd, v.IBV_MW_TYPE_2));
    const before = mw.rkey;
    v.ibv_wr_start(qpx);
    const bind_info = { mr: a.mr, addr: a.buffer, length: 8, mw_access_flags: v.IBV_ACCESS_REMOTE_READ };
    v.ibv_wr_bind_mw(qpx, mw, v.ibv_inc_rkey(before), bind_info);
    for (let i = 0; i < 8; i++) v.ibv_wr_send(qpx);
    expect(v.ibv_wr_complete(qpx)).toBe(ENOMEM);
    expect(mw.rkey).toBe(before);
  });
});

describe('ibv_create_qp_ex', () => {
  test('without operations it makes a plain queue pair', async () => {
    const { context, pd, cq } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const init = {
      send_cq: cq,
      recv_cq: cq,
      cap: {},
      qp_type: v.IBV_QPT_RC,
      comp_mask: v.IBV_QP_INIT_ATTR_PD,
      pd,
    };
    expect(v.ibv_qp_to_qp_ex(good(await v.ibv_create_qp_ex(context, init)))).toBeNull();
  });

  test.each([
    [{ comp_mask: 0 }, EINVAL, 'comp_mask'],
    [{ pd: null as never }, EINVAL, 'comp_mask'],
    [{ comp_mask: v.IBV_QP_INIT_ATTR_PD | v.IBV_QP_INIT_ATTR_RX_HASH }, EOPNOTSUPP, 'comp_mask'],
    [{ send_ops_flags: v.IBV_QP_EX_WITH_TSO }, EOPNOTSUPP, 'send_ops_flags'],
    [{ send_ops_flags: 1 << 20 }, EINVAL, 'send_ops_flags'],
    [{ qp_type: v.IBV_QPT_XRC_SEND }, EOPNOTSUPP, 'qp_type'],
  ])('%j is refused', async (change, code, attribute) => {
    const { context, pd, cq } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const comp_mask = v.IBV_QP_INIT_ATTR_PD | v.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const init = {
      send_cq: cq,
      recv_cq: cq,
      cap: {},
      qp_type: v.IBV_QPT_RC,
      comp_mask,
      pd,
      send_ops_flags: 1,
    };
    expect(await v.ibv_create_qp_ex(context, { ...init, ...change })).toBeNull();
    expect([v.errno, v.lastError()?.attribute]).toEqual([code, attribute]);
  });
});
