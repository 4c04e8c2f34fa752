/** Regions and windows: the checks of test_mr. */
import { constants } from 'node:os';
import * as v from '@node-roce/ibverbs';
import { describe, expect, test } from 'vitest';
import {
  createPlayers,
  failedStatus,
  LOCAL,
  MSG_SIZE,
  made,
  ok,
  openContext,
  type Player,
  rdmaTraffic,
  traffic,
} from './players.ts';

const REMOTE_OP = v.ibv_wc_status_str(v.IBV_WC_REM_OP_ERR);
const REMOTE_ACCESS = v.ibv_wc_status_str(v.IBV_WC_REM_ACCESS_ERR);

/** A request that has to fail; the peer's queue pair goes to the error state with it. */
async function refused(client: Player, server: Player, post: () => Promise<void>): Promise<string> {
  await post();
  const status = await failedStatus(client);
  expect([client.qp.state, server.qp.state]).toEqual([v.IBV_QPS_ERR, v.IBV_QPS_ERR]);
  return status;
}

/** Both sides from the error state to RTS. Completions of what was flushed are taken away first. */
async function restate(...players: Player[]): Promise<void> {
  for (const player of players) {
    while (v.ibv_poll_cq(player.cq, 16, []) > 0);
    await ok(v.ibv_modify_qp(player.qp, { qp_state: v.IBV_QPS_RESET }, v.IBV_QP_STATE));
    await player.toRts(player.qp, player.attr(player.remoteQpns[0]));
  }
}

async function rereg(
  player: Player,
  flags: number,
  { pd = null as v.ibv_pd | null, buffer = null as Uint8Array | null, access = 0 },
) {
  await ok(v.ibv_rereg_mr(player.mr, flags, pd, buffer, buffer?.length ?? 0, access));
}

describe('region', () => {
  test.each([v.IBV_ACCESS_REMOTE_WRITE, v.IBV_ACCESS_REMOTE_ATOMIC])(
    'access 0x%x without local write is refused',
    async (access) => {
      const pd = made(await v.ibv_alloc_pd(await openContext()));
      const buffer = new Uint8Array(MSG_SIZE);
      expect(await v.ibv_reg_mr(pd, buffer, buffer.length, access)).toBeNull();
      expect(v.errno).toBe(constants.errno.EINVAL);
    },
  );

  test('with a new translation: the old one is no more, the new one works', async () => {
    const { client, server } = await createPlayers();
    await server.postRecv(); // Into the memory of the old translation.
    const buffer = new Uint8Array(MSG_SIZE);
    await rereg(server, v.IBV_REREG_MR_CHANGE_TRANSLATION, { buffer });
    server.buffer = buffer;
    expect(await refused(client, server, () => client.post(v.IBV_WR_SEND))).toBe(REMOTE_OP);
    await restate(server, client);
    await traffic(client, server, 3);
  });

  test('without access for atomics, and with it again', async () => {
    const { client, server } = await createPlayers({
      mrAccess: LOCAL | v.IBV_ACCESS_REMOTE_ATOMIC,
      msgSize: 8,
    });
    const fetchAdd = () =>
      client.post(v.IBV_WR_ATOMIC_FETCH_AND_ADD, {
        wr: { atomic: { remote_addr: server.mr.addr, rkey: server.mr.rkey, compare_add: 1n } },
      });
    await rereg(server, v.IBV_REREG_MR_CHANGE_ACCESS, { access: LOCAL });
    expect(await refused(client, server, fetchAdd)).toBe(REMOTE_ACCESS);
    await restate(server, client);
    await rereg(server, v.IBV_REREG_MR_CHANGE_ACCESS, { access: LOCAL | v.IBV_ACCESS_REMOTE_ATOMIC });
    await fetchAdd();
    await client.success();
  });

  test('with access for remote WRITE', async () => {
    const { client, server } = await createPlayers({ mrAccess: LOCAL });
    for (const player of [client, server])
      await rereg(player, v.IBV_REREG_MR_CHANGE_ACCESS, { access: LOCAL | v.IBV_ACCESS_REMOTE_WRITE });
    await rdmaTraffic(client, server, 5, v.IBV_WR_RDMA_WRITE);
  });

  test('without access for remote WRITE any more', async () => {
    const { client, server } = await createPlayers({ mrAccess: LOCAL | v.IBV_ACCESS_REMOTE_WRITE });
    await rdmaTraffic(client, server, 5, v.IBV_WR_RDMA_WRITE);
    await rereg(server, v.IBV_REREG_MR_CHANGE_ACCESS, { access: LOCAL });
    expect(await refused(client, server, () => client.postRdma(v.IBV_WR_RDMA_WRITE))).toBe(REMOTE_ACCESS);
  });

  test('in another protection domain than the queue pair, and back', async () => {
    const { client, server } = await createPlayers();
    await traffic(client, server, 3);
    const pd = made(await v.ibv_alloc_pd(server.context));
    await rereg(server, v.IBV_REREG_MR_CHANGE_PD, { pd });
    await server.postRecv();
    expect(await refused(client, server, () => client.post(v.IBV_WR_SEND))).toBe(REMOTE_OP);
    await restate(server, client);
    await rereg(server, v.IBV_REREG_MR_CHANGE_PD, { pd: server.pd });
    await traffic(client, server, 3);
  });
});

describe('window', () => {
  const access = v.IBV_ACCESS_REMOTE_WRITE;

  async function players(type: number) {
    const sides = await createPlayers({ mrAccess: LOCAL | v.IBV_ACCESS_MW_BIND, qpAccess: access });
    const windows = {
      client: made(await v.ibv_alloc_mw(sides.client.pd, type)),
      server: made(await v.ibv_alloc_mw(sides.server.pd, type)),
    };
    for (const [name, player] of Object.entries(sides) as ['client' | 'server', Player][]) {
      const mw = windows[name];
      const bind_info = { mr: player.mr, addr: player.buffer, length: MSG_SIZE, mw_access_flags: access };
      if (type === v.IBV_MW_TYPE_1) {
        await ok(v.ibv_bind_mw(player.qp, mw, { send_flags: v.IBV_SEND_SIGNALED, bind_info }));
      } else {
        const rkey = v.ibv_inc_rkey(mw.rkey);
        await player.post(v.IBV_WR_BIND_MW, { sg_list: [], bind_mw: { mw, rkey, bind_info } });
        mw.rkey = rkey;
      }
      await player.success();
    }
    sides.client.rkey = windows.server.rkey;
    sides.server.rkey = windows.client.rkey;
    await rdmaTraffic(sides.client, sides.server, 5, v.IBV_WR_RDMA_WRITE);
    return { ...sides, windows };
  }

  const closed = async (client: Player, server: Player) =>
    expect(await refused(client, server, () => client.postRdma(v.IBV_WR_RDMA_WRITE))).toBe(REMOTE_ACCESS);

  test('of type 1 lets WRITEs through', async () => {
    await players(v.IBV_MW_TYPE_1);
  });

  test('of type 1, bound with length 0, closes', async () => {
    const { client, server, windows } = await players(v.IBV_MW_TYPE_1);
    for (const [name, player] of Object.entries({ client, server })) {
      const bind_info = { mr: player.mr, addr: player.buffer, length: 0, mw_access_flags: 0 };
      const mw = windows[name as 'client'];
      await ok(v.ibv_bind_mw(player.qp, mw, { send_flags: v.IBV_SEND_SIGNALED, bind_info }));
      await player.success();
    }
    await closed(client, server);
  });

  test('of type 2 lets WRITEs through', async () => {
    await players(v.IBV_MW_TYPE_2);
  });

  test('of type 2, invalidated by its owner, closes', async () => {
    const { client, server } = await players(v.IBV_MW_TYPE_2);
    await client.post(v.IBV_WR_LOCAL_INV, { sg_list: [], invalidate_rkey: server.rkey });
    await server.post(v.IBV_WR_LOCAL_INV, { sg_list: [], invalidate_rkey: client.rkey });
    await client.success();
    await server.success();
    await closed(client, server);
  });

  test('of type 2, invalidated by the peer, closes', async () => {
    const { client, server } = await players(v.IBV_MW_TYPE_2);
    for (const player of [client, server]) await player.postRecv();
    await client.post(v.IBV_WR_SEND_WITH_INV, { invalidate_rkey: client.rkey });
    await server.post(v.IBV_WR_SEND_WITH_INV, { invalidate_rkey: server.rkey });
    for (const player of [client, server])
      for (const { status } of await player.poll(2)) expect(status).toBe(v.IBV_WC_SUCCESS);
    await closed(client, server);
  });

  test('of type 2, deallocated, closes', async () => {
    const { client, server, windows } = await players(v.IBV_MW_TYPE_2);
    await ok(v.ibv_dealloc_mw(windows.server));
    await ok(v.ibv_dealloc_mw(windows.client));
    await closed(client, server);
  });

  test('of an unknown type is refused', async () => {
    const pd = made(await v.ibv_alloc_pd(await openContext()));
    expect(await v.ibv_alloc_mw(pd, 3)).toBeNull();
    expect(v.errno).toBe(constants.errno.EINVAL);
  });

  test('of type 2 without the right to write refuses WRITEs', async () => {
    const { client, server } = await createPlayers({
      mrAccess: LOCAL | v.IBV_ACCESS_MW_BIND | v.IBV_ACCESS_REMOTE_WRITE,
    });
    const mw = made(await v.ibv_alloc_mw(server.pd, v.IBV_MW_TYPE_2));
    const rkey = v.ibv_inc_rkey(mw.rkey);
    const bind_info = { mr: server.mr, addr: server.buffer, length: MSG_SIZE, mw_access_flags: 0 };
    await server.post(v.IBV_WR_BIND_MW, { sg_list: [], bind_mw: { mw, rkey, bind_info } });
    await server.success();
    client.rkey = rkey;
    await closed(client, server);
  });
});
