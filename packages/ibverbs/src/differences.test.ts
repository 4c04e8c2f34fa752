/** Where this differs from the pages about verbs (docs/ibverbs.md), and programs may notice. */
import { createSocket } from 'node:dgram';
import { constants } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { hasIpv6 } from '../../link/testing/loopback.ts';
import { completions, connect, createQp, good, openPair, QKEY } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL } = constants.errno;

async function query(qp: v.ibv_qp): Promise<v.ibv_qp_attr> {
  const attr: v.ibv_qp_attr = {};
  expect(await v.ibv_query_qp(qp, attr, v.IBV_QP_STATE, {})).toBe(0);
  return attr;
}

test('a query gives the next PSNs, not those that were set', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
  const before = [await query(qpA), await query(qpB)];
  expect(before).toMatchObject([
    { rq_psn: 7, sq_psn: 7 },
    { rq_psn: 7, sq_psn: 7 },
  ]);
  // Ten messages of three packets.
  for (let i = 0; i < 10; i++) {
    v.ibv_post_recv(qpB, { sg_list: [{ addr: b.buffer, length: 3000, lkey: b.mr.lkey }] });
    v.ibv_post_send(qpA, {
      opcode: v.IBV_WR_SEND,
      send_flags: v.IBV_SEND_SIGNALED,
      sg_list: [{ addr: a.buffer, length: 3000, lkey: a.mr.lkey }],
    });
  }
  await completions(a.cq, 10);
  await completions(b.cq, 10);
  const { sq_psn, rq_psn, ...rest } = await query(qpA);
  expect([sq_psn, rq_psn]).toEqual([37, 7]);
  expect(await query(qpB)).toMatchObject({ sq_psn: 7, rq_psn: 37 });
  // All else is constant, as RDMAmojo's page documents.
  const { sq_psn: _, rq_psn: __, ...restBefore } = before[0];
  expect(rest).toEqual(restBefore);
});

test('cur_qp_state is checked, not assumed', async () => {
  const { qpA: qp } = await openPair(v.IBV_QPT_RC);
  const modify = (cur_qp_state: number) =>
    v.ibv_modify_qp(
      qp,
      { qp_state: v.IBV_QPS_RTS, cur_qp_state, min_rnr_timer: 13 },
      v.IBV_QP_STATE | v.IBV_QP_CUR_STATE | v.IBV_QP_MIN_RNR_TIMER,
    );
  expect(await modify(v.IBV_QPS_SQD)).toBe(EINVAL);
  expect(v.lastError()).toMatchObject({ attribute: 'cur_qp_state', expected: 'IBV_QPS_RTS' });
  expect((await query(qp)).min_rnr_timer).toBe(12);
  expect(await modify(v.IBV_QPS_RTS)).toBe(0);
  expect((await query(qp)).min_rnr_timer).toBe(13);
});

test('static_rate, sl, dlid and src_path_bits come back from a query', async () => {
  const { b, qpB } = await openPair(v.IBV_QPT_RC);
  const qp = await createQp(b, v.IBV_QPT_RC);
  const path = { static_rate: 2, sl: 5, dlid: 0x1234, src_path_bits: 3 };
  await connect(qp, b.gid, qpB.qp_num, v.IBV_QPS_INIT);
  const attr = {
    qp_state: v.IBV_QPS_RTR,
    ah_attr: { is_global: 1, port_num: 1, grh: { dgid: b.gid, hop_limit: 64 }, ...path },
    path_mtu: v.IBV_MTU_1024,
    dest_qp_num: qpB.qp_num,
    rq_psn: 1,
    max_dest_rd_atomic: 1,
    min_rnr_timer: 12,
  };
  const mask =
    v.IBV_QP_STATE |
    v.IBV_QP_AV |
    v.IBV_QP_PATH_MTU |
    v.IBV_QP_DEST_QPN |
    v.IBV_QP_RQ_PSN |
    v.IBV_QP_MAX_DEST_RD_ATOMIC |
    v.IBV_QP_MIN_RNR_TIMER;
  expect(await v.ibv_modify_qp(qp, attr, mask)).toBe(0);
  expect((await query(qp)).ah_attr).toMatchObject(path);
});

// Ports and addresses of our own: tests that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${0x20 | ((process.pid >> 8) & 0x1f)}.${process.pid & 0xff}.${n}`;

/** A UD queue pair over UDP sockets, with a call that sends 8 bytes to a GID under a flow label. */
async function openDatagrams(address: string) {
  const [device] = v.ibv_get_device_list();
  const context = good(await v.ibv_open_device(device, { address, port, link: 'udp' }));
  onTestFinished(async () => void (await v.ibv_close_device(context)));
  const pd = good(await v.ibv_alloc_pd(context));
  const cq = good(await v.ibv_create_cq(context, 64, null, null, 0));
  const buffer = new Uint8Array(4096);
  const mr = good(await v.ibv_reg_mr(pd, buffer, buffer.length, v.IBV_ACCESS_LOCAL_WRITE));
  const gid = { raw: new Uint8Array(16) };
  await v.ibv_query_gid(context, 1, 0, gid);
  const cap = { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 64 };
  const init = { send_cq: cq, recv_cq: cq, srq: null, cap, qp_type: v.IBV_QPT_UD, sq_sig_all: 0 };
  const qp = good(await v.ibv_create_qp(pd, init));
  await connect(qp, gid, 0);
  const send = async (dgid: v.ibv_gid, flow_label: number) => {
    const grh = { dgid, hop_limit: 64, flow_label };
    const ah = good(await v.ibv_create_ah(pd, { is_global: 1, port_num: 1, grh }));
    v.ibv_post_send(qp, {
      opcode: v.IBV_WR_SEND,
      send_flags: v.IBV_SEND_SIGNALED,
      sg_list: [{ addr: buffer, length: 8, lkey: mr.lkey }],
      wr: { ud: { ah, remote_qpn: qp.qp_num, remote_qkey: QKEY } },
    });
    return ah;
  };
  return { cq, buffer, mr, gid, qp, send };
}

test('a flow label is one of the source ports that an address has: of a loopback address, the only one', async () => {
  const receiver = createSocket('udp4');
  onTestFinished(() => void receiver.close());
  await new Promise<void>((resolve) => receiver.bind(port, host(2), resolve));
  const ports: number[] = [];
  receiver.on('message', (_, { port: source }) => ports.push(source));
  const { cq, send, gid } = await openDatagrams(host(1));
  const dgid = { raw: Uint8Array.from(gid.raw) };
  dgid.raw[15] = 2;
  // Labels of 20 bits whose source ports (Linux: rdma_flow_label_to_udp_sport) all differ.
  const labels = Array.from({ length: 40 }, (_, i) => (i + 1) * 0x101);
  for (const label of [...labels, ...labels]) {
    const ah = await send(dgid, label);
    expect(await completions(cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
    await v.ibv_destroy_ah(ah);
  }
  await expect.poll(() => ports.length).toBe(80);
  expect(new Set(ports).size).toBe(1);
});

test.skipIf(!hasIpv6)('over IPv6 a receiver sees no flow label', async () => {
  const { cq, send, gid, buffer, mr, qp } = await openDatagrams('::1');
  v.ibv_post_recv(qp, { sg_list: [{ addr: buffer, length: 100, lkey: mr.lkey }] });
  await send(gid, 0x12345);
  expect(await completions(cq, 2)).toMatchObject([
    { status: v.IBV_WC_SUCCESS },
    { status: v.IBV_WC_SUCCESS },
  ]);
  // The GRH is an IPv6 header (IBTA vol 1 §8.3): version, traffic class, flow label.
  expect([...buffer.subarray(0, 4)]).toEqual([0x60, 0, 0, 0]);
  expect([...buffer.subarray(24, 40)]).toEqual([...gid.raw]);
});
