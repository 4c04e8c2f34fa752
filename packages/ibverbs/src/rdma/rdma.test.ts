/** Programs written as in C: event loops around rdma_get_cm_event, and calls without a channel. */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { type Device, openDevice, RoceError } from '@node-roce/verbs-api';
import { describe, expect, test, vi } from 'vitest';
import { clockOfTurns, turns } from '../../../verbs-api/testing/clock.ts';
import { good } from '../../testing/pair.ts';
import * as v from '../index.ts';

const [CLIENT, SERVER] = ['10.0.0.1', '10.0.0.2'];
const PORT = 7471;
const COUNT = 5;
const SIZE = 100;

interface Net extends AsyncDisposable {
  client: Device;
  server: Device;
}

async function openNet(): Promise<Net> {
  const network = new MemoryNetwork();
  const client = await openDevice({ link: network.link(CLIENT) });
  const server = await openDevice({ link: network.link(SERVER) });
  return {
    client,
    server,
    async [Symbol.asyncDispose]() {
      await client.close();
      await server.close();
    },
  };
}

const init = (): v.ibv_qp_init_attr =>
  ({
    cap: { max_send_wr: COUNT, max_recv_wr: COUNT, max_send_sge: 1, max_recv_sge: 1 },
    sq_sig_all: 1,
  }) as never;

async function check(result: Promise<0 | -1>): Promise<void> {
  if ((await result) !== 0) throw new Error(`${v.strerror(v.errno)}: ${v.lastError()?.message}`);
}

/** The next event, which has to be this one. */
async function expectEvent(channel: v.rdma_event_channel, code: number): Promise<v.rdma_cm_event> {
  const event: v.rdma_cm_event[] = [];
  await check(v.rdma_get_cm_event(channel, event));
  expect(v.rdma_event_str(event[0].event)).toBe(v.rdma_event_str(code));
  v.rdma_ack_cm_event(event[0]);
  return event[0];
}

async function completions(cq: v.ibv_cq, count: number): Promise<v.ibv_wc[]> {
  const all: v.ibv_wc[] = [];
  while (all.length < count) {
    const wc: v.ibv_wc[] = [];
    if (v.ibv_poll_cq(cq, count - all.length, wc) === 0)
      await new Promise((resolve) => setImmediate(resolve));
    all.push(...wc);
  }
  for (const { status } of all) expect(status).toBe(v.IBV_WC_SUCCESS);
  return all;
}

/** Queue pair, memory and receives of an id, as ucmatose's init_node and post_recvs. */
async function node(id: v.rdma_cm_id): Promise<v.ibv_mr> {
  await check(v.rdma_create_qp(id, null, init()));
  const mr = good(await v.ibv_reg_mr(id.pd!, new Uint8Array(SIZE), SIZE, v.IBV_ACCESS_LOCAL_WRITE));
  for (let i = 0; i < COUNT; i++) {
    const bad: v.ibv_recv_wr[] = [];
    const wr = { wr_id: i, sg_list: [{ addr: mr.addr, length: SIZE, lkey: mr.lkey }], num_sge: 1 };
    expect(v.ibv_post_recv(id.qp!, wr, bad)).toBe(0);
  }
  return mr;
}

function post(id: v.rdma_cm_id, mr: v.ibv_mr): void {
  for (let i = 0; i < COUNT; i++) {
    const bad: v.ibv_send_wr[] = [];
    const sg_list = [{ addr: mr.addr, length: SIZE, lkey: mr.lkey }];
    expect(v.ibv_post_send(id.qp!, { wr_id: i, opcode: v.IBV_WR_SEND, sg_list, num_sge: 1 }, bad)).toBe(0);
  }
}

const param = { responder_resources: 1, initiator_depth: 1, retry_count: 5 };

/** ucmatose's server: takes a connection, sends, receives, disconnects. */
async function runServer(device: Device, ready: () => void): Promise<void> {
  const channel = v.rdma_create_event_channel();
  const listen: v.rdma_cm_id[] = [];
  await check(v.rdma_create_id(channel, listen, 'listener', v.RDMA_PS_TCP, { device }));
  await check(v.rdma_bind_addr(listen[0], { address: SERVER, port: PORT }));
  await check(v.rdma_listen(listen[0], 0));
  expect(v.rdma_get_src_port(listen[0])).toBe(PORT);
  ready();
  const request = await expectEvent(channel, v.RDMA_CM_EVENT_CONNECT_REQUEST);
  const { id } = request;
  expect(request.listen_id).toBe(listen[0]);
  expect(id.context).toBe('listener');
  expect(request.param.conn).toMatchObject({
    responder_resources: 1,
    initiator_depth: 1,
    private_data_len: 56,
  });
  expect(v.rdma_get_peer_addr(id)?.address).toBe(CLIENT);
  const mr = await node(id);
  await check(v.rdma_accept(id, { ...param, private_data: new TextEncoder().encode('welcome') }));
  expect((await expectEvent(channel, v.RDMA_CM_EVENT_ESTABLISHED)).id).toBe(id);
  post(id, mr);
  await completions(id.send_cq!, COUNT);
  await completions(id.recv_cq!, COUNT);
  await check(v.rdma_disconnect(id));
  await expectEvent(channel, v.RDMA_CM_EVENT_DISCONNECTED);
  await check(v.rdma_destroy_qp(id));
  await check(v.rdma_destroy_id(id));
  await check(v.rdma_destroy_id(listen[0]));
  await v.rdma_destroy_event_channel(channel);
}

/** Its client: receives, sends, and waits for the end. */
async function runClient(device: Device): Promise<void> {
  const channel = v.rdma_create_event_channel();
  const ids: v.rdma_cm_id[] = [];
  await check(v.rdma_create_id(channel, ids, 'client', v.RDMA_PS_TCP, { device }));
  const [id] = ids;
  await check(v.rdma_set_option(id, v.RDMA_OPTION_ID, v.RDMA_OPTION_ID_TOS, 104));
  expect(id.verbs).toBeNull();
  await check(v.rdma_resolve_addr(id, { address: CLIENT }, { address: SERVER, port: PORT }, 2000));
  await expectEvent(channel, v.RDMA_CM_EVENT_ADDR_RESOLVED);
  expect(id.verbs?.verbs).toBe(device);
  await check(v.rdma_resolve_route(id, 2000));
  await expectEvent(channel, v.RDMA_CM_EVENT_ROUTE_RESOLVED);
  const mr = await node(id);
  await check(v.rdma_connect(id, param));
  const { param: answer } = await expectEvent(channel, v.RDMA_CM_EVENT_ESTABLISHED);
  expect(new TextDecoder().decode(answer.conn!.private_data!.subarray(0, 7))).toBe('welcome');
  await completions(id.recv_cq!, COUNT);
  post(id, mr);
  await completions(id.send_cq!, COUNT);
  await expectEvent(channel, v.RDMA_CM_EVENT_DISCONNECTED);
  await check(v.rdma_disconnect(id));
  await check(v.rdma_destroy_qp(id));
  await check(v.rdma_destroy_id(id));
  await v.rdma_destroy_event_channel(channel);
}

test('ucmatose, line by line: both programs', async () => {
  await using net = await openNet();
  let serving = Promise.resolve();
  await new Promise<void>((ready) => {
    serving = runServer(net.server, ready);
  });
  await runClient(net.client);
  await serving;
});

describe('without a channel', () => {
  test('calls resolve when they are done', async () => {
    await using net = await openNet();
    const [listen, client, server]: v.rdma_cm_id[][] = [[], [], []];
    await check(v.rdma_create_id(null, listen, null, v.RDMA_PS_TCP, { device: net.server }));
    await check(v.rdma_bind_addr(listen[0], { address: SERVER }));
    await check(v.rdma_listen(listen[0], 1));
    const port = v.rdma_get_src_port(listen[0]);
    expect(port).toBeGreaterThan(0);
    await check(v.rdma_create_id(null, client, null, v.RDMA_PS_TCP, { device: net.client }));
    await check(v.rdma_resolve_addr(client[0], null, { address: SERVER, port }));
    await check(v.rdma_resolve_route(client[0]));
    await node(client[0]);
    const connecting = check(v.rdma_connect(client[0]));
    await check(v.rdma_get_request(listen[0], server));
    await node(server[0]);
    await check(v.rdma_accept(server[0]));
    await connecting;
    expect([client[0].qp!.state, server[0].qp!.state]).toEqual([v.IBV_QPS_RTS, v.IBV_QPS_RTS]);
    expect(v.rdma_get_dst_port(client[0])).toBe(port);
    await check(v.rdma_disconnect(client[0]));
    for (const [id] of [client, server, listen]) await check(v.rdma_destroy_id(id));
  });

  test('a port where nobody listens: −1 and ECONNREFUSED', async () => {
    await using net = await openNet();
    const id: v.rdma_cm_id[] = [];
    await check(v.rdma_create_id(null, id, null, v.RDMA_PS_TCP, { device: net.client }));
    await check(v.rdma_resolve_addr(id[0], null, { address: SERVER, port: PORT }));
    await check(v.rdma_resolve_route(id[0]));
    await node(id[0]);
    expect(await v.rdma_connect(id[0])).toBe(-1);
    expect(v.errno).toBe(constants.errno.ECONNREFUSED);
    expect(v.lastError()?.message).toContain('start the server first');
    await check(v.rdma_destroy_id(id[0]));
  });
});

test('the parameters in the event of a request are taken by rdma_accept: a send waits for its receive', async () => {
  clockOfTurns();
  await using net = await openNet();
  const [ours, theirs] = [v.rdma_create_event_channel(), v.rdma_create_event_channel()];
  const [listen, ids]: v.rdma_cm_id[][] = [[], []];
  await check(v.rdma_create_id(theirs, listen, null, v.RDMA_PS_TCP, { device: net.server }));
  await check(v.rdma_bind_addr(listen[0], { address: SERVER, port: PORT }));
  await check(v.rdma_listen(listen[0], 1));
  await check(v.rdma_create_id(ours, ids, null, v.RDMA_PS_TCP, { device: net.client }));
  const [client] = ids;
  await check(v.rdma_resolve_addr(client, null, { address: SERVER, port: PORT }));
  await expectEvent(ours, v.RDMA_CM_EVENT_ADDR_RESOLVED);
  await check(v.rdma_resolve_route(client));
  await expectEvent(ours, v.RDMA_CM_EVENT_ROUTE_RESOLVED);
  const mr = await node(client);
  await check(v.rdma_connect(client, { ...param, rnr_retry_count: 7 }));
  const request = await expectEvent(theirs, v.RDMA_CM_EVENT_CONNECT_REQUEST);
  const { conn } = request.param;
  const common = { responder_resources: 1, initiator_depth: 1, flow_control: 0, rnr_retry_count: 7, srq: 0 };
  expect(conn).toMatchObject({ ...common, retry_count: 5, qp_num: client.qp!.qp_num });
  const server = request.id;
  await check(v.rdma_create_qp(server, null, init()));
  await check(v.rdma_accept(server, conn));
  const answer = await expectEvent(ours, v.RDMA_CM_EVENT_ESTABLISHED);
  expect(answer.param.conn).toMatchObject({ ...common, retry_count: 0, qp_num: server.qp!.qp_num });
  await expectEvent(theirs, v.RDMA_CM_EVENT_ESTABLISHED);
  post(client, mr);
  await turns(50); // 5 ms: RNR NAKs come and go.
  const far = good(await v.ibv_reg_mr(server.pd!, new Uint8Array(SIZE), SIZE, v.IBV_ACCESS_LOCAL_WRITE));
  for (let i = 0; i < COUNT; i++)
    expect(
      v.ibv_post_recv(server.qp!, { sg_list: [{ addr: far.addr, length: SIZE, lkey: far.lkey }] }, []),
    ).toBe(0);
  await completions(client.send_cq!, COUNT);
  for (const id of [client, server, ...listen]) await check(v.rdma_destroy_id(id));
});

test('with a channel, a refusal is an event with its reason', async () => {
  await using net = await openNet();
  const channel = v.rdma_create_event_channel();
  const id: v.rdma_cm_id[] = [];
  await check(v.rdma_create_id(channel, id, null, v.RDMA_PS_TCP, { device: net.client }));
  await check(v.rdma_resolve_addr(id[0], null, { address: SERVER, port: PORT }));
  await check(v.rdma_resolve_route(id[0]));
  await node(id[0]);
  await expectEvent(channel, v.RDMA_CM_EVENT_ADDR_RESOLVED);
  await expectEvent(channel, v.RDMA_CM_EVENT_ROUTE_RESOLVED);
  await check(v.rdma_connect(id[0], param));
  expect(await expectEvent(channel, v.RDMA_CM_EVENT_REJECTED)).toMatchObject({ id: id[0], status: 8 });
  await check(v.rdma_destroy_id(id[0]));
  const waiting = v.rdma_get_cm_event(channel, []);
  await v.rdma_destroy_event_channel(channel);
  expect(await waiting).toBe(-1);
});

test('a datagram service and a group: where to send comes with the event', async () => {
  await using net = await openNet();
  const channel = v.rdma_create_event_channel();
  const [listen, id]: v.rdma_cm_id[][] = [[], []];
  await check(v.rdma_create_id(null, listen, null, v.RDMA_PS_UDP, { device: net.server }));
  await check(v.rdma_bind_addr(listen[0], { address: SERVER, port: 7174 }));
  await check(v.rdma_listen(listen[0], 1));
  await check(v.rdma_create_id(channel, id, null, v.RDMA_PS_UDP, { device: net.client }));
  await check(v.rdma_resolve_addr(id[0], null, { address: SERVER, port: 7174 }));
  await check(v.rdma_resolve_route(id[0]));
  await node(id[0]);
  await check(v.rdma_connect(id[0], {}));
  const server: v.rdma_cm_id[] = [];
  await check(v.rdma_get_request(listen[0], server));
  await node(server[0]);
  await check(v.rdma_accept(server[0]));
  await expectEvent(channel, v.RDMA_CM_EVENT_ADDR_RESOLVED);
  await expectEvent(channel, v.RDMA_CM_EVENT_ROUTE_RESOLVED);
  const { ud } = (await expectEvent(channel, v.RDMA_CM_EVENT_ESTABLISHED)).param;
  expect(ud).toMatchObject({ qp_num: server[0].qp!.qp_num, qkey: v.RDMA_UDP_QKEY });
  expect(await v.ibv_create_ah(id[0].pd!, ud!.ah_attr)).not.toBeNull();
  await check(v.rdma_join_multicast(id[0], { address: '239.1.2.3' }));
  const group = (await expectEvent(channel, v.RDMA_CM_EVENT_MULTICAST_JOIN)).param.ud!;
  expect(group.qp_num).toBe(0xff_ffff);
  expect([...group.ah_attr.grh.dgid.raw.subarray(12)]).toEqual([239, 1, 2, 3]);
  await check(v.rdma_leave_multicast(id[0], { address: '239.1.2.3' }));
  for (const [one] of [id, server, listen]) await check(v.rdma_destroy_id(one));
});

test('objects that rdma_create_qp makes are destroyed with the id', async () => {
  const network = new MemoryNetwork();
  await using device = await openDevice({
    link: network.link(CLIENT),
    limits: { maxCq: 2, maxPd: 1, maxQp: 1 },
  });
  for (let i = 0; i < 3; i++) {
    const id: v.rdma_cm_id[] = [];
    await check(v.rdma_create_id(null, id, null, v.RDMA_PS_TCP, { device }));
    await check(v.rdma_bind_addr(id[0], { address: CLIENT }));
    await check(v.rdma_create_qp(id[0], null, init()));
    const { send_cq } = id[0];
    expect(await v.rdma_create_qp(id[0], null, init())).toBe(-1);
    expect([v.errno, id[0].send_cq]).toEqual([constants.errno.EINVAL, send_cq]);
    if (i > 0) await check(v.rdma_destroy_qp(id[0]));
    if (i > 1) await check(v.rdma_create_qp(id[0], null, init()));
    await check(v.rdma_destroy_id(id[0]));
  }
});

test('a parent domain is free again once the id that used it is destroyed', async () => {
  await using net = await openNet();
  const id: v.rdma_cm_id[] = [];
  await check(v.rdma_create_id(null, id, null, v.RDMA_PS_TCP, { device: net.client }));
  await check(v.rdma_bind_addr(id[0], { address: CLIENT }));
  const context = id[0].verbs!;
  const pd = good(await v.ibv_alloc_pd(context));
  const parent = good(await v.ibv_alloc_parent_domain(context, { pd }));
  await check(v.rdma_create_qp(id[0], parent, init()));
  expect(await v.ibv_dealloc_pd(parent)).toBe(constants.errno.EBUSY);
  await check(v.rdma_destroy_id(id[0]));
  expect(await v.ibv_dealloc_pd(parent)).toBe(0);
  expect(await v.ibv_dealloc_pd(pd)).toBe(0);
});

test('features of C that do not exist here are refused by name', async () => {
  const id: v.rdma_cm_id[] = [];
  expect(await v.rdma_create_id(null, id, null, 0x1234)).toBe(-1);
  expect(v.errno).toBe(constants.errno.EINVAL);
  await check(v.rdma_create_id(null, id, null, v.RDMA_PS_TCP));
  expect(await v.rdma_set_option(id[0], v.RDMA_OPTION_ID, 1, 1)).toBe(-1);
  expect(v.errno).toBe(constants.errno.EOPNOTSUPP);
  expect(await v.rdma_create_qp(id[0], null, init())).toBe(-1);
  expect(await v.rdma_connect(id[0])).toBe(-1);
  expect(v.lastError()?.message).toContain('state IDLE');
});

/** A request in the hands of a server with a channel, and the client's call. */
async function requested(net: Net) {
  const channel = v.rdma_create_event_channel();
  const [listen, client]: v.rdma_cm_id[][] = [[], []];
  await check(v.rdma_create_id(channel, listen, null, v.RDMA_PS_TCP, { device: net.server }));
  await check(v.rdma_bind_addr(listen[0], { address: SERVER, port: PORT }));
  await check(v.rdma_listen(listen[0], 1));
  await check(v.rdma_create_id(null, client, null, v.RDMA_PS_TCP, { device: net.client }));
  await check(v.rdma_resolve_addr(client[0], null, { address: SERVER, port: PORT }));
  await check(v.rdma_resolve_route(client[0]));
  await node(client[0]);
  const connecting = v.rdma_connect(client[0], param);
  const { id } = await expectEvent(channel, v.RDMA_CM_EVENT_CONNECT_REQUEST);
  return { channel, listen: listen[0], client: client[0], connecting, id };
}

test('with a channel, rdma_accept of a queue pair that can’t go to RTR is −1, as librdmacm’s', async () => {
  await using net = await openNet();
  const { id, connecting, client, listen } = await requested(net);
  await node(id);
  await check(v.ibv_modify_qp(id.qp!, { qp_state: v.IBV_QPS_ERR }, v.IBV_QP_STATE) as Promise<0 | -1>);
  expect(await v.rdma_accept(id, param)).toBe(-1);
  expect(v.errno).toBe(constants.errno.EINVAL);
  expect(await connecting).toBe(-1);
  for (const one of [id, client, listen]) await check(v.rdma_destroy_id(one));
});

test('with a channel, rdma_connect that the device has no room for is −1', async () => {
  await using net = await openNet();
  const channel = v.rdma_create_event_channel();
  const ids: v.rdma_cm_id[] = [];
  await check(v.rdma_create_id(channel, ids, null, v.RDMA_PS_TCP, { device: net.client }));
  await check(v.rdma_resolve_addr(ids[0], null, { address: SERVER, port: PORT }));
  await check(v.rdma_resolve_route(ids[0]));
  await node(ids[0]);
  const full = new RoceError('ERR_ROCE_LIMIT', 'no room', { errno: 'ENOMEM' });
  vi.spyOn(net.client.connections, 'call').mockRejectedValueOnce(full);
  expect(await v.rdma_connect(ids[0], param)).toBe(-1);
  expect(v.errno).toBe(constants.errno.ENOMEM);
  await check(v.rdma_destroy_id(ids[0]));
});

test('the end of a device is an event of its ids, with status 0', async () => {
  await using net = await openNet();
  const { channel, id, listen, client, connecting } = await requested(net);
  await node(id);
  await check(v.rdma_accept(id, param));
  await expectEvent(channel, v.RDMA_CM_EVENT_ESTABLISHED);
  await check(connecting);
  const next = expectEvent(channel, v.RDMA_CM_EVENT_DEVICE_REMOVAL);
  await net.server.close();
  expect(await next).toMatchObject({ id: listen, status: 0 });
  expect((await expectEvent(channel, v.RDMA_CM_EVENT_DISCONNECTED)).id).toBe(id);
  expect((await expectEvent(channel, v.RDMA_CM_EVENT_DEVICE_REMOVAL)).id).toBe(id);
  await check(v.rdma_disconnect(id));
  for (const one of [id, listen, client]) await check(v.rdma_destroy_id(one));
});

describe('the port of rdma_bind_addr', () => {
  async function created(device: Device | undefined): Promise<v.rdma_cm_id> {
    const ids: v.rdma_cm_id[] = [];
    await check(v.rdma_create_id(null, ids, null, v.RDMA_PS_TCP, device ? { device } : {}));
    return ids[0];
  }

  test('is there at once, and no other id’s', async () => {
    await using net = await openNet();
    const [first, second] = [await created(net.client), await created(net.client)];
    await check(v.rdma_bind_addr(first, { address: CLIENT, port: 5555 }));
    expect(v.rdma_get_src_port(first)).toBe(5555);
    expect(await v.rdma_bind_addr(second, { address: CLIENT, port: 5555 })).toBe(-1);
    expect(v.errno).toBe(constants.errno.EADDRINUSE);
    await check(v.rdma_bind_addr(second, { address: CLIENT }));
    const drawn = v.rdma_get_src_port(second);
    expect(drawn).toBeGreaterThan(0);
    await check(v.rdma_listen(second, 1));
    expect(v.rdma_get_src_port(second)).toBe(drawn);
    await check(v.rdma_resolve_addr(first, null, { address: SERVER, port: PORT }));
    expect(v.rdma_get_src_port(first)).toBe(5555);
    for (const id of [first, second]) await check(v.rdma_destroy_id(id));
  });

  test('or of src_addr is that of the connection', async () => {
    await using net = await openNet();
    const id = await created(net.client);
    const source = { address: CLIENT, port: 5556 };
    await check(v.rdma_resolve_addr(id, source, { address: SERVER, port: PORT }));
    expect(v.rdma_get_src_port(id)).toBe(5556);
    await check(v.rdma_destroy_id(id));
  });

  test('with a wildcard has no device yet', async () => {
    const id = await created(undefined);
    await check(v.rdma_bind_addr(id, { address: '0.0.0.0', port: 7479 }));
    expect([v.rdma_get_src_port(id), id.verbs]).toEqual([7479, null]);
    await check(v.rdma_destroy_id(id));
  });
});

describe('depths of rdma_conn_param', () => {
  const LIMITS = { maxQpRdAtom: 4, maxQpInitRdAtom: 2 };

  test('beyond the device’s are EINVAL; the largest stand for the device’s', async () => {
    const network = new MemoryNetwork();
    await using client = await openDevice({ link: network.link(CLIENT), limits: LIMITS });
    await using server = await openDevice({ link: network.link(SERVER), limits: LIMITS });
    const [listen, active, passive]: v.rdma_cm_id[][] = [[], [], []];
    await check(v.rdma_create_id(null, listen, null, v.RDMA_PS_TCP, { device: server }));
    await check(v.rdma_bind_addr(listen[0], { address: SERVER, port: PORT }));
    await check(v.rdma_listen(listen[0], 1));
    await check(v.rdma_create_id(null, active, null, v.RDMA_PS_TCP, { device: client }));
    await check(v.rdma_resolve_addr(active[0], null, { address: SERVER, port: PORT }));
    await check(v.rdma_resolve_route(active[0]));
    await node(active[0]);
    for (const wrong of [{ responder_resources: 5 }, { initiator_depth: 3 }]) {
      expect(await v.rdma_connect(active[0], wrong)).toBe(-1);
      expect(v.errno).toBe(constants.errno.EINVAL);
    }
    const most = { responder_resources: v.RDMA_MAX_RESP_RES, initiator_depth: v.RDMA_MAX_INIT_DEPTH };
    const connecting = v.rdma_connect(active[0], { ...most, retry_count: 7 });
    await check(v.rdma_get_request(listen[0], passive));
    expect(passive[0].rdmacm.request).toMatchObject({ responderResources: 2, initiatorDepth: 4 });
    await node(passive[0]);
    expect(await v.rdma_accept(passive[0], { responder_resources: 5 })).toBe(-1);
    await check(v.rdma_accept(passive[0], most));
    await check(connecting);
    expect(active[0].rdmacm.reply).toMatchObject({ responderResources: 2, initiatorDepth: 2 });
    for (const [id] of [active, passive, listen]) await check(v.rdma_destroy_id(id));
  });

  test('without rdma_conn_param are the device’s, of each kind', async () => {
    const network = new MemoryNetwork();
    await using client = await openDevice({ link: network.link(CLIENT), limits: LIMITS });
    const ids: v.rdma_cm_id[] = [];
    await check(v.rdma_create_id(null, ids, null, v.RDMA_PS_TCP, { device: client }));
    await check(v.rdma_resolve_addr(ids[0], null, { address: SERVER, port: PORT }));
    await check(v.rdma_resolve_route(ids[0]));
    await node(ids[0]);
    const call = vi.spyOn(client.connections, 'call');
    const connecting = v.rdma_connect(ids[0]);
    expect(call.mock.calls[0][1]).toMatchObject({ responderResources: 4, initiatorDepth: 2 });
    await check(v.rdma_destroy_id(ids[0]));
    expect(await connecting).toBe(-1);
  });
});
