/** Sentences of the man pages of ibv_modify_qp(3) and ibv_query_qp(3), and of docs/ibverbs.md where it differs from them. */
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { rnrTimerMicroseconds } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { connect, createQp, openPair, openSide } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, EOPNOTSUPP } = constants.errno;
const TYPES = [
  ['RC', v.IBV_QPT_RC],
  ['UC', v.IBV_QPT_UC],
  ['UD', v.IBV_QPT_UD],
] as const;

const STEPS = [v.IBV_QPS_INIT, v.IBV_QPS_RTR, v.IBV_QPS_RTS] as const;

/** Queue pairs of a type in RESET, INIT, RTR and RTS. */
async function inEachState(type: number, visit: (qp: v.ibv_qp, state: number) => Promise<void>) {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const fresh = await createQp(side, type);
  await visit(fresh, v.IBV_QPS_RESET);
  for (const target of STEPS) {
    const qp = await createQp(side, type);
    await connect(qp, side.gid, 9, target);
    expect(qp.state).toBe(target);
    await visit(qp, target);
  }
}

describe('path_mtu', () => {
  const modify = async (path_mtu: number) => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const qp = await createQp(side, v.IBV_QPT_RC);
    await connect(qp, side.gid, 9, v.IBV_QPS_INIT);
    const mask = v.IBV_QP_STATE | v.IBV_QP_PATH_MTU;
    expect(await v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_RTR, path_mtu }, mask)).toBe(EINVAL);
    return v.lastError()!;
  };

  test('in bytes is named, with the constant that it should be', async () => {
    expect(await modify(1024)).toMatchObject({
      attribute: 'path_mtu',
      message: 'path_mtu: 1024 is not an enum ibv_mtu (expected IBV_MTU_1024)',
    });
  });

  test.each([0, 6, -1])('%d is named as it was given', async (value) => {
    expect((await modify(value)).message).toContain(
      `path_mtu: ${value} is not an enum ibv_mtu (expected IBV_MTU_256`,
    );
  });
});

describe.each(TYPES)('%s', (_, type) => {
  test('mask 0 changes nothing, in any state', async () => {
    await inEachState(type, async (qp, state) => {
      expect(await v.ibv_modify_qp(qp, {}, 0)).toBe(0);
      expect(qp.state).toBe(state);
    });
  });

  test('path migration is refused with EOPNOTSUPP, in any state that has a step within', async () => {
    const names = [
      [v.IBV_QP_ALT_PATH, 'alt_ah_attr'],
      [v.IBV_QP_PATH_MIG_STATE, 'path_mig_state'],
    ] as const;
    await inEachState(type, async (qp, state) => {
      for (const [bit, attribute] of names) {
        // RTR alone has no step within the state (Linux qp_state_table): EINVAL, whatever the attribute.
        const refused = state === v.IBV_QPS_RTR ? EINVAL : EOPNOTSUPP;
        expect(await v.ibv_modify_qp(qp, {}, bit)).toBe(refused);
        expect(v.lastError()?.attribute).toBe(refused === EINVAL ? 'qp_state' : attribute);
      }
    });
  });

  test('takes rate_limit', async () => {
    const { qpA: qp } = await openPair(type);
    expect(await v.ibv_modify_qp(qp, { rate_limit: 1000 }, v.IBV_QP_RATE_LIMIT)).toBe(0);
    expect(await v.ibv_modify_qp_rate_limit(qp, { rate_limit: 2000 })).toBe(0);
    const attr: v.ibv_qp_attr = {};
    expect(await v.ibv_query_qp(qp, attr, v.IBV_QP_RATE_LIMIT)).toBe(0);
    expect(attr.rate_limit).toBe(2000);
  });
});

describe('ah_attr', () => {
  test.each([
    ['dlid', [0, 65_535], [65_536, -1]],
    ['src_path_bits', [0, 127, 255], [256, -1]],
    ['static_rate', [0, 2, 22, 255], [256, -1, 1.5]],
  ])('%s has the width of its member', async (member, good, bad) => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const attr = { is_global: 1, port_num: 1, grh: { dgid: side.gid, hop_limit: 1 } };
    for (const value of good)
      expect(await v.ibv_create_ah(side.pd, { ...attr, [member]: value })).not.toBeNull();
    for (const value of bad) {
      expect(await v.ibv_create_ah(side.pd, { ...attr, [member]: value })).toBeNull();
      expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, `ah_attr.${member}`]);
    }
  });
});

describe('errors', () => {
  test('name members and states as C does, and nothing that is never taken', async () => {
    const { qpA: qp } = await openPair(v.IBV_QPT_RC);
    expect(await v.ibv_modify_qp(qp, { dest_qp_num: 1 }, v.IBV_QP_DEST_QPN)).toBe(EINVAL);
    expect(v.lastError()).toMatchObject({
      attribute: 'dest_qp_num',
      message:
        "dest_qp_num: can't be changed from IBV_QPS_RTS to IBV_QPS_RTS (expected cur_qp_state, qp_access_flags, min_rnr_timer, rate_limit, cap)",
    });
    const attr = { qp_state: v.IBV_QPS_INIT };
    expect(await v.ibv_modify_qp(qp, attr, v.IBV_QP_STATE)).toBe(EINVAL);
    expect(v.lastError()?.message).toContain('cannot change from IBV_QPS_RTS to IBV_QPS_INIT');
  });

  test('as text', () => {
    expect(v.strerror(0)).toBe('Success');
    expect(v.strerror(EOPNOTSUPP)).toBe('EOPNOTSUPP: operation not supported');
    expect(v.strerror(EINVAL)).toBe('EINVAL: invalid argument');
    expect(v.strerror(9999)).toBe('unknown error 9999');
  });
});

test('docs/ibverbs.md: the table of min_rnr_timer is the one on the wire', () => {
  const text = readFileSync(new URL('../../../docs/ibverbs.md', import.meta.url), 'utf8');
  const cells = [...text.matchAll(/\b(\d+): ([\d.]+)(?= ms)/g)];
  expect(cells.map(([, code]) => Number(code)).sort((a, b) => a - b)).toEqual([...Array(32).keys()]);
  for (const [, code, time] of cells)
    expect(Number(time) * 1000).toBeCloseTo(rnrTimerMicroseconds(Number(code)), 6);
});
