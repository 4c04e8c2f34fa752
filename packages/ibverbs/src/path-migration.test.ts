/** Path migration under the names of libibverbs: attributes with their masks, the query, both events. */
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { connect, createQp, good, openSide, type Side } from '../testing/pair.ts';
import * as v from './index.ts';

const EINVAL = 22;
const ALTERNATE = v.IBV_QP_ALT_PATH | v.IBV_QP_PATH_MIG_STATE;

/** Another route between the same GIDs: by flow label. */
const alternateTo = (peer: Side): v.ibv_qp_attr => ({
  alt_ah_attr: { is_global: 1, port_num: 1, grh: { dgid: peer.gid, flow_label: 9, hop_limit: 64 } },
  alt_pkey_index: 0,
  alt_port_num: 1,
  alt_timeout: 12,
});

async function open(experimental: readonly 'apm'[] = ['apm']) {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1', { experimental });
  const b = await openSide(network, '10.0.0.2', { experimental });
  const qpA = await createQp(a, v.IBV_QPT_RC);
  const qpB = await createQp(b, v.IBV_QPT_RC);
  await connect(qpA, b.gid, qpB.qp_num);
  await connect(qpB, a.gid, qpA.qp_num);
  /** A message each way, so that each side sees the other one's bit. */
  const exchange = async () => {
    for (const [side, qp, peer] of [
      [a, qpA, b],
      [b, qpB, a],
    ] as const) {
      const wr: v.ibv_send_wr = {
        opcode: v.IBV_WR_RDMA_WRITE,
        send_flags: v.IBV_SEND_SIGNALED,
        sg_list: [{ addr: side.mr.addr, length: 8, lkey: side.mr.lkey }],
        wr: { rdma: { remote_addr: peer.mr.addr, rkey: peer.mr.rkey } },
      };
      expect(v.ibv_post_send(qp, wr)).toBe(0);
      const list: v.ibv_wc[] = [];
      while (v.ibv_poll_cq(side.cq, 1, list) === 0) await new Promise(setImmediate);
      expect(list[0].status).toBe(v.IBV_WC_SUCCESS);
    }
  };
  const query = async (qp: v.ibv_qp) => {
    const attr: v.ibv_qp_attr = {};
    expect(await v.ibv_query_qp(qp, attr, ALTERNATE, {})).toBe(0);
    return attr;
  };
  return { a, b, qpA, qpB, exchange, query };
}

describe('path migration', () => {
  test('is armed by both, done by one, and both hear of it', async () => {
    const { a, b, qpA, qpB, exchange, query } = await open();
    expect((await query(qpA)).path_mig_state).toBe(v.IBV_MIG_MIGRATED);
    await exchange();
    const rearm = { path_mig_state: v.IBV_MIG_REARM };
    expect(await v.ibv_modify_qp(qpA, { ...alternateTo(b), ...rearm }, ALTERNATE)).toBe(0);
    expect(await v.ibv_modify_qp(qpB, { ...alternateTo(a), ...rearm }, ALTERNATE)).toBe(0);
    expect((await query(qpA)).path_mig_state).toBe(v.IBV_MIG_REARM);
    await exchange();
    expect(await query(qpA)).toMatchObject({
      path_mig_state: v.IBV_MIG_ARMED,
      alt_ah_attr: { is_global: 1, grh: { dgid: b.gid, flow_label: 9 } },
      alt_pkey_index: 0,
      alt_port_num: 1,
      alt_timeout: 12,
    });
    const migrated = { path_mig_state: v.IBV_MIG_MIGRATED };
    expect(await v.ibv_modify_qp(qpA, migrated, v.IBV_QP_PATH_MIG_STATE)).toBe(0);
    await exchange();
    for (const [side, qp] of [
      [a, qpA],
      [b, qpB],
    ] as const) {
      expect(await query(qp)).toMatchObject({
        path_mig_state: v.IBV_MIG_MIGRATED,
        ah_attr: { grh: { flow_label: 9 } },
        timeout: 12,
        alt_ah_attr: undefined,
        alt_timeout: undefined,
      });
      const event = {} as v.ibv_async_event;
      do {
        expect(await v.ibv_get_async_event(side.context, event)).toBe(0);
        v.ibv_ack_async_event(event);
      } while (event.event_type === v.IBV_EVENT_COMM_EST);
      expect(event.event_type).toBe(v.IBV_EVENT_PATH_MIG);
      expect(event.element?.qp).toBe(qp);
    }
  });

  test('errors name the wrong attribute as in C', async () => {
    const { b, qpA } = await open();
    const refused = async (attr: v.ibv_qp_attr, mask: number, attribute: string) => {
      expect(await v.ibv_modify_qp(qpA, attr, mask)).toBe(EINVAL);
      expect(v.lastError()?.attribute).toBe(attribute);
    };
    await refused({ path_mig_state: v.IBV_MIG_REARM }, v.IBV_QP_PATH_MIG_STATE, 'alt_ah_attr');
    await refused({ path_mig_state: v.IBV_MIG_ARMED }, v.IBV_QP_PATH_MIG_STATE, 'path_mig_state');
    await refused({ path_mig_state: 3 }, v.IBV_QP_PATH_MIG_STATE, 'path_mig_state');
    await refused({ ...alternateTo(b), alt_timeout: 32 }, v.IBV_QP_ALT_PATH, 'alt_timeout');
    await refused({ ...alternateTo(b), alt_port_num: 2 }, v.IBV_QP_ALT_PATH, 'alt_port_num');
    await refused(
      { ...alternateTo(b), alt_ah_attr: { is_global: 0, grh: { dgid: b.gid } } },
      v.IBV_QP_ALT_PATH,
      'alt_ah_attr.is_global',
    );
  });

  test.each([
    [['apm'] as const, v.IBV_DEVICE_AUTO_PATH_MIG],
    [[] as const, 0],
  ])('the capability bit of %j', async (experimental, bit) => {
    const { a } = await open(experimental);
    const device: Partial<v.ibv_device_attr> = {};
    expect(await v.ibv_query_device(a.context, device)).toBe(0);
    expect(good(device.device_cap_flags ?? null) & v.IBV_DEVICE_AUTO_PATH_MIG).toBe(bit);
  });
});
