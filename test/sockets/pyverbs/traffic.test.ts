/** Traffic of every operation, atomics and shared receive queues: the checks of test_qpex, test_atomic and test_srq. */
import * as v from '@node-roce/ibverbs';
import { describe, expect, test } from 'vitest';
import {
  createPlayers,
  deviceAttr,
  failedStatus,
  LOCAL,
  ok,
  type Player,
  rdmaTraffic,
  traffic,
} from './players.ts';

describe('traffic', () => {
  test.each([
    ['RC', 'SEND', v.IBV_QPT_RC, v.IBV_WR_SEND],
    ['RC', 'SEND_WITH_IMM', v.IBV_QPT_RC, v.IBV_WR_SEND_WITH_IMM],
    ['UC', 'SEND', v.IBV_QPT_UC, v.IBV_WR_SEND],
    ['UD', 'SEND', v.IBV_QPT_UD, v.IBV_WR_SEND],
    ['UD', 'SEND_WITH_IMM', v.IBV_QPT_UD, v.IBV_WR_SEND_WITH_IMM],
  ])('%s %s', async (_type, _name, type, opcode) => {
    const { client, server } = await createPlayers({ type });
    await traffic(client, server, 10, opcode);
  });

  test.each([
    ['RDMA_WRITE', v.IBV_WR_RDMA_WRITE],
    ['RDMA_WRITE_WITH_IMM', v.IBV_WR_RDMA_WRITE_WITH_IMM],
    ['RDMA_READ', v.IBV_WR_RDMA_READ],
  ])('RC %s', async (_name, opcode) => {
    const { client, server } = await createPlayers();
    await rdmaTraffic(client, server, 10, opcode);
  });

  test.each([
    ['UD SEND', v.IBV_QPT_UD, v.IBV_WR_SEND],
    ['RC RDMA_WRITE', v.IBV_QPT_RC, v.IBV_WR_RDMA_WRITE],
    ['RC RDMA_READ', v.IBV_QPT_RC, v.IBV_WR_RDMA_READ],
  ])('%s of no bytes', async (_name, type, opcode) => {
    const { client, server } = await createPlayers({ type });
    if (type === v.IBV_QPT_UD) {
      await server.postRecv();
      await client.post(opcode, { sg_list: [] });
      expect((await server.success()).byte_len).toBe(40);
    } else await client.postRdma(opcode, { sg_list: [] });
    await client.success();
  });
});

describe('atomics', () => {
  const peers = (options = {}) => createPlayers({ msgSize: 8, ...options });
  const word = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, 8);
  const post = (client: Player, opcode: number, compare_add: bigint, swap = 0n, remote_addr = client.raddr) =>
    client.post(opcode, { wr: { atomic: { remote_addr, rkey: client.rkey, compare_add, swap } } });
  const add = (client: Player, remote_addr?: bigint) =>
    post(client, v.IBV_WR_ATOMIC_FETCH_AND_ADD, 1n, 0n, remote_addr);

  test('compare and swap: unequal leaves the word, equal replaces it', async () => {
    const { client, server } = await peers();
    word(server.buffer).setBigUint64(0, 7n, true);
    for (const [compare, after] of [
      [1n, 7n],
      [7n, 9n],
    ] as const) {
      await post(client, v.IBV_WR_ATOMIC_CMP_AND_SWP, compare, 9n);
      expect((await client.success()).opcode).toBe(v.IBV_WC_COMP_SWAP);
      expect(word(client.buffer).getBigUint64(0, true)).toBe(7n);
      expect(word(server.buffer).getBigUint64(0, true)).toBe(after);
    }
  });

  test('fetch and add', async () => {
    const { client, server } = await peers();
    for (let i = 0n; i < 10n; i++) {
      await add(client);
      expect((await client.success()).opcode).toBe(v.IBV_WC_FETCH_ADD);
      expect(word(client.buffer).getBigUint64(0, true)).toBe(i);
    }
    expect(word(server.buffer).getBigUint64(0, true)).toBe(10n);
  });

  test.each([
    ['the queue pair does not allow it', { qpAccess: LOCAL }, v.IBV_WC_REM_INV_REQ_ERR],
    ['the region does not allow it', { mrAccess: LOCAL }, v.IBV_WC_REM_ACCESS_ERR],
  ])('refused: %s', async (_what, options, status) => {
    const { client } = await peers(options);
    await add(client);
    expect(await failedStatus(client)).toBe(v.ibv_wc_status_str(status));
  });

  test('refused: an address that is not aligned', async () => {
    const { client } = await peers({ msgSize: 9 });
    const sg_list = [{ addr: client.buffer, length: 8, lkey: client.mr.lkey }];
    const atomic = { remote_addr: client.raddr + 1n, rkey: client.rkey, compare_add: 1n };
    await client.post(v.IBV_WR_ATOMIC_FETCH_AND_ADD, { sg_list, wr: { atomic } });
    expect(await failedStatus(client)).toBe(v.ibv_wc_status_str(v.IBV_WC_REM_INV_REQ_ERR));
  });

  test('refused: a local key that does not exist', async () => {
    const { client } = await peers();
    const sg_list = [{ addr: client.mr.addr, length: 8, lkey: (client.mr.lkey ^ 1) >>> 0 }];
    const atomic = { remote_addr: client.raddr, rkey: client.rkey, compare_add: 1n };
    await client.post(v.IBV_WR_ATOMIC_FETCH_AND_ADD, { sg_list, wr: { atomic } });
    expect(await failedStatus(client)).toBe(v.ibv_wc_status_str(v.IBV_WC_LOC_PROT_ERR));
  });

  test('refused: a remote key that does not exist', async () => {
    const { client } = await peers();
    client.rkey = (client.rkey ^ 1) >>> 0;
    await add(client);
    expect(await failedStatus(client)).toBe(v.ibv_wc_status_str(v.IBV_WC_REM_ACCESS_ERR));
  });
});

describe('shared receive queue', () => {
  const peers = () => createPlayers({ qps: 2, withSrq: true });
  const limitOf = async (srq: v.ibv_srq) => {
    const attr = {} as Required<v.ibv_srq_attr>;
    await ok(v.ibv_query_srq(srq, attr));
    return attr;
  };

  test('traffic of two queue pairs', async () => {
    const { client, server } = await peers();
    await traffic(client, server, 10);
  });

  test('can be resized', async () => {
    const { server } = await peers();
    const { max_srq_wr, device_cap_flags } = await deviceAttr(server.context);
    expect(device_cap_flags & v.IBV_DEVICE_SRQ_RESIZE).not.toBe(0);
    const max_wr = Math.min(max_srq_wr, (await limitOf(server.srq!)).max_wr * 2);
    await ok(v.ibv_modify_srq(server.srq!, { max_wr }, v.IBV_SRQ_MAX_WR));
    expect((await limitOf(server.srq!)).max_wr).toBeGreaterThanOrEqual(max_wr);
  });

  test('an event reports when the receives fall below the limit, to the context that has the queue', async () => {
    const { client, server } = await peers();
    for (let i = 0; i < 10; i++) await server.postRecv();
    await ok(v.ibv_modify_srq(server.srq!, { srq_limit: 7 }, v.IBV_SRQ_LIMIT));
    expect((await limitOf(server.srq!)).srq_limit).toBe(7);
    for (let i = 0; i < 4; i++) {
      await client.post(v.IBV_WR_SEND);
      await client.success();
      await server.success();
    }
    const event = {} as v.ibv_async_event;
    await ok(v.ibv_get_async_event(server.context, event));
    expect(event.event_type).toBe(v.IBV_EVENT_SRQ_LIMIT_REACHED);
    expect(event.element?.srq).toBe(server.srq);
    v.ibv_ack_async_event(event);
    expect(client.context.verbs.pollEvent()).toBeUndefined();
  });
});
