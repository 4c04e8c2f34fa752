/** Devices, protection domains, address handles, completion queues: the checks of test_device, test_pd, test_addr, test_cq. */
import { constants } from 'node:os';
import * as v from '@node-roce/ibverbs';
import { describe, expect, test } from 'vitest';
import { createPlayers, device, deviceAttr, IB_PORT, made, ok, openContext, traffic } from './players.ts';

const { EINVAL } = constants.errno;

const gidOf = async (context: v.ibv_context) => {
  const gid = { raw: new Uint8Array(16) };
  await ok(v.ibv_query_gid(context, IB_PORT, 0, gid));
  return gid;
};

const portAttr = async (context: v.ibv_context, port = IB_PORT) => {
  const attr = {} as v.ibv_port_attr;
  await ok(v.ibv_query_port(context, port, attr));
  return attr;
};

describe('device', () => {
  test('the list of devices can be taken', () => {
    const count: number[] = [];
    expect(v.ibv_get_device_list(count).length).toBe(count[0]);
    expect(count[0]).toBeGreaterThan(0);
  });

  test('a device can be opened, also while it is open', async () => {
    const [a, b] = [await openContext(), await openContext()];
    expect(a).not.toBe(b);
    expect(a.device).toBe(b.device);
  });

  test('every device has a GUID, limits and a page size', async () => {
    for (const each of v.ibv_get_device_list()) expect(v.ibv_get_device_guid(each)).not.toBe(0n);
    const attr = await deviceAttr(await openContext());
    expect(attr.node_guid).toBe(v.ibv_get_device_guid(device));
    expect(attr.sys_image_guid).not.toBe(0n);
    expect(attr.max_mr_size).toBeGreaterThan(4096n);
    expect(attr.page_size_cap).toBeGreaterThanOrEqual(4096n);
    for (const name of [
      'vendor_id',
      'max_qp',
      'max_qp_wr',
      'max_sge',
      'max_cq',
      'max_cqe',
      'max_mr',
      'max_pd',
      'max_pkeys',
    ] as const)
      expect(attr[name], name).toBeGreaterThan(0);
  });

  test('a P_Key can be queried', async () => {
    const pkey: number[] = [];
    await ok(v.ibv_query_pkey(await openContext(), IB_PORT, 0, pkey));
    expect(pkey).toEqual([0xffff]);
  });

  test('the index of a P_Key can be queried', async () => {
    expect(v.ibv_get_pkey_index(await openContext(), IB_PORT, 0xffff)).toBe(0);
  });

  test('a GID can be queried', async () => {
    expect((await gidOf(await openContext())).raw.some((byte) => byte !== 0)).toBe(true);
  });

  test('the GID table can be queried', async () => {
    const context = await openContext();
    const { gid_tbl_len } = await portAttr(context);
    const entries: v.ibv_gid_entry[] = [];
    expect(await v.ibv_query_gid_table(context, entries, gid_tbl_len)).toBe(entries.length);
    expect(
      entries.every(({ port_num, gid_type }) => port_num === 1 && gid_type === v.IBV_GID_TYPE_ROCE_V2),
    ).toBe(true);
  });

  test('a buffer that is too small for the GID table is refused', async () => {
    expect(await v.ibv_query_gid_table(await openContext(), [], 0)).toBe(-EINVAL);
  });

  test('a GID can be queried with its type', async () => {
    const context = await openContext();
    const entry = {} as v.ibv_gid_entry;
    await ok(v.ibv_query_gid_ex(context, IB_PORT, 0, entry));
    expect(entry).toMatchObject({ gid: await gidOf(context), gid_index: 0 });
  });

  test('an index without a GID is refused', async () => {
    const context = await openContext();
    const { gid_tbl_len } = await portAttr(context);
    expect(await v.ibv_query_gid_ex(context, IB_PORT, gid_tbl_len, {})).not.toBe(0);
  });

  test('a port has a state, MTUs, a width and a speed', async () => {
    const attr = await portAttr(await openContext());
    expect(
      [attr.max_mtu, attr.active_mtu].every((mtu) => mtu >= v.IBV_MTU_256 && mtu <= v.IBV_MTU_4096),
    ).toBe(true);
    expect(attr.max_msg_sz).toBeGreaterThan(0x1000);
    expect(attr.link_layer).toBe(v.IBV_LINK_LAYER_ETHERNET);
    expect(v.ibv_port_state_str(attr.state)).toBe('PORT_ACTIVE');
    // As rxe reports an interface whose speed is not known: 1X, 2.5 Gb/s.
    expect([attr.active_width, attr.active_speed]).toEqual([1, 1]);
  });

  test('a port that does not exist is refused', async () => {
    const context = await openContext();
    const { phys_port_cnt } = await deviceAttr(context);
    expect(await v.ibv_query_port(context, phys_port_cnt + 3, {})).toBe(EINVAL);
  });
});

describe('protection domain', () => {
  test('can be allocated', async () => {
    made(await v.ibv_alloc_pd(await openContext()));
  });

  test('can be deallocated', async () => {
    await ok(v.ibv_dealloc_pd(made(await v.ibv_alloc_pd(await openContext()))));
  });

  test('can be allocated and deallocated 200 times', async () => {
    const context = await openContext();
    for (let i = 0; i < 200; i++) await ok(v.ibv_dealloc_pd(made(await v.ibv_alloc_pd(context))));
  });

  test('can be deallocated twice', async () => {
    const pd = made(await v.ibv_alloc_pd(await openContext()));
    await ok(v.ibv_dealloc_pd(pd));
    await ok(v.ibv_dealloc_pd(pd));
  });
});

describe('address handle', () => {
  const create = async (is_global: number) => {
    const context = await openContext();
    const pd = made(await v.ibv_alloc_pd(context));
    const grh = { dgid: await gidOf(context), sgid_index: 0, hop_limit: 1 };
    return v.ibv_create_ah(pd, { is_global, port_num: IB_PORT, grh });
  };

  test('can be created', async () => {
    made(await create(1));
  });

  test('without a GRH is refused', async () => {
    expect(await create(0)).toBeNull();
    expect(v.errno).toBe(EINVAL);
  });

  test('can be destroyed', async () => {
    await ok(v.ibv_destroy_ah(made(await create(1))));
  });
});

describe('completion queue', () => {
  test('of 1 … max_cqe entries, at any completion vector', async () => {
    const context = await openContext();
    const { max_cqe } = await deviceAttr(context);
    for (const cqe of [1, Math.floor(max_cqe / 2), max_cqe])
      await ok(v.ibv_destroy_cq(made(await v.ibv_create_cq(context, cqe, null, null, 0))));
    made(await v.ibv_create_cq(context, context.num_comp_vectors, null, null, context.num_comp_vectors - 1));
  });

  test('with a channel', async () => {
    const context = await openContext();
    const { max_cqe } = await deviceAttr(context);
    for (const cqe of [1, Math.floor(max_cqe / 2), max_cqe]) {
      const channel = made(await v.ibv_create_comp_channel(context));
      await ok(v.ibv_destroy_cq(made(await v.ibv_create_cq(context, cqe, null, channel, 0))));
      await ok(v.ibv_destroy_comp_channel(channel));
    }
  });

  test('of more than max_cqe entries is refused', async () => {
    const context = await openContext();
    const { max_cqe } = await deviceAttr(context);
    expect(await v.ibv_create_cq(context, max_cqe + 1, null, null, 0)).toBeNull();
    expect(v.errno).toBe(EINVAL);
  });

  test.each([1, 2, 99, -1])('at completion vector %d is refused', async (offset) => {
    const context = await openContext();
    const vector = offset < 0 ? offset : context.num_comp_vectors + offset - 1;
    expect(await v.ibv_create_cq(context, 100, null, null, vector)).toBeNull();
    expect(v.errno).toBe(EINVAL);
    expect(v.lastError()?.attribute).toBe('comp_vector');
  });

  test('can be resized, but not below its completions', async () => {
    const { client } = await createPlayers({ type: v.IBV_QPT_UD, cqDepth: 3 });
    await ok(v.ibv_resize_cq(client.cq, 1));
    expect(client.cq.cqe).toBeGreaterThanOrEqual(1);
    await ok(v.ibv_resize_cq(client.cq, 7));
    expect(client.cq.cqe).toBeGreaterThanOrEqual(7);
    for (let i = 0; i < 6; i++) await client.post(v.IBV_WR_SEND);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(await v.ibv_resize_cq(client.cq, 1)).toBe(EINVAL);
    for (const { status } of await client.poll(6)) expect(status).toBe(v.IBV_WC_SUCCESS);
  });

  test('raises events, RC', async () => {
    const { client, server } = await createPlayers({ withChannel: true });
    await traffic(client, server, 20);
  });

  test('raises events, UD', async () => {
    const { client, server } = await createPlayers({ type: v.IBV_QPT_UD, msgSize: 1024, withChannel: true });
    await traffic(client, server, 20);
  });
});
