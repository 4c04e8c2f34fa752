/** XRC under libibverbs' names: domains by file, SRQs by number, target queue pairs that are opened twice. */
import { closeSync, constants as files, mkdtempSync, openSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, onTestFinished, test } from 'vitest';
import { completions, good, openSide as openPlain, REMOTE_ALL } from '../testing/pair.ts';
import * as v from './index.ts';

const { EAGAIN, EBADF, EBUSY, EINVAL, EOPNOTSUPP } = constants.errno;
const { O_CREAT, O_EXCL } = files;
const OPTIONS = { experimental: ['xrc'] } as const;
const openSide = (network: MemoryNetwork, address: string) => openPlain(network, address, OPTIONS);
type Side = Awaited<ReturnType<typeof openSide>>;

const XRCD = v.IBV_XRCD_INIT_ATTR_FD | v.IBV_XRCD_INIT_ATTR_OFLAGS;
const openXrcd = (context: v.ibv_context, fd = -1, oflags = O_CREAT) =>
  v.ibv_open_xrcd(context, { comp_mask: XRCD, fd, oflags });

const createSrq = (side: Side, xrcd: v.ibv_xrcd) =>
  v.ibv_create_srq_ex(side.context, {
    attr: { max_wr: 16, max_sge: 2 },
    comp_mask:
      v.IBV_SRQ_INIT_ATTR_TYPE | v.IBV_SRQ_INIT_ATTR_PD | v.IBV_SRQ_INIT_ATTR_XRCD | v.IBV_SRQ_INIT_ATTR_CQ,
    srq_type: v.IBV_SRQT_XRC,
    pd: side.pd,
    xrcd,
    cq: side.cq,
  });

const createTarget = (side: Side, xrcd: v.ibv_xrcd, qp_context?: unknown) =>
  v.ibv_create_qp_ex(side.context, {
    qp_type: v.IBV_QPT_XRC_RECV,
    comp_mask: v.IBV_QP_INIT_ATTR_XRCD,
    xrcd,
    qp_context,
  });

const SENDS = v.IBV_QP_EX_WITH_SEND | v.IBV_QP_EX_WITH_RDMA_WRITE;
const createInitiator = (side: Side) =>
  v.ibv_create_qp_ex(side.context, {
    qp_type: v.IBV_QPT_XRC_SEND,
    send_cq: side.cq,
    cap: { max_send_wr: 16, max_send_sge: 2, max_inline_data: 64 },
    comp_mask: v.IBV_QP_INIT_ATTR_PD | v.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    pd: side.pd,
    send_ops_flags: SENDS,
  });

/** A file, of which descriptors are opened. */
function openFiles(count: number): number[] {
  const folder = mkdtempSync(join(tmpdir(), 'xrcd-'));
  const fds = Array.from({ length: count }, () => openSync(join(folder, 'domain'), 'a'));
  onTestFinished(() => {
    for (const fd of fds) closeSync(fd);
    rmSync(folder, { recursive: true });
  });
  return fds;
}

/** The masks of Linux' qp_state_table for both types. */
async function connect(qp: v.ibv_qp, gid: v.ibv_gid, dest_qp_num: number): Promise<void> {
  const isIni = qp.qp_type === v.IBV_QPT_XRC_SEND;
  const attr: v.ibv_qp_attr = {
    port_num: 1,
    qp_access_flags: REMOTE_ALL & ~v.IBV_ACCESS_LOCAL_WRITE,
    path_mtu: v.IBV_MTU_1024,
    dest_qp_num,
    rq_psn: 7,
    sq_psn: 7,
    max_dest_rd_atomic: 4,
    max_rd_atomic: 4,
    min_rnr_timer: 1,
    timeout: 14,
    retry_cnt: 6,
    rnr_retry: 6,
    ah_attr: { is_global: 1, port_num: 1, grh: { dgid: gid, hop_limit: 64 } },
  };
  const rtr = v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN;
  const steps = [
    [v.IBV_QPS_INIT, v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS],
    [v.IBV_QPS_RTR, rtr | (isIni ? 0 : v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER)],
    [
      v.IBV_QPS_RTS,
      v.IBV_QP_SQ_PSN |
        v.IBV_QP_TIMEOUT |
        (isIni ? v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY | v.IBV_QP_MAX_QP_RD_ATOMIC : 0),
    ],
  ];
  for (const [qp_state, mask] of steps)
    if ((await v.ibv_modify_qp(qp, { ...attr, qp_state }, v.IBV_QP_STATE | mask)) !== 0) throw v.lastError();
}

async function openXrc() {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  const xrcd = good(await openXrcd(b.context));
  const srq = good(await createSrq(b, xrcd));
  const number: number[] = [];
  expect(v.ibv_get_srq_num(srq, number)).toBe(0);
  const ini = good(await createInitiator(a));
  const tgt = good(await createTarget(b, xrcd, 'mine'));
  await connect(ini, b.gid, tgt.qp_num);
  await connect(tgt, a.gid, ini.qp_num);
  return { network, a, b, xrcd, srq, srqn: number[0], ini, tgt };
}

test('a SEND goes to the SRQ that it names, by ibv_post_send and by ibv_wr_set_xrc_srqn', async () => {
  const { a, b, srq, srqn, ini, tgt } = await openXrc();
  for (const wr_id of [1, 2]) {
    const sg_list = [{ addr: b.mr.addr + BigInt(wr_id * 64), length: 64, lkey: b.mr.lkey }];
    expect(v.ibv_post_srq_recv(srq, { wr_id, sg_list })).toBe(0);
  }
  a.buffer.fill(7, 0, 64);
  const send_flags = v.IBV_SEND_SIGNALED;
  const sg_list = [{ addr: a.mr.addr, length: 64, lkey: a.mr.lkey }];
  const qp_type = { xrc: { remote_srqn: srqn } };
  expect(v.ibv_post_send(ini, { opcode: v.IBV_WR_SEND, sg_list, send_flags, qp_type })).toBe(0);

  const ex = v.ibv_qp_to_qp_ex(ini)!;
  v.ibv_wr_start(ex);
  ex.wr_id = 9;
  ex.wr_flags = v.IBV_SEND_SIGNALED;
  v.ibv_wr_send(ex);
  v.ibv_wr_set_xrc_srqn(ex, srqn);
  v.ibv_wr_set_sge(ex, a.mr.lkey, a.mr.addr, 64);
  expect(v.ibv_wr_complete(ex)).toBe(0);

  expect((await completions(a.cq, 2)).map(({ status }) => status)).toEqual([
    v.IBV_WC_SUCCESS,
    v.IBV_WC_SUCCESS,
  ]);
  const received = await completions(b.cq, 2);
  expect(received.map(({ wr_id, qp_num, byte_len }) => [Number(wr_id), qp_num, byte_len])).toEqual([
    [1, tgt.qp_num, 64],
    [2, tgt.qp_num, 64],
  ]);
  expect(b.buffer.subarray(64, 192).every((byte) => byte === 7)).toBe(true);
});

test('an SRQ number that is not there: IBV_WC_REM_INV_REQ_ERR, and IBV_EVENT_QP_ACCESS_ERR for the target', async () => {
  const { a, b, srqn, ini, tgt } = await openXrc();
  const wr = {
    opcode: v.IBV_WR_SEND,
    send_flags: v.IBV_SEND_SIGNALED,
    qp_type: { xrc: { remote_srqn: srqn ^ 1 } },
  };
  expect(v.ibv_post_send(ini, wr)).toBe(0);
  expect((await completions(a.cq, 1))[0].status).toBe(v.IBV_WC_REM_INV_REQ_ERR);
  const event = {} as v.ibv_async_event;
  expect(await v.ibv_get_async_event(b.context, event)).toBe(0);
  expect([event.event_type, event.element?.qp]).toEqual([v.IBV_EVENT_QP_ACCESS_ERR, tgt]);
  v.ibv_ack_async_event(event);
  expect(tgt.state).toBe(v.IBV_QPS_ERR);
});

describe('a target queue pair', () => {
  test('has a type, a state and a context, and neither queues nor a protection domain', async () => {
    const { tgt } = await openXrc();
    expect([tgt.qp_type, tgt.state, tgt.qp_context]).toEqual([v.IBV_QPT_XRC_RECV, v.IBV_QPS_RTS, 'mine']);
    expect([tgt.pd, tgt.send_cq, tgt.recv_cq, tgt.srq]).toEqual([null, null, null, null]);
    const attr: v.ibv_qp_attr = {};
    const init: Partial<v.ibv_qp_init_attr> = {};
    expect(await v.ibv_query_qp(tgt, attr, v.IBV_QP_STATE, init)).toBe(0);
    expect(attr).toMatchObject({ qp_state: v.IBV_QPS_RTS, max_dest_rd_atomic: 4, timeout: 14 });
    expect(attr.retry_cnt).toBeUndefined();
    expect(init).toMatchObject({ qp_type: v.IBV_QPT_XRC_RECV, cap: { max_send_wr: 0, max_recv_wr: 0 } });
  });

  test('refuses posts with EINVAL, as an initiator refuses receives', async () => {
    const { tgt, ini } = await openXrc();
    expect(v.ibv_post_send(tgt, { opcode: v.IBV_WR_SEND })).toBe(EINVAL);
    expect(v.ibv_post_recv(tgt, {})).toBe(EINVAL);
    expect(v.ibv_post_recv(ini, {})).toBe(EINVAL);
    expect(v.ibv_qp_to_qp_ex(tgt)).toBeNull();
  });

  test('is opened by its number in another context, and goes with the last opening', async () => {
    const { network, b } = await openXrc();
    const [first, second] = openFiles(2);
    // A second context of the same device shares its domains.
    const context = new v.ibv_context(b.context.device, b.context.verbs.openContext());
    const one = good(await openXrcd(b.context, first));
    const two = good(await openXrcd(context, second, 0));
    const tgt = good(await createTarget(b, one));
    const mask = v.IBV_QP_OPEN_ATTR_NUM | v.IBV_QP_OPEN_ATTR_XRCD | v.IBV_QP_OPEN_ATTR_CONTEXT;
    const open = { comp_mask: mask, qp_num: tgt.qp_num, xrcd: two, qp_context: 'two' };
    const shared = good(await v.ibv_open_qp(context, open));
    expect([shared.qp_num, shared.qp_context, shared.state]).toEqual([tgt.qp_num, 'two', v.IBV_QPS_RESET]);
    expect(await v.ibv_close_xrcd(one)).toBe(EBUSY);
    expect(await v.ibv_destroy_qp(tgt)).toBe(0);
    expect(await v.ibv_close_xrcd(one)).toBe(0);
    const init = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS;
    expect(await v.ibv_modify_qp(shared, { qp_state: v.IBV_QPS_INIT, port_num: 1 }, init)).toBe(0);
    expect(await v.ibv_destroy_qp(shared)).toBe(0);
    expect(await v.ibv_open_qp(context, open)).toBeNull();
    expect(v.errno).toBe(EINVAL);
    expect(await v.ibv_close_device(context)).toBe(0);
    void network;
  });
});

describe('refused', () => {
  const refused = async (call: Promise<unknown>) => [await call, v.errno, v.lastError()?.attribute];

  test('domains: by flags, descriptors and names, as the kernel does', async () => {
    const { context } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const [fd, again] = openFiles(2);
    expect(await refused(openXrcd(context, fd, 0))).toEqual([null, EAGAIN, 'name']);
    good(await openXrcd(context, fd));
    good(await openXrcd(context, again, 0));
    expect(await refused(openXrcd(context, fd, O_CREAT | O_EXCL))).toEqual([null, EINVAL, 'exclusive']);
    expect(await refused(openXrcd(context, 9999))).toEqual([null, EBADF, 'fd']);
    expect(await refused(v.ibv_open_xrcd(context, { comp_mask: 0, fd: -1, oflags: O_CREAT }))).toEqual([
      null,
      EINVAL,
      'comp_mask',
    ]);
    expect(await refused(openXrcd(context, -1, 0o100000))).toEqual([null, EINVAL, 'oflags']);
  });

  test('queues and queue pairs that lack a part', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const { context, pd } = side;
    const attr = { max_wr: 1, max_sge: 1 };
    const srq = (init: Partial<v.ibv_srq_init_attr_ex>) =>
      refused(v.ibv_create_srq_ex(context, { attr, comp_mask: 0, pd, ...init }));
    const PD = v.IBV_SRQ_INIT_ATTR_PD;
    expect(await srq({})).toEqual([null, EINVAL, 'comp_mask']);
    expect(await srq({ comp_mask: PD | v.IBV_SRQ_INIT_ATTR_TYPE, srq_type: v.IBV_SRQT_XRC })).toEqual([
      null,
      EINVAL,
      'comp_mask',
    ]);
    expect(await srq({ comp_mask: PD | v.IBV_SRQ_INIT_ATTR_TYPE, srq_type: v.IBV_SRQT_TM })).toEqual([
      null,
      EINVAL,
      'comp_mask',
    ]);
    expect(await srq({ comp_mask: PD | v.IBV_SRQ_INIT_ATTR_TYPE, srq_type: 9 })).toEqual([
      null,
      EINVAL,
      'srq_type',
    ]);
    good(await v.ibv_create_srq_ex(context, { attr, comp_mask: PD, pd }));
    const qp = { qp_type: v.IBV_QPT_XRC_RECV, send_cq: side.cq, recv_cq: side.cq, cap: {} };
    expect(await refused(v.ibv_create_qp(pd, qp))).toEqual([null, EINVAL, 'qp_type']);
    expect(
      await refused(v.ibv_create_qp_ex(context, { ...qp, comp_mask: v.IBV_QP_INIT_ATTR_PD, pd })),
    ).toEqual([null, EINVAL, 'comp_mask']);
  });

  test('on a device without experimental: EOPNOTSUPP', async () => {
    const { context } = await openPlain(new MemoryNetwork(), '10.0.0.1');
    expect(await refused(openXrcd(context))).toEqual([null, EOPNOTSUPP, 'xrcd']);
  });
});
