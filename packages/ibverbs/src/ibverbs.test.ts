import { constants } from 'node:os';
import { interfaceByAddress, MemoryNetwork } from '@node-roce/link';
import { describe, expect, test, vi } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { turns } from '../../verbs-api/testing/clock.ts';
import {
  completions,
  connect,
  createQp,
  good,
  openPair,
  openSide,
  QKEY,
  REMOTE_ALL,
} from '../testing/pair.ts';
import * as v from './index.ts';

const { EBUSY, ECANCELED, EINVAL, ENOMEM, EOPNOTSUPP } = constants.errno;

describe('devices', () => {
  test('each interface is one; names, GUIDs', () => {
    const num: number[] = [];
    const list = v.ibv_get_device_list(num);
    expect(num[0]).toBe(list.length);
    const lo = list.find((device) => device.interface.loopback)!;
    expect(v.ibv_get_device_name(lo)).toBe('lo');
    expect(v.ibv_get_device_guid(lo)).toBe(0x0200_00ff_fe00_0000n);
    expect(v.ibv_node_type_str(lo.node_type)).toBe('channel adapter');
    v.ibv_free_device_list(list);
  });

  test('device, port, GIDs and P_Keys can be asked for', async () => {
    const { context, gid } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const device: Partial<v.ibv_device_attr> = {};
    expect(await v.ibv_query_device(context, device)).toBe(0);
    expect(device).toMatchObject({ phys_port_cnt: 1, max_pkeys: 1, atomic_cap: v.IBV_ATOMIC_HCA });
    for (const name of Object.keys(device)) expect(device, name).not.toHaveProperty(name, undefined);
    const caps = device.device_cap_flags!;
    expect(caps & (v.IBV_DEVICE_AUTO_PATH_MIG | v.IBV_DEVICE_XRC)).toBe(0);
    const offered =
      v.IBV_DEVICE_RESIZE_MAX_WR |
      v.IBV_DEVICE_SRQ_RESIZE |
      v.IBV_DEVICE_MEM_WINDOW_TYPE_2B |
      v.IBV_DEVICE_CURR_QP_STATE_MOD;
    expect(caps & offered).toBe(offered);

    const port: Partial<v.ibv_port_attr> = {};
    expect(await v.ibv_query_port(context, 1, port)).toBe(0);
    expect(port).toMatchObject({
      state: v.IBV_PORT_ACTIVE,
      active_mtu: v.IBV_MTU_4096,
      gid_tbl_len: 1,
      link_layer: v.IBV_LINK_LAYER_ETHERNET,
      flags: v.IBV_QPF_GRH_REQUIRED,
      max_msg_sz: 2 ** 31,
    });
    expect(v.ibv_port_state_str(port.state!)).toBe('PORT_ACTIVE');
    expect(await v.ibv_query_port(context, 2, port)).toBe(EINVAL);
    expect([...gid.raw.subarray(10)]).toEqual([255, 255, 10, 0, 0, 1]);
    expect(await v.ibv_query_gid(context, 1, 1, gid)).toBe(-1);
    expect(v.errno).toBe(EINVAL);
    expect(v.strerror(v.errno)).toBe('EINVAL: invalid argument');
    const entry: Partial<v.ibv_gid_entry> = {};
    expect(await v.ibv_query_gid_ex(context, 1, 0, entry)).toBe(0);
    expect(entry).toEqual({ gid, gid_index: 0, port_num: 1, gid_type: v.IBV_GID_TYPE_ROCE_V2 });
    expect(await v.ibv_query_gid_ex(context, 1, 7, entry)).toBe(EINVAL);
    const entries: v.ibv_gid_entry[] = [];
    expect(await v.ibv_query_gid_table(context, entries, 10)).toBe(1);
    expect(entries).toEqual([entry]);
    expect(await v.ibv_query_gid_table(context, entries, 0)).toBe(-EINVAL);
    const pkey: number[] = [];
    expect(await v.ibv_query_pkey(context, 1, 0, pkey)).toBe(0);
    expect(pkey).toEqual([0xffff]);
    expect(v.ibv_get_pkey_index(context, 1, 0xffff)).toBe(0);
    expect(v.ibv_get_pkey_index(context, 1, 0x8001)).toBe(-1);
  });

  // Linux' ib_get_width_and_speed (drivers/infiniband/core/verbs.c), which rxe asks: 1X is 1, 4X 2, 2X 16.
  test.each([
    [undefined, 1, 1],
    [10, 1, 1],
    [1000, 1, 1],
    [2500, 1, 8],
    [10_000, 1, 8],
    [20_000, 2, 2],
    [25_000, 1, 32],
    [40_000, 2, 8],
    [50_000, 16, 32],
    [100_000, 2, 32],
    [200_000, 2, 64],
    [400_000, 2, 128],
  ])('an interface of %s Mb/s has width %d and speed %d', async (speed, width, code) => {
    const link = new MemoryNetwork().link('10.0.0.1');
    const nic = interfaceByAddress('127.0.0.1');
    const [device] = v.ibv_get_device_list();
    const context = good(
      await v.ibv_open_device(device, { link: Object.assign(link, { interface: { ...nic, speed } }) }),
    );
    const attr: Partial<v.ibv_port_attr> = {};
    expect(await v.ibv_query_port(context, 1, attr)).toBe(0);
    expect([attr.active_width, attr.active_speed]).toEqual([width, code]);
    await v.ibv_close_device(context);
  });

  test('the signal of a second context closes that one alone', async () => {
    const link = new MemoryNetwork().link('10.0.0.1');
    const [device] = v.ibv_get_device_list();
    const first = good(await v.ibv_open_device(device, { link }));
    await expect(v.ibv_open_device(device, { link, signal: AbortSignal.abort() })).rejects.toThrow(/aborted/);
    const controller = new AbortController();
    const second = good(await v.ibv_open_device(device, { link, signal: controller.signal }));
    controller.abort();
    expect(await v.ibv_alloc_pd(second)).toBeNull();
    expect(v.errno).toBe(ECANCELED);
    expect(await v.ibv_open_device(device, { address: '10.0.0.1', port: 5n } as never)).toBeNull();
    expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'port']);
    // After all of them, the device is the same.
    const third = good(await v.ibv_open_device(device, { link }));
    expect(await v.ibv_alloc_pd(third)).not.toBeNull();
    for (const context of [first, third]) await v.ibv_close_device(context);
  });

  test('a device that can not be opened is null, with its errno', async () => {
    const [device] = v.ibv_get_device_list();
    expect(await v.ibv_open_device(device, { address: '203.0.113.77' })).toBeNull();
    expect(v.errno).toBe(constants.errno.EADDRNOTAVAIL);
    expect(v.lastError()?.message).toContain('203.0.113.77');
  });
});

describe.each([
  ['RC', v.IBV_QPT_RC],
  ['UC', v.IBV_QPT_UC],
])('%s', (_name, type) => {
  test('SEND with immediate, WRITE, inline, chains', async () => {
    const { a, b, qpA, qpB } = await openPair(type);
    expect([qpA.state, qpA.qp_type]).toEqual([v.IBV_QPS_RTS, type]);
    const recv = (wr_id: bigint, at: number): v.ibv_recv_wr => ({
      wr_id,
      sg_list: [{ addr: b.mr.addr + BigInt(at), length: 100, lkey: b.mr.lkey }],
      num_sge: 1,
    });
    const bad: (v.ibv_recv_wr | null)[] = [];
    expect(v.ibv_post_recv(qpB, { ...recv(1n, 0), next: recv(2n, 200) }, bad)).toBe(0);
    expect(bad).toEqual([]);

    a.buffer.set(new TextEncoder().encode('line by line'));
    const send: v.ibv_send_wr = {
      wr_id: 10n,
      opcode: v.IBV_WR_SEND_WITH_IMM,
      imm_data: 0x1234,
      send_flags: v.IBV_SEND_SIGNALED,
      // The memory itself, and the same by its address.
      sg_list: [
        { addr: a.buffer.subarray(0, 5), length: 5, lkey: a.mr.lkey },
        { addr: a.mr.addr + 5n, length: 7, lkey: a.mr.lkey },
      ],
      num_sge: 2,
      next: {
        wr_id: 11n,
        opcode: v.IBV_WR_SEND,
        send_flags: v.IBV_SEND_SIGNALED | v.IBV_SEND_INLINE,
        sg_list: [{ addr: Uint8Array.of(7, 8, 9), length: 2 }],
      },
    };
    expect(v.ibv_post_send(qpA, send)).toBe(0);
    expect(await completions(a.cq, 2)).toMatchObject([
      { wr_id: 10n, status: v.IBV_WC_SUCCESS, opcode: v.IBV_WC_SEND, qp_num: qpA.qp_num },
      { wr_id: 11n, status: v.IBV_WC_SUCCESS },
    ]);
    expect(await completions(b.cq, 2)).toMatchObject([
      { wr_id: 1n, opcode: v.IBV_WC_RECV, byte_len: 12, imm_data: 0x1234, wc_flags: v.IBV_WC_WITH_IMM },
      { wr_id: 2n, opcode: v.IBV_WC_RECV, byte_len: 2, wc_flags: 0 },
    ]);
    expect(new TextDecoder().decode(b.buffer.subarray(0, 12))).toBe('line by line');
    expect([...b.buffer.subarray(200, 203)]).toEqual([7, 8, 0]);

    v.ibv_post_send(qpA, {
      opcode: v.IBV_WR_RDMA_WRITE,
      send_flags: v.IBV_SEND_SIGNALED | v.IBV_SEND_INLINE,
      sg_list: [{ addr: a.mr.addr, length: 4, lkey: a.mr.lkey }],
      wr: { rdma: { remote_addr: b.mr.addr + 1000n, rkey: b.mr.rkey } },
    });
    const wc: Partial<v.ibv_wc> = {};
    while (v.ibv_poll_cq(a.cq, 1, wc) === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(wc).toMatchObject({ wr_id: 0n, status: v.IBV_WC_SUCCESS, opcode: v.IBV_WC_RDMA_WRITE });
    // UC completes when the packet has left.
    await expect.poll(() => new TextDecoder().decode(b.buffer.subarray(1000, 1004))).toBe('line');
  });
});

test('READ and atomics', async () => {
  const { a, b, qpA } = await openPair(v.IBV_QPT_RC);
  new DataView(b.buffer.buffer).setBigUint64(0, 40n, true);
  const sg_list = (at: number) => [{ addr: a.buffer.subarray(at), length: 8, lkey: a.mr.lkey }];
  const remote = { remote_addr: b.mr.addr, rkey: b.mr.rkey };
  const send_flags = v.IBV_SEND_SIGNALED;
  const chain: v.ibv_send_wr = {
    opcode: v.IBV_WR_ATOMIC_FETCH_AND_ADD,
    send_flags,
    sg_list: sg_list(0),
    wr: { atomic: { ...remote, compare_add: 2n } },
    next: {
      opcode: v.IBV_WR_ATOMIC_CMP_AND_SWP,
      send_flags,
      sg_list: sg_list(8),
      wr: { atomic: { ...remote, compare_add: 42, swap: 7n } },
      next: { opcode: v.IBV_WR_RDMA_READ, send_flags, sg_list: sg_list(16), wr: { rdma: remote } },
    },
  };
  expect(v.ibv_post_send(qpA, chain)).toBe(0);
  expect((await completions(a.cq, 3)).map((wc) => [wc.status, wc.opcode])).toEqual([
    [v.IBV_WC_SUCCESS, v.IBV_WC_FETCH_ADD],
    [v.IBV_WC_SUCCESS, v.IBV_WC_COMP_SWAP],
    [v.IBV_WC_SUCCESS, v.IBV_WC_RDMA_READ],
  ]);
  const words = new DataView(a.buffer.buffer);
  expect([0, 8, 16].map((at) => words.getBigUint64(at, true))).toEqual([40n, 42n, 7n]);
});

test('UD: address handles, the way back from a completion, groups', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_UD);
  const grh = { dgid: b.gid, hop_limit: 64 };
  const ah = good(await v.ibv_create_ah(a.pd, { is_global: 1, port_num: 1, grh }));
  expect(await v.ibv_create_ah(a.pd, { is_global: 0, port_num: 1, grh })).toBeNull();
  expect(v.errno).toBe(EINVAL);
  const receive = (side: typeof b, qp: v.ibv_qp) =>
    v.ibv_post_recv(qp, { sg_list: [{ addr: side.buffer, length: 100, lkey: side.mr.lkey }] });
  const datagram = (to: v.ibv_ah, remote_qpn: number, text: string): v.ibv_send_wr => ({
    opcode: v.IBV_WR_SEND,
    send_flags: v.IBV_SEND_INLINE | v.IBV_SEND_SIGNALED,
    sg_list: [{ addr: new TextEncoder().encode(text), length: text.length }],
    wr: { ud: { ah: to, remote_qpn, remote_qkey: QKEY } },
  });
  receive(b, qpB);
  expect(v.ibv_post_send(qpA, datagram(ah, qpB.qp_num, 'there'))).toBe(0);
  const [wc] = await completions(b.cq, 1);
  expect(wc).toMatchObject({ byte_len: 45, src_qp: qpA.qp_num, wc_flags: v.IBV_WC_GRH });
  expect(new TextDecoder().decode(b.buffer.subarray(40, 45))).toBe('there');

  const way: Partial<v.ibv_ah_attr> = {};
  expect(v.ibv_init_ah_from_wc(b.context, 1, wc, b.buffer, way)).toBe(0);
  expect(way).toMatchObject({ is_global: 1, port_num: 1, grh: { dgid: a.gid, sgid_index: 0 } });
  expect(v.ibv_init_ah_from_wc(b.context, 1, { ...wc, wc_flags: 0 }, b.buffer, way)).toBe(-1);
  expect(v.errno).toBe(EINVAL);
  const back = good(await v.ibv_create_ah_from_wc(b.pd, wc, b.buffer, 1));
  receive(a, qpA);
  v.ibv_post_send(qpB, datagram(back, wc.src_qp, 'back'));
  await completions(a.cq, 2);
  expect(new TextDecoder().decode(a.buffer.subarray(40, 44))).toBe('back');

  const group = { raw: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 224, 1, 2, 3) };
  expect(await v.ibv_attach_mcast(qpB, group, 0)).toBe(0);
  expect(await v.ibv_destroy_qp(qpB)).toBe(EBUSY);
  const toGroup = good(await v.ibv_create_ah(a.pd, { is_global: 1, port_num: 1, grh: { dgid: group } }));
  receive(b, qpB);
  v.ibv_post_send(qpA, datagram(toGroup, 0xff_ffff, 'all'));
  await completions(b.cq, 2);
  expect(new TextDecoder().decode(b.buffer.subarray(40, 43))).toBe('all');
  expect(await v.ibv_detach_mcast(qpB, group)).toBe(0);
  expect(await v.ibv_detach_mcast(qpB, group)).toBe(EINVAL);
  expect(await v.ibv_destroy_ah(toGroup)).toBe(0);
  expect(await v.ibv_destroy_qp(qpB)).toBe(0);
});

test('shared receive queues, their limit, and the last WQE', async () => {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  const init: v.ibv_srq_init_attr = { srq_context: 'mine', attr: { max_wr: 5, max_sge: 1 } };
  const srq = good(await v.ibv_create_srq(b.pd, init));
  expect(init.attr.max_wr).toBeGreaterThanOrEqual(5);
  expect(srq.srq_context).toBe('mine');
  const qpB = await createQp(b, v.IBV_QPT_RC, srq);
  const qpA = await createQp(a, v.IBV_QPT_RC);
  await connect(qpA, b.gid, qpB.qp_num);
  await connect(qpB, a.gid, qpA.qp_num);

  const recv: v.ibv_recv_wr = { wr_id: 1, sg_list: [{ addr: b.buffer, length: 8, lkey: b.mr.lkey }] };
  expect(v.ibv_post_recv(qpB, recv)).toBe(EINVAL);
  for (let i = 0; i < 3; i++) expect(v.ibv_post_srq_recv(srq, recv)).toBe(0);
  expect(await v.ibv_modify_srq(srq, { srq_limit: 3 }, v.IBV_SRQ_LIMIT)).toBe(0);
  const attr: v.ibv_srq_attr = {};
  expect(await v.ibv_query_srq(srq, attr)).toBe(0);
  expect(attr).toMatchObject({ srq_limit: 3, max_wr: init.attr.max_wr });
  expect(await v.ibv_modify_srq(srq, {}, 4)).toBe(EINVAL);

  v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_SIGNALED });
  await completions(a.cq, 1);
  const event: v.ibv_async_event = {};
  expect(await v.ibv_get_async_event(b.context, event)).toBe(0);
  expect(event.event_type).toBe(v.IBV_EVENT_SRQ_LIMIT_REACHED);
  expect(event.element?.srq).toBe(srq);
  expect(v.ibv_event_type_str(event.event_type!)).toBe('SRQ limit reached');
  v.ibv_ack_async_event({ ...event });

  await v.ibv_modify_qp(qpB, { qp_state: v.IBV_QPS_ERR }, v.IBV_QP_STATE);
  expect(await v.ibv_get_async_event(b.context, event)).toBe(0);
  expect([event.event_type, event.element?.qp]).toEqual([v.IBV_EVENT_QP_LAST_WQE_REACHED, qpB]);

  // Destruction waits for the acknowledgment.
  let destroyed = false;
  const destroying = v.ibv_destroy_qp(qpB).then((code) => {
    destroyed = true;
    return code;
  });
  await turns();
  expect(destroyed).toBe(false);
  expect(await v.ibv_destroy_srq(srq)).toBe(0);
  v.ibv_ack_async_event(event);
  expect(await destroying).toBe(0);
});

test('memory windows of both types', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
  const write = async (rkey: number, remote_addr: bigint) => {
    v.ibv_post_send(qpA, {
      opcode: v.IBV_WR_RDMA_WRITE,
      send_flags: v.IBV_SEND_SIGNALED,
      sg_list: [{ addr: a.buffer, length: 4, lkey: a.mr.lkey }],
      wr: { rdma: { remote_addr, rkey } },
    });
    return (await completions(a.cq, 1))[0].status;
  };
  a.buffer.fill(5, 0, 4);
  const bind_info = {
    mr: b.mr,
    addr: b.buffer.subarray(100),
    length: 10,
    mw_access_flags: v.IBV_ACCESS_REMOTE_WRITE,
  };
  const one = good(await v.ibv_alloc_mw(b.pd, v.IBV_MW_TYPE_1));
  expect(v.ibv_bind_mw(qpB, one, { wr_id: 1n, send_flags: v.IBV_SEND_SIGNALED, bind_info })).toBe(0);
  expect(await completions(b.cq, 1)).toMatchObject([{ opcode: v.IBV_WC_BIND_MW, status: v.IBV_WC_SUCCESS }]);
  expect(await write(one.rkey, b.mr.addr + 100n)).toBe(v.IBV_WC_SUCCESS);
  expect([...b.buffer.subarray(99, 105)]).toEqual([0, 5, 5, 5, 5, 0]);
  expect(await v.ibv_dereg_mr(b.mr)).toBe(EBUSY);
  expect(await v.ibv_dealloc_mw(one)).toBe(0);

  const two = good(await v.ibv_alloc_mw(b.pd, v.IBV_MW_TYPE_2));
  const rkey = v.ibv_inc_rkey(two.rkey);
  expect(rkey >>> 8).toBe(two.rkey >>> 8);
  const bind: v.ibv_send_wr = {
    opcode: v.IBV_WR_BIND_MW,
    send_flags: v.IBV_SEND_SIGNALED,
    bind_mw: { mw: two, rkey, bind_info },
  };
  expect(v.ibv_post_send(qpB, bind)).toBe(0);
  two.rkey = rkey;
  expect(await completions(b.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
  expect(await write(rkey, b.mr.addr + 104n)).toBe(v.IBV_WC_SUCCESS);
  v.ibv_post_send(qpB, {
    opcode: v.IBV_WR_LOCAL_INV,
    send_flags: v.IBV_SEND_SIGNALED,
    invalidate_rkey: rkey,
  });
  expect(await completions(b.cq, 1)).toMatchObject([
    { opcode: v.IBV_WC_LOCAL_INV, status: v.IBV_WC_SUCCESS },
  ]);
  expect(await write(rkey, b.mr.addr + 104n)).toBe(v.IBV_WC_REM_ACCESS_ERR);
  expect(v.ibv_wc_status_str(v.IBV_WC_REM_ACCESS_ERR)).toBe('remote access error');
});

test('SEND_WITH_INV: the key shows in the completion', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
  const mw = good(await v.ibv_alloc_mw(b.pd, v.IBV_MW_TYPE_2));
  const rkey = v.ibv_inc_rkey(mw.rkey);
  const bind_info = { mr: b.mr, addr: b.mr.addr, length: 64n, mw_access_flags: v.IBV_ACCESS_REMOTE_READ };
  const send_flags = v.IBV_SEND_SIGNALED;
  v.ibv_post_send(qpB, { opcode: v.IBV_WR_BIND_MW, send_flags, bind_mw: { mw, rkey, bind_info } });
  expect(await completions(b.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
  v.ibv_post_recv(qpB, { wr_id: 3 });
  v.ibv_post_send(qpA, {
    opcode: v.IBV_WR_SEND_WITH_INV,
    invalidate_rkey: rkey,
    send_flags: v.IBV_SEND_SIGNALED,
  });
  expect(await completions(a.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
  expect(await completions(b.cq, 1)).toMatchObject([
    { wr_id: 3n, wc_flags: v.IBV_WC_WITH_INV, invalidated_rkey: rkey },
  ]);
});

test('errorOf is the error of its call, whatever failed since', async () => {
  const { pd, buffer, context } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const taken = v.ibv_reg_mr(pd, buffer, 8, 0);
  const refused = v.ibv_reg_mr(pd, buffer, 65_537, REMOTE_ALL);
  const other = v.ibv_create_cq(context, -1);
  const again = v.ibv_rereg_mr(good(await taken), 0, null, null, 0, 0);
  expect(v.errorOf(again)).toBeUndefined();
  expect(await Promise.all([refused, other, again])).toEqual([null, null, v.IBV_REREG_MR_ERR_INPUT]);
  expect([taken, refused, other, again].map((call) => v.errorOf(call)?.attribute)).toEqual([
    undefined,
    'length',
    'cqe',
    'flags',
  ]);
});

test('regions: rights, addresses of choice, registered anew', async () => {
  const { pd, buffer } = await openSide(new MemoryNetwork(), '10.0.0.1');
  expect(await v.ibv_reg_mr(pd, buffer, 65_537, REMOTE_ALL)).toBeNull();
  expect(v.lastError()).toMatchObject({ attribute: 'length', errno: 'EINVAL' });
  expect(await v.ibv_reg_mr(pd, buffer, 8, v.IBV_ACCESS_REMOTE_WRITE)).toBeNull();
  expect(v.lastError()?.attribute).toBe('access');
  expect(await v.ibv_reg_mr(pd, [1, 2] as never, 2, 0)).toBeNull();
  const relaxed = await v.ibv_reg_mr(pd, buffer, 8, v.IBV_ACCESS_RELAXED_ORDERING);
  expect(relaxed?.length).toBe(8);

  const mr = good(await v.ibv_reg_mr_iova(pd, buffer, 4096, 0x1000n, REMOTE_ALL));
  expect(mr.iova).toBe(0x1000n);
  const { lkey } = mr;
  expect(
    await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_ACCESS, null, null, 0, v.IBV_ACCESS_LOCAL_WRITE),
  ).toBe(0);
  expect(mr.lkey).toBe(lkey);
  expect(await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_TRANSLATION, null, buffer, 100, 0)).toBe(0);
  expect([mr.length, mr.lkey === lkey]).toEqual([100, false]);
  expect(await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_PD, null, null, 0, 0)).toBe(v.IBV_REREG_MR_ERR_INPUT);
  expect(v.errno).toBe(EINVAL);
  expect(await v.ibv_rereg_mr(mr, 8, pd, null, 0, 0)).toBe(v.IBV_REREG_MR_ERR_INPUT);
  expect(await v.ibv_dealloc_pd(pd)).toBe(EBUSY);
  expect(await v.ibv_dereg_mr(mr)).toBe(0);
});

test('completion channels: context, acknowledgment, solicited only', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
  expect(b.channel.refcnt).toBe(1);
  expect(v.ibv_req_notify_cq(b.cq, 1)).toBe(0);
  v.ibv_post_recv(qpB, { wr_id: 1, next: { wr_id: 2 } });
  v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_SIGNALED });
  await completions(a.cq, 1);
  expect(b.channel.verbs.pollEvent()).toBeUndefined();
  v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_SOLICITED });
  const cq: v.ibv_cq[] = [];
  const context: unknown[] = [];
  expect(await v.ibv_get_cq_event(b.channel, cq, context)).toBe(0);
  expect([cq[0], context[0]]).toEqual([b.cq, 'my cq']);

  expect(await v.ibv_destroy_cq(b.cq)).toBe(EBUSY);
  expect(await v.ibv_destroy_comp_channel(b.channel)).toBe(EBUSY);
  expect(await v.ibv_destroy_qp(qpB)).toBe(0);
  const destroying = v.ibv_destroy_cq(b.cq);
  v.ibv_ack_cq_events(b.cq, 1);
  expect(await destroying).toBe(0);
  const waiting = v.ibv_get_cq_event(b.channel, cq, context);
  expect(await v.ibv_destroy_comp_channel(b.channel)).toBe(0);
  expect(await waiting).toBe(-1);
  expect(v.errno).toBe(ECANCELED);
});

test('completion queues: resize, overrun', async () => {
  const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
  expect(await v.ibv_create_cq(a.context, 1 << 30, null, null, 0)).toBeNull();
  expect(await v.ibv_resize_cq(a.cq, 1000)).toBe(0);
  expect(a.cq.cqe).toBeGreaterThanOrEqual(1000);
  expect(await v.ibv_resize_cq(a.cq, 0)).toBe(EINVAL);

  expect(await v.ibv_resize_cq(b.cq, 2)).toBe(0);
  for (let i = 0; i < 8; i++) v.ibv_post_recv(qpB, { wr_id: i });
  for (let i = 0; i < 8; i++) v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND });
  const event: v.ibv_async_event = {};
  const seen: unknown[] = [];
  while (!seen.includes(v.IBV_EVENT_CQ_ERR)) {
    expect(await v.ibv_get_async_event(b.context, event)).toBe(0);
    seen.push(event.event_type);
    if (event.event_type === v.IBV_EVENT_CQ_ERR) expect(event.element?.cq).toBe(b.cq);
    v.ibv_ack_async_event(event);
  }
  const wc: v.ibv_wc[] = [];
  let found = v.ibv_poll_cq(b.cq, 16, wc);
  expect(found).toBe(b.cq.cqe);
  found = v.ibv_poll_cq(b.cq, 16, wc);
  expect([found, v.errno]).toEqual([-1, constants.errno.EIO]);
});

describe('posting, refused', () => {
  test('bad_wr is the first that was not posted', async () => {
    const { a, qpA } = await openPair(v.IBV_QPT_RC);
    const last = { wr_id: 3n, opcode: v.IBV_WR_SEND };
    const wrong: v.ibv_send_wr = { wr_id: 2n, opcode: v.IBV_WR_SEND, num_sge: 1, next: last };
    const bad: (v.ibv_send_wr | null)[] = [];
    const first = { wr_id: 1n, opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_SIGNALED, next: wrong };
    expect(v.ibv_post_send(qpA, first, bad)).toBe(EINVAL);
    expect(bad[0]).toBe(wrong);
    expect(v.lastError()?.attribute).toBe('num_sge');
    expect(v.ibv_post_send(qpA, { opcode: 77 })).toBe(EOPNOTSUPP);
    expect(v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_IP_CSUM })).toBe(EOPNOTSUPP);
    const inline = { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_INLINE };
    expect(v.ibv_post_send(qpA, { ...inline, sg_list: [{ addr: 5n, length: 1, lkey: 1 }] })).toBe(EINVAL);
    expect(v.ibv_post_send(qpA, { ...inline, sg_list: [{ addr: a.buffer, length: 70_000 }] })).toBe(EINVAL);
    // Bytes behind a view in its buffer are not sent.
    const view = a.buffer.subarray(4, 8);
    expect(v.ibv_post_send(qpA, { ...inline, sg_list: [{ addr: view, length: 5 }] })).toBe(EINVAL);
    expect(v.ibv_post_send(qpA, { ...inline, sg_list: [{ addr: view, length: 4 }] })).toBe(0);
  });

  test('a full queue is ENOMEM, a wrong state EINVAL', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const qp = await createQp(side, v.IBV_QPT_RC);
    expect(v.ibv_post_recv(qp, {})).toBe(EINVAL);
    expect(v.ibv_post_send(qp, { opcode: v.IBV_WR_SEND })).toBe(EINVAL);
    await v.ibv_modify_qp(
      qp,
      { qp_state: v.IBV_QPS_INIT, port_num: 1 },
      v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS,
    );
    const init: Partial<v.ibv_qp_init_attr> = {};
    expect(await v.ibv_query_qp(qp, {}, v.IBV_QP_CAP, init)).toBe(0);
    for (let i = 0; i < init.cap!.max_recv_wr!; i++) expect(v.ibv_post_recv(qp, {})).toBe(0);
    expect(v.ibv_post_recv(qp, {})).toBe(ENOMEM);
  });

  test('a key that does not open the memory shows in the completion, as in C', async () => {
    for (const sge of [
      { addr: new Uint8Array(8), length: 8 },
      { addr: 12n, length: 8, lkey: 99 },
    ]) {
      const { a, qpA } = await openPair(v.IBV_QPT_RC);
      const lkey = sge.lkey ?? a.mr.lkey;
      expect(v.ibv_post_send(qpA, { opcode: v.IBV_WR_SEND, sg_list: [{ ...sge, lkey }] })).toBe(0);
      expect(await completions(a.cq, 1)).toMatchObject([{ status: v.IBV_WC_LOC_PROT_ERR }]);
    }
  });
});

describe('queue pairs', () => {
  test('caps are at least those asked for; more than the limits, or another type, is refused', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const init: v.ibv_qp_init_attr = {
      qp_context: { mine: true },
      send_cq: side.cq,
      recv_cq: side.cq,
      cap: { max_send_wr: 3, max_recv_wr: 5, max_send_sge: 1, max_recv_sge: 1 },
      qp_type: v.IBV_QPT_UC,
    };
    const qp = good(await v.ibv_create_qp(side.pd, init));
    expect(init.cap.max_send_wr).toBeGreaterThanOrEqual(3);
    expect(init.cap.max_recv_wr).toBeGreaterThanOrEqual(5);
    expect(qp.qp_context).toBe(init.qp_context);
    const refused = async (change: Partial<v.ibv_qp_init_attr>) => {
      expect(await v.ibv_create_qp(side.pd, { ...init, ...change })).toBeNull();
      return [v.errno, v.lastError()?.attribute];
    };
    expect(await refused({ qp_type: v.IBV_QPT_XRC_SEND })).toEqual([EOPNOTSUPP, 'qp_type']);
    // A link in memory has no frames.
    expect(await refused({ qp_type: v.IBV_QPT_RAW_PACKET })).toEqual([EOPNOTSUPP, 'qp_type']);
    expect(await refused({ cap: { max_send_wr: 1 << 20 } })).toEqual([EINVAL, 'cap.max_send_wr']);
    expect(await refused({ recv_cq: null as never })).toEqual([EINVAL, 'recv_cq']);
  });

  test('a mask takes its attributes and no others; errors name the attribute', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const qp = await createQp(side, v.IBV_QPT_RC);
    const attr: v.ibv_qp_attr = { qp_state: v.IBV_QPS_INIT, port_num: 1, timeout: 14 };
    const mask = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT;
    const attempt = async (a: v.ibv_qp_attr, m: number) => [
      await v.ibv_modify_qp(qp, a, m),
      v.lastError()?.attribute,
    ];
    expect(await attempt(attr, mask)).toEqual([EINVAL, 'qp_access_flags']);
    expect(await attempt(attr, mask | v.IBV_QP_ACCESS_FLAGS | v.IBV_QP_TIMEOUT)).toEqual([EINVAL, 'timeout']);
    expect(await attempt(attr, 1 << 22)).toEqual([EINVAL, 'attr_mask']);
    expect(await attempt({ qp_state: 9 }, v.IBV_QP_STATE)).toEqual([EINVAL, 'qp_state']);
    expect(qp.state).toBe(v.IBV_QPS_RESET);
    expect(await v.ibv_modify_qp(qp, attr, mask | v.IBV_QP_ACCESS_FLAGS)).toBe(0);
    expect(qp.state).toBe(v.IBV_QPS_INIT);
    // Sizes that are left out are 0, which is taken as 1.
    expect(await v.ibv_modify_qp(qp, attr, v.IBV_QP_CAP)).toBe(0);
    expect(attr.cap).toMatchObject({ max_send_wr: 1, max_recv_wr: 1 });
  });

  test('a query fills the valid members and empties the rest', async () => {
    const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
    const attr: v.ibv_qp_attr = { alt_timeout: 99, qkey: 1 };
    const init: Partial<v.ibv_qp_init_attr> = {};
    expect(await v.ibv_query_qp(qpA, attr, v.IBV_QP_STATE, init)).toBe(0);
    expect(attr).toMatchObject({
      qp_state: v.IBV_QPS_RTS,
      path_mtu: v.IBV_MTU_1024,
      dest_qp_num: qpB.qp_num,
      rq_psn: 7,
      sq_psn: 7,
      timeout: 14,
      ah_attr: { is_global: 1, port_num: 1, grh: { dgid: b.gid, hop_limit: 64 } },
    });
    expect([attr.alt_timeout, attr.qkey, attr.path_mig_state, attr.sq_draining]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(init).toMatchObject({ send_cq: a.cq, recv_cq: a.cq, srq: null, qp_type: v.IBV_QPT_RC });
    expect(await v.ibv_query_qp(qpA, attr, 1 << 30)).toBe(EINVAL);
  });

  test.each([
    ['UC', v.IBV_QPT_UC],
    ['UD', v.IBV_QPT_UD],
  ])('SQE of %s: a send that fails, the later ones flushed, and the way back', async (_name, type) => {
    const { a, b, qpA, qpB } = await openPair(type);
    const ah = good(await v.ibv_create_ah(a.pd, { is_global: 1, port_num: 1, grh: { dgid: b.gid } }));
    const wr = { ud: { ah, remote_qpn: qpB.qp_num, remote_qkey: QKEY } };
    const send = {
      opcode: v.IBV_WR_SEND,
      send_flags: v.IBV_SEND_SIGNALED,
      ...(type === v.IBV_QPT_UD && { wr }),
    };
    const bad = { ...send, wr_id: 1n, sg_list: [{ addr: 5n, length: 8, lkey: 1 }] };
    expect(v.ibv_post_send(qpA, { ...bad, next: { ...send, wr_id: 2n } })).toBe(0);
    expect((await completions(a.cq, 2)).map((wc) => wc.status)).toEqual([
      v.IBV_WC_LOC_PROT_ERR,
      v.IBV_WC_WR_FLUSH_ERR,
    ]);
    expect(qpA.state).toBe(v.IBV_QPS_SQE);
    const back = { qp_state: v.IBV_QPS_RTS, cur_qp_state: v.IBV_QPS_SQE };
    expect(await v.ibv_modify_qp(qpA, back, v.IBV_QP_STATE | v.IBV_QP_CUR_STATE)).toBe(0);
    v.ibv_post_recv(qpB, { sg_list: [{ addr: b.buffer, length: 100, lkey: b.mr.lkey }] });
    expect(v.ibv_post_send(qpA, send)).toBe(0);
    expect(await completions(b.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
  });

  test('rate limit, of RC in RTS', async () => {
    const { qpA } = await openPair(v.IBV_QPT_RC);
    expect(await v.ibv_modify_qp_rate_limit(qpA, { rate_limit: 1000 })).toBe(0);
    const attr: v.ibv_qp_attr = {};
    await v.ibv_query_qp(qpA, attr, v.IBV_QP_RATE_LIMIT);
    expect(attr.rate_limit).toBe(1000);
    expect(await v.ibv_modify_qp_rate_limit(qpA, { rate_limit: 1, max_burst_sz: 1 })).toBe(EOPNOTSUPP);
  });

  test('SQD: drained, with its event; and on', async () => {
    const { a, qpA } = await openPair(v.IBV_QPT_RC);
    const sqd = { qp_state: v.IBV_QPS_SQD, en_sqd_async_notify: 1 };
    expect(await v.ibv_modify_qp(qpA, sqd, v.IBV_QP_STATE | v.IBV_QP_EN_SQD_ASYNC_NOTIFY)).toBe(0);
    const event: v.ibv_async_event = {};
    expect(await v.ibv_get_async_event(a.context, event)).toBe(0);
    expect([event.event_type, event.element?.qp]).toEqual([v.IBV_EVENT_SQ_DRAINED, qpA]);
    v.ibv_ack_async_event(event);
    const attr: v.ibv_qp_attr = {};
    await v.ibv_query_qp(qpA, attr, v.IBV_QP_STATE);
    expect([attr.qp_state, attr.sq_draining]).toEqual([v.IBV_QPS_SQD, 0]);
    const back = { qp_state: v.IBV_QPS_RTS, cur_qp_state: v.IBV_QPS_SQD };
    expect(await v.ibv_modify_qp(qpA, back, v.IBV_QP_STATE | v.IBV_QP_CUR_STATE)).toBe(0);
  });
});

test('names values; "unknown" for others', () => {
  const numbers = (prefix: string) =>
    Object.entries(v).flatMap(([name, value]) => (name.startsWith(prefix) ? [value as number] : []));
  for (const event of numbers('IBV_EVENT_')) expect(v.ibv_event_type_str(event)).not.toBe('unknown');
  for (const opcode of numbers('IBV_WR_')) expect(v.ibv_wr_opcode_str(opcode)).toMatch(/^IBV_WR_/);
  for (let status = 0; status <= v.IBV_WC_TM_RNDV_INCOMPLETE; status++) {
    expect(v.ibv_wc_status_str(status)).not.toBe('unknown');
  }
  for (const name of [v.ibv_event_type_str, v.ibv_wc_status_str, v.ibv_wr_opcode_str, v.ibv_port_state_str]) {
    expect(name(99)).toBe('unknown');
  }
  expect(v.ibv_node_type_str(v.IBV_NODE_UNKNOWN)).toBe('unknown');
});

test('with the engine in a worker, over UDP: two queue pairs of one context', async () => {
  const lo = v.ibv_get_device_list().find((device) => device.name === 'lo')!;
  const context = good(await v.ibv_open_device(lo, { address: host(1), port: 4795, engine: 'worker' }));
  const pd = good(await v.ibv_alloc_pd(context));
  expect(await v.ibv_reg_mr(pd, new Uint8Array(8), 8, 0)).toBeNull();
  expect(v.lastError()?.code).toBe('ERR_ROCE_NOT_SHARED');
  const buffer = new Uint8Array(new SharedArrayBuffer(4096));
  const mr = good(await v.ibv_reg_mr(pd, buffer, 4096, REMOTE_ALL));
  const cq = good(await v.ibv_create_cq(context, 16));
  const gid = { raw: new Uint8Array(16) };
  await v.ibv_query_gid(context, 1, 0, gid);
  const side = { context, pd, cq } as Parameters<typeof createQp>[0];
  const [one, two] = [await createQp(side, v.IBV_QPT_RC), await createQp(side, v.IBV_QPT_RC)];
  await connect(one, gid, two.qp_num);
  await connect(two, gid, one.qp_num);
  buffer.fill(9, 0, 100);
  v.ibv_post_send(one, {
    opcode: v.IBV_WR_RDMA_WRITE,
    send_flags: v.IBV_SEND_SIGNALED,
    sg_list: [{ addr: buffer, length: 100, lkey: mr.lkey }],
    wr: { rdma: { remote_addr: mr.addr + 1000n, rkey: mr.rkey } },
  });
  // A loop that does not await is enough here: the engine has a thread of its own.
  const wc: Partial<v.ibv_wc> = {};
  while (v.ibv_poll_cq(cq, 1, wc) === 0);
  expect(wc.status).toBe(v.IBV_WC_SUCCESS);
  expect(buffer.subarray(1000, 1100).every((byte) => byte === 9)).toBe(true);
  expect(await v.ibv_close_device(context)).toBe(0);
});

test('a closed device ends who waits', async () => {
  const { context } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const waiting = v.ibv_get_async_event(context, {});
  expect(await v.ibv_close_device(context)).toBe(0);
  expect(await waiting).toBe(-1);
  expect(v.errno).toBe(ECANCELED);
  expect(await v.ibv_alloc_pd(context)).toBeNull();
});

test('an error that is no RoceError is a bug, and is thrown', async () => {
  const { pd } = await openSide(new MemoryNetwork(), '10.0.0.1');
  vi.spyOn(pd.verbs, 'dealloc').mockRejectedValue(new TypeError('a bug'));
  await expect(v.ibv_dealloc_pd(pd)).rejects.toThrow('a bug');
});
