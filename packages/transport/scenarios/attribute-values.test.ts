/** The values that ibv_modify_qp(3) takes for each attribute, to their bounds, and the results of a query afterwards. */
import { beforeEach, describe, expect, test } from 'vitest';
import { type AhAttr, EMPTY_GID, type QpAttr, type QpType, RoceError } from '../src/index.ts';
import { addressOf, gidOf, QKEY, Side } from '../testing/pair.ts';

const INIT = { qpState: 'INIT', pkeyIndex: 0, portNum: 1 } as const;
const RTR: QpAttr = {
  qpState: 'RTR',
  ahAttr: addressOf(1),
  pathMtu: 1024,
  destQpNum: 77,
  rqPsn: 1,
  maxDestRdAtomic: 1,
  minRnrTimer: 1,
};
const RTS: QpAttr = { qpState: 'RTS', sqPsn: 1, timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 1 };

const v6 = Uint8Array.of(0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9);
const gids = [
  { gid: gidOf(2), address: '10.0.0.2', type: 'RoCE v2' as const },
  EMPTY_GID,
  { gid: v6, address: 'fd00::9', type: 'RoCE v2' as const },
];

let side: Side;
const modify = (attr: object) => side.adapter.modifyQp(side.qp.qpn, attr);
const query = () => side.adapter.queryQp(side.qp.qpn).attr;

beforeEach(() => {
  side = new Side(2, 5, { gids, activeMtu: 2048, limits: { maxQpRdAtom: 16, maxQpInitRdAtom: 8 } });
});

function refused(attr: object, attribute: string, code = 'ERR_ROCE_INVALID_ATTRIBUTE'): void {
  const before = query();
  expect(() => modify(attr)).toThrow(RoceError);
  expect(() => modify(attr)).toThrow(expect.objectContaining({ attribute, code }));
  expect(query()).toEqual(before);
}

describe('RC', () => {
  test.each([
    ['pkeyIndex', [0], [-1, 1, 0.5]],
    ['portNum', [1], [0, 2]],
    ['qpAccessFlags', [0, 1, 0xe, 0xf], [0x10, 0x20, -1, 1.5]],
  ])('%s in INIT', (name, good, bad) => {
    const init = { ...INIT, qpAccessFlags: 0 };
    for (const value of bad) refused({ ...init, [name]: value }, name);
    for (const value of good) {
      modify({ ...init, [name]: value });
      expect(query()).toMatchObject({ qpState: 'INIT', [name]: value });
      modify({ qpState: 'RESET' });
    }
  });

  test.each([
    ['pathMtu', [256, 512, 1024, 2048], [0, 128, 255, 1000, 4096]],
    ['destQpNum', [0, 0xff_ffff], [-1, 0x100_0000]],
    ['rqPsn', [0, 0xff_ffff], [-1, 0x100_0000]],
    ['maxDestRdAtomic', [0, 16], [-1, 17, 1.5]],
    ['minRnrTimer', [0, 31], [-1, 32]],
    ['rateLimit', [0, 0xffff_ffff], [-1, 2 ** 32]],
  ])('%s in RTR', (name, good, bad) => {
    for (const value of good) {
      modify({ ...INIT, qpAccessFlags: 0 });
      for (const other of bad) refused({ ...RTR, [name]: other }, name);
      modify({ ...RTR, [name]: value });
      if (name !== 'rateLimit') expect(query()).toMatchObject({ qpState: 'RTR', [name]: value });
      modify({ qpState: 'RESET' });
    }
  });

  test.each([
    ['sqPsn', [0, 0xff_ffff], [-1, 0x100_0000]],
    ['timeout', [0, 31], [-1, 32]],
    ['retryCnt', [0, 7], [-1, 8]],
    ['rnrRetry', [0, 7], [-1, 8]],
    ['maxRdAtomic', [0, 8], [-1, 9, 2.5]],
    ['minRnrTimer', [0, 31], [-1, 32]],
    ['rateLimit', [0, 0xffff_ffff], [-1, 2 ** 32]],
  ])('%s in RTS', (name, good, bad) => {
    for (const value of good) {
      modify({ ...INIT, qpAccessFlags: 0 });
      modify(RTR);
      for (const other of bad) refused({ ...RTS, [name]: other }, name);
      modify({ ...RTS, [name]: value });
      expect(query()).toMatchObject({ qpState: 'RTS', [name]: value });
      modify({ qpState: 'RESET' });
    }
  });

  test('enSqdAsyncNotify is true or false', () => {
    modify({ ...INIT, qpAccessFlags: 0 });
    modify(RTR);
    modify(RTS);
    refused({ qpState: 'SQD', enSqdAsyncNotify: 1 }, 'enSqdAsyncNotify');
    modify({ qpState: 'SQD', enSqdAsyncNotify: false });
    expect(query()).toMatchObject({ qpState: 'SQD', sqDraining: false });
  });

  test.each(['qpState', 'curQpState'])('%s is one of the seven states', (name) => {
    refused({ [name]: 'READY' }, name);
  });

  test('curQpState is the state that the program believes the queue pair to be in', () => {
    modify({ ...INIT, qpAccessFlags: 0 });
    modify(RTR);
    refused({ ...RTS, curQpState: 'INIT' }, 'curQpState');
    modify({ ...RTS, curQpState: 'RTR' });
    expect(query()).toMatchObject({ qpState: 'RTS', curQpState: 'RTS' });
  });

  test('no attribute at all is no change, in every state', () => {
    modify({});
    expect(query().qpState).toBe('RESET');
    modify({ qpState: undefined, timeout: undefined });
    expect(query().qpState).toBe('RESET');
  });

  test('an attribute that belongs to another step, or to none', () => {
    refused({ ...INIT, qpAccessFlags: 0, timeout: 14 }, 'timeout');
    refused({ ...INIT, qpAccessFlags: 0, noSuchThing: 1 }, 'noSuchThing');
    expect(() => modify({ ...INIT, qpAccessFlags: 0, timeout: 14 })).toThrow(/expected pkeyIndex, portNum/);
  });

  test.each(['altAhAttr', 'altPkeyIndex', 'altPortNum', 'altTimeout'])('paths do not migrate: %s', (name) => {
    modify({ ...INIT, qpAccessFlags: 0 });
    refused({ ...RTR, [name]: 0 }, name, 'ERR_ROCE_NOT_SUPPORTED');
    expect(() => modify({ ...RTR, [name]: 0 })).toThrow(expect.objectContaining({ errno: 'EOPNOTSUPP' }));
  });

  test('pathMigState is not offered', () => {
    modify({ ...INIT, qpAccessFlags: 0 });
    modify(RTR);
    refused({ ...RTS, pathMigState: 'ARMED' }, 'pathMigState', 'ERR_ROCE_NOT_SUPPORTED');
  });
});

describe('the address vector', () => {
  const { grh } = addressOf(1);
  const withRoute = (change: Partial<AhAttr['grh']>): AhAttr => ({
    ...addressOf(1),
    grh: { ...grh, ...change },
  });
  const rtr = (ahAttr: unknown) => ({ ...RTR, ahAttr });

  beforeEach(() => modify({ ...INIT, qpAccessFlags: 0 }));

  test.each<[string, unknown]>([
    ['ahAttr.isGlobal', { ...addressOf(1), isGlobal: false }],
    ['ahAttr.isGlobal', { ...addressOf(1), grh: undefined }],
    ['ahAttr.grh.dgid', withRoute({ dgid: new Uint8Array(15).fill(1) })],
    ['ahAttr.grh.dgid', withRoute({ dgid: new Uint8Array(17).fill(1) })],
    ['ahAttr.grh.dgid', withRoute({ dgid: [...gidOf(1)] as never })],
    ['ahAttr.grh.dgid', withRoute({ dgid: new Uint8Array(16) })],
    ['ahAttr.portNum', { ...addressOf(1), portNum: 0 }],
    ['ahAttr.portNum', { ...addressOf(1), portNum: 2 }],
    // No GID there, and one of the other IP version.
    ['ahAttr.grh.sgidIndex', withRoute({ sgidIndex: 1 })],
    ['ahAttr.grh.sgidIndex', withRoute({ sgidIndex: 2 })],
    ['ahAttr.grh.sgidIndex', withRoute({ dgid: v6 })],
  ])('%s that leads nowhere', (attribute, ahAttr) => {
    refused(rtr(ahAttr), attribute);
  });

  test.each([
    ['grh.sgidIndex', -1, 3],
    ['grh.flowLabel', -1, 0x10_0000],
    ['grh.hopLimit', -1, 256],
    ['grh.trafficClass', -1, 256],
    ['sl', -1, 16],
    ['dlid', -1, 0x1_0000],
    ['srcPathBits', -1, 256],
    ['staticRate', -1, 256],
  ])('%s below and above its field', (name, ...values) => {
    const field = name.replace('grh.', '');
    for (const value of [...values, 0.5]) {
      const change = { [field]: value };
      const ahAttr = name.startsWith('grh.') ? withRoute(change) : { ...addressOf(1), ...change };
      refused(rtr(ahAttr), `ahAttr.${name}`);
    }
  });

  test('the most of each field; a query gives a copy', () => {
    const ahAttr = {
      ...withRoute({ flowLabel: 0xf_ffff, hopLimit: 255, trafficClass: 255 }),
      sl: 15,
      dlid: 0xffff,
      srcPathBits: 255,
      staticRate: 255,
    };
    modify(rtr(ahAttr));
    expect(query().ahAttr).toEqual(ahAttr);
    query().ahAttr!.grh.dgid.fill(0);
    ahAttr.grh.dgid = gidOf(9);
    expect(query().ahAttr!.grh.dgid).toEqual(gidOf(1));
  });

  test('IPv6, from the GID of that version', () => {
    const ahAttr = withRoute({ dgid: Uint8Array.from(v6, (byte, i) => (i === 15 ? 7 : byte)), sgidIndex: 2 });
    modify(rtr(ahAttr));
    expect(query().ahAttr).toEqual(ahAttr);
  });

  test.each([
    ['an IPv4-mapped prefix with a byte set', 3],
    ['a mapped address without its 0xffff', 10],
    ['a mapped address with half of its 0xffff', 11],
  ])('%s is IPv6', (_what, index) => {
    const dgid = gidOf(1);
    dgid[index] ^= 1;
    refused(rtr(withRoute({ dgid })), 'ahAttr.grh.sgidIndex');
  });
});

test.each<QpType>(['UC', 'UD', 'GSI'])('%s is paced from RTS on', (type) => {
  side.createQp({}, { type });
  const init = { ...INIT, ...(type === 'UC' ? { qpAccessFlags: 0 } : { qkey: QKEY }) };
  refused({ ...init, rateLimit: 1 }, 'rateLimit');
});

test.each<QpType>(['UD', 'GSI'])('%s: the Q_Key has 32 bits', (type) => {
  side.createQp({}, { type });
  for (const qkey of [-1, 2 ** 32, 0.5]) refused({ ...INIT, qkey }, 'qkey');
  modify({ ...INIT, qkey: 0xffff_ffff });
  expect(query()).toMatchObject({ qkey: 0xffff_ffff });
});

test.each<[QpType, string]>([
  ['RC', 'an RC'],
  ['UC', 'a UC'],
])('a step that there is not names those that there are: %s', (type, article) => {
  side.createQp({}, { type });
  expect(() => modify({ qpState: 'RTS' })).toThrow(
    `qpState: ${article} queue pair cannot change from RESET to RTS (expected RESET, INIT)`,
  );
});

test('a query shows how the queue pair was created', () => {
  const cq = side.adapter.createCq(16).handle;
  const srq = side.adapter.createSrq({ pd: side.pd, maxWr: 4, maxSge: 1, limit: 0 }).handle;
  side.createQp({ maxSendWr: 8, maxInlineData: 32 }, { srq, cq });
  const { init, attr } = side.adapter.queryQp(side.qp.qpn);
  const cap = { maxSendWr: 8, maxRecvWr: 0, maxSendSge: 4, maxRecvSge: 0, maxInlineData: 32 };
  expect(init).toEqual({ type: 'RC', cap, sqSigAll: false, sendCq: cq, recvCq: cq, srq });
  expect(attr.cap).toEqual(cap);
  side.createQp();
  expect('srq' in side.adapter.queryQp(side.qp.qpn).init).toBe(false);
});
