/**
 * The result of a query, by type and state: at least what the table of ibv_query_qp(3) (as RDMAmojo prints it)
 * calls valid, `cap` and the init attributes always, the next PSNs, and `undefined` for what is not valid.
 */
import { MemoryNetwork } from '@node-roce/link';
import type { QpAttr, QpState, QpType } from '@node-roce/transport';
import { DeviceCap, openDevice } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';
import { addressOf, Pair, QKEY } from '../../packages/transport/testing/pair.ts';
import { Bench, pick } from './state-table/in-state.ts';
import {
  cellOf,
  goodValues,
  type Mask,
  MEMBERS,
  NOT_OFFERED,
  RELIABLE,
  STATES,
  TYPES,
} from './state-table/reference.ts';

type Validity = Record<QpState, string>;

const UD_INIT = 'PKEY_INDEX PORT QKEY';
const UC_INIT = 'PKEY_INDEX PORT ACCESS_FLAGS';
const UC_RTR = `${UC_INIT} AV PATH_MTU DEST_QPN RQ_PSN ALT_PATH`;
const UC_RTS = `${UC_RTR} SQ_PSN PATH_MIG_STATE`;
const RC_RTR = `${UC_INIT} AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER ALT_PATH`;
const RC_RTS = `${RC_RTR} SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC PATH_MIG_STATE`;

const INI_RTS = `${UC_RTS} TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC`;
const TGT_RTS = `${RC_RTR} SQ_PSN TIMEOUT PATH_MIG_STATE`;

/** The printed table, without STATE, which is in every row. Its UC and UD have a row for SQE; RC has none. */
const UD: Validity = {
  RESET: '',
  INIT: UD_INIT,
  RTR: UD_INIT,
  RTS: `${UD_INIT} SQ_PSN`,
  SQD: `${UD_INIT} SQ_PSN`,
  SQE: `${UD_INIT} SQ_PSN`,
  ERR: '',
};
const VALID: Record<QpType, Validity> = {
  RC: { RESET: '', INIT: UC_INIT, RTR: RC_RTR, RTS: RC_RTS, SQD: RC_RTS, SQE: '', ERR: '' },
  UC: { RESET: '', INIT: UC_INIT, RTR: UC_RTR, RTS: UC_RTS, SQD: UC_RTS, SQE: UC_RTS, ERR: '' },
  UD,
  GSI: UD,
  // No page prints these: what the steps of ibv_modify_qp(3) set.
  RAW_PACKET: { RESET: '', INIT: 'PORT', RTR: 'PORT', RTS: 'PORT', SQD: 'PORT', SQE: 'PORT', ERR: '' },
  XRC_INI: { RESET: '', INIT: UC_INIT, RTR: UC_RTR, RTS: INI_RTS, SQD: INI_RTS, SQE: '', ERR: '' },
  XRC_TGT: { RESET: '', INIT: UC_INIT, RTR: RC_RTR, RTS: TGT_RTS, SQD: TGT_RTS, SQE: '', ERR: '' },
};
/** At least so many entries, where a queue pair has the queue. */
const SIZES: Partial<Record<QpType, [sends: number, receives: number]>> = {
  XRC_INI: [64, 0],
  XRC_TGT: [1, 0],
};

/** Members that mean something to no queue pair of the type: "valid only for RC/UC QPs", "only for RC QPs". */
const RC_ONLY: readonly (keyof QpAttr)[] = [
  'maxRdAtomic',
  'maxDestRdAtomic',
  'minRnrTimer',
  'timeout',
  'retryCnt',
  'rnrRetry',
];
const CONNECTED_ONLY: readonly (keyof QpAttr)[] = [
  'ahAttr',
  'pathMtu',
  'destQpNum',
  'rqPsn',
  'qpAccessFlags',
  ...RC_ONLY,
];
const MEANINGLESS: Record<QpType, readonly (keyof QpAttr)[]> = {
  RC: ['qkey'],
  UC: ['qkey', ...RC_ONLY],
  UD: CONNECTED_ONLY,
  GSI: CONNECTED_ONLY,
  RAW_PACKET: [...CONNECTED_ONLY, 'qkey', 'pkeyIndex', 'sqPsn'],
  XRC_INI: ['qkey', 'maxDestRdAtomic', 'minRnrTimer'],
  XRC_TGT: ['qkey', 'maxRdAtomic', 'retryCnt', 'rnrRetry'],
};

const bitsOf = (type: QpType, state: QpState) => VALID[type][state].split(' ').filter(Boolean) as Mask[];

const bench = new Bench();
const membersOf = (bits: Mask[]) => bits.flatMap((bit) => MEMBERS[bit]);

describe.each(TYPES)('%s', (type) => {
  test.each(STATES.filter((state) => state !== 'SQE' || !RELIABLE.includes(type)))('in %s', (state) => {
    const bits = bitsOf(type, state);
    // The man page ties both to a device that migrates paths; by its capabilities ours does not.
    const valid = membersOf(bits.filter((bit) => !NOT_OFFERED.includes(bit)));
    bench.with(type, state, (qp) => {
      const { attr, init } = qp.query();
      expect(attr).toMatchObject({ qpState: state, curQpState: state });
      // The values that brought it here.
      const values = goodValues(state);
      for (const name of valid) expect(attr[name], name).toEqual(values[name]);

      expect(attr.cap).toEqual(init.cap);
      expect(init).toMatchObject({ type, sqSigAll: false, sendCq: expect.any(Number), recvCq: init.sendCq });
      expect(init.cap).toMatchObject({ maxSendWr: expect.any(Number), maxInlineData: expect.any(Number) });
      const [sends, receives] = SIZES[type] ?? [64, 64];
      expect(init.cap.maxSendWr).toBeGreaterThanOrEqual(sends);
      expect(init.cap.maxRecvWr).toBeGreaterThanOrEqual(receives);

      for (const name of membersOf([...NOT_OFFERED])) {
        expect(attr[name], `${name}: paths do not migrate`).toBeUndefined();
      }
      for (const name of MEANINGLESS[type]) expect(attr[name], `${name} of ${type}`).toBeUndefined();
      if (bits.length === 0) {
        const present = Object.keys(attr).filter((name) => attr[name as keyof QpAttr] !== undefined);
        expect(present.sort()).toEqual(['cap', 'curQpState', 'qpState']);
      }
      // "Is the QP draining? (Valid only if qp_state is SQD)"
      expect(attr.sqDraining).toBe(state === 'SQD' ? false : undefined);
      const hasPsn = type !== 'RAW_PACKET' && ['RTS', 'SQD', 'SQE'].includes(state);
      expect(attr.sqPsn === undefined).toBe(!hasPsn);
    });
  });
});

describe.each(TYPES)('%s of a device whose paths migrate', (type) => {
  const migrating = new Bench('apm');

  test.each(STATES.filter((state) => state !== 'SQE' || !RELIABLE.includes(type)))('in %s', (state) => {
    const bits = bitsOf(type, state);
    const alternate = MEMBERS.ALT_PATH;
    migrating.with(type, state, (qp) => {
      const { attr } = qp.query();
      expect(attr.pathMigState).toBe(bits.includes('PATH_MIG_STATE') ? 'MIGRATED' : undefined);
      for (const name of alternate) expect(attr[name], `${name}: none is loaded`).toBeUndefined();
    });
    if (!bits.includes('ALT_PATH')) return;
    // Loaded in the step to RTR, and there in every state from then on in which the page has it.
    migrating.with(
      type,
      state,
      (qp) => {
        const { attr } = qp.query();
        const values = goodValues(state);
        for (const name of alternate) expect(attr[name], name).toEqual(values[name]);
      },
      alternate,
    );
  });
});

describe('PSNs are the next ones', () => {
  const psns = (side: Pair['left']) => {
    const { attr } = side.adapter.queryQp(side.qp.qpn);
    return [attr.sqPsn, attr.rqPsn];
  };

  test.each(['RC', 'UC'] as const)('%s: a packet each, across the wrap', (type) => {
    const pair = new Pair({ type, mtu: 256, psn: [0xff_fffe, 7] });
    const mr = pair.left.register(new ArrayBuffer(4096));
    const target = pair.right.register(new ArrayBuffer(4096));
    expect([psns(pair.left), psns(pair.right)]).toEqual([
      [0xff_fffe, 7],
      [7, 0xff_fffe],
    ]);
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 1000 }], remote: target });
    pair.run();
    expect(pair.left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
    expect([psns(pair.left), psns(pair.right)]).toEqual([
      [2, 7],
      [7, 2],
    ]);
  });

  test('RC: a READ takes as many as it has responses', () => {
    const pair = new Pair({ mtu: 256, psn: [10, 20] });
    const mr = pair.left.register(new ArrayBuffer(4096));
    const target = pair.right.register(new ArrayBuffer(4096));
    pair.left.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 1025 }], remote: target });
    pair.run();
    expect(pair.left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
    expect([psns(pair.left), psns(pair.right)]).toEqual([
      [15, 20],
      [20, 15],
    ]);
  });

  test('UD: a datagram each, and no PSN that it expects', () => {
    const pair = new Pair({ type: 'UD', psn: [0xff_ffff, 7] });
    const ah = pair.left.adapter.createAh(pair.left.pd, addressOf(2));
    const datagram = { ah, qpn: pair.right.qp.qpn, qkey: QKEY };
    for (let i = 0; i < 3; i++) pair.left.post({ opcode: 'SEND', inline: new Uint8Array(8), datagram });
    pair.run();
    expect(pair.left.poll()).toHaveLength(3);
    expect([psns(pair.left), psns(pair.right)]).toEqual([
      [2, undefined],
      [7, undefined],
    ]);
  });
});

test('sq_draining shows while started requests are not done', () => {
  const pair = new Pair();
  const { left } = pair;
  pair.fault = () => [];
  left.post({ opcode: 'SEND', inline: new Uint8Array(8) });
  pair.run(1000);
  left.adapter.modifyQp(left.qp.qpn, { qpState: 'SQD' });
  expect(left.adapter.queryQp(left.qp.qpn).attr).toMatchObject({ qpState: 'SQD', sqDraining: true });
  pair.fault = undefined;
  pair.right.postRecv(1, [{ mr: pair.right.register(new ArrayBuffer(64)), length: 64 }]);
  pair.run();
  expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
  expect(left.adapter.queryQp(left.qp.qpn).attr).toMatchObject({ qpState: 'SQD', sqDraining: false });
});

describe('the mask is a hint: whatever is asked for, at least the valid attributes are returned', () => {
  const link = () => new MemoryNetwork().link('10.0.0.1');

  // A link in memory has no frames for RAW_PACKET; those of XRC have tests of their own.
  test.each(['RC', 'UC', 'UD', 'GSI'] as const)('%s', async (type) => {
    await using device = await openDevice({ link: link() });
    const pd = await device.allocPd();
    const sendCq = await device.createCq(4);
    const qp = await pd.createQp({ type, sendCq, context: 'mine', sqSigAll: true });
    let from: QpState = 'RESET';
    for (const state of ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'ERR'] as const) {
      if (state !== 'RESET') {
        const required = membersOf(cellOf(type, from, state)!.required);
        await qp.modify(pick(required, from, state));
        from = state;
      }
      const valid = membersOf(bitsOf(type, state).filter((bit) => !NOT_OFFERED.includes(bit)));
      const everything = membersOf(Object.keys(MEMBERS) as Mask[]);
      for (const mask of [undefined, [], ['qpState'], everything, ...everything.map((name) => [name])]) {
        const { attr, init } = await qp.query(mask as (keyof QpAttr)[] | undefined);
        expect(attr).toMatchObject({ qpState: state, cap: qp.cap });
        for (const name of valid) expect(attr[name], `${name} in ${state}`).toBeDefined();
        expect(init).toEqual({
          type,
          sendCq,
          recvCq: sendCq,
          srq: undefined,
          cap: qp.cap,
          sqSigAll: true,
          context: 'mine',
        });
      }
    }
    await expect(qp.query(['timeOut' as never])).rejects.toMatchObject({
      code: 'ERR_ROCE_INVALID_ATTRIBUTE',
    });
  });

  test('the capabilities show what is not offered', async () => {
    await using device = await openDevice({ link: link() });
    const { deviceCapFlags } = device.query();
    expect(deviceCapFlags & (DeviceCap.RESIZE_MAX_WR | DeviceCap.AUTO_PATH_MIG)).toBe(
      DeviceCap.RESIZE_MAX_WR,
    );
  });
});
