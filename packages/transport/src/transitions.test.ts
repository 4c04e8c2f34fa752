import { describe, expect, test } from 'vitest';
import { Pair } from '../testing/pair.ts';
import type { QpAttr, QpState } from './index.ts';
import { type QpAttrName, transition, VALID_IN_STATE } from './transitions.ts';

const STATES: QpState[] = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'];

/** A good value for every attribute that an RC queue pair takes. */
const dgid = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2);
const GOOD: QpAttr = {
  pathMtu: 1024,
  rqPsn: 1,
  sqPsn: 2,
  destQpNum: 3,
  qpAccessFlags: 0,
  ahAttr: {
    grh: { dgid, flowLabel: 0, sgidIndex: 0, hopLimit: 64, trafficClass: 0 },
    isGlobal: true,
    dlid: 0,
    sl: 0,
    srcPathBits: 0,
    staticRate: 0,
    portNum: 1,
  },
  pkeyIndex: 0,
  portNum: 1,
  enSqdAsyncNotify: true,
  maxRdAtomic: 1,
  maxDestRdAtomic: 1,
  minRnrTimer: 1,
  timeout: 14,
  retryCnt: 7,
  rnrRetry: 7,
  rateLimit: 0,
};
const OFFERED = Object.keys(GOOD) as QpAttrName[];

/** A queue pair brought to a state by the shortest way. */
function inState(state: QpState) {
  const { left } = new Pair();
  const { adapter } = left;
  left.createQp();
  const { qpn } = left.qp;
  const way: QpState[] = {
    RESET: [],
    INIT: ['INIT'],
    RTR: ['INIT', 'RTR'],
    RTS: ['INIT', 'RTR', 'RTS'],
    SQD: ['INIT', 'RTR', 'RTS', 'SQD'],
    SQE: [],
    ERR: ['INIT', 'ERR'],
  }[state] as QpState[];
  let from: QpState = 'RESET';
  for (const to of way) {
    adapter.modifyQp(qpn, only(transition('RC', from, to)?.required ?? [], to));
    from = to;
  }
  return { adapter, qpn };
}

function only(names: readonly QpAttrName[], to: QpState): QpAttr {
  return { ...Object.fromEntries(names.map((name) => [name, GOOD[name]])), qpState: to };
}

describe.each(STATES.filter((s) => s !== 'SQE'))('RC from %s', (from) => {
  test.each(STATES)('to %s', (to) => {
    const allowed = transition('RC', from, to);
    if (!allowed) {
      const { adapter, qpn } = inState(from);
      expect(() => adapter.modifyQp(qpn, { qpState: to })).toThrow(/^qpState: /);
      expect(adapter.queryQp(qpn).attr.qpState).toBe(from);
      return;
    }
    const { adapter, qpn } = inState(from);
    adapter.modifyQp(qpn, only(allowed.required, to));
    expect(adapter.queryQp(qpn).attr.qpState).toBe(to);
    for (const missing of allowed.required) {
      const fresh = inState(from);
      const names = allowed.required.filter((name) => name !== missing);
      expect(() => fresh.adapter.modifyQp(fresh.qpn, only(names, to))).toThrow(
        expect.objectContaining({ attribute: missing, errno: 'EINVAL', code: 'ERR_ROCE_MISSING_ATTRIBUTE' }),
      );
      expect(fresh.adapter.queryQp(fresh.qpn).attr.qpState).toBe(from);
    }
    for (const name of OFFERED) {
      const fresh = inState(from);
      const attr = only([...allowed.required, name], to);
      if (allowed.required.includes(name) || allowed.optional.includes(name)) {
        fresh.adapter.modifyQp(fresh.qpn, attr);
        expect(fresh.adapter.queryQp(fresh.qpn).attr.qpState).toBe(to);
      } else {
        expect(() => fresh.adapter.modifyQp(fresh.qpn, attr)).toThrow(
          expect.objectContaining({ attribute: name, errno: 'EINVAL' }),
        );
      }
    }
  });

  test('a query returns the attributes that are valid there', () => {
    const { adapter, qpn } = inState(from);
    const { attr, init } = adapter.queryQp(qpn);
    // Of a device whose paths do not migrate.
    const valid = VALID_IN_STATE.RC[from].filter((name) => !/^alt|^pathMig/.test(name));
    const expected = ['qpState', 'curQpState', 'cap', ...valid];
    const present = Object.entries(attr).filter(([, value]) => value !== undefined);
    expect(present.map(([name]) => name).sort()).toEqual(expected.sort());
    expect(init).toMatchObject({ type: 'RC', cap: attr.cap, sqSigAll: false });
  });
});

test.each([
  ['pathMtu', 1000],
  ['pathMtu', 8192],
  ['destQpNum', 0x1000000],
  ['rqPsn', -1],
  ['maxDestRdAtomic', 129],
  ['minRnrTimer', 32],
  ['ahAttr', { ...GOOD.ahAttr, isGlobal: false }],
  ['ahAttr', { ...GOOD.ahAttr, grh: { ...GOOD.ahAttr?.grh, dgid: new Uint8Array(15) } }],
  ['ahAttr', { ...GOOD.ahAttr, grh: { ...GOOD.ahAttr?.grh, sgidIndex: 1 } }],
  ['altTimeout', 1],
  ['noSuchThing', 1],
])('%s = %j is refused by name', (name, value) => {
  const { adapter, qpn } = inState('INIT');
  const attr = { ...only(transition('RC', 'INIT', 'RTR')?.required ?? [], 'RTR'), [name]: value };
  expect(() => adapter.modifyQp(qpn, attr)).toThrow(
    expect.objectContaining({ attribute: expect.stringMatching(new RegExp(`^${name}`)) }),
  );
  expect(adapter.queryQp(qpn).attr.qpState).toBe('INIT');
});
