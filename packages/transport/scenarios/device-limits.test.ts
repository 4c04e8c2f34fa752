/** The device's limits (ibv_query_device(3)): all of what is offered can be had, one more is ENOMEM, and what is given back can be had again. */
import { describe, expect, test } from 'vitest';
import { DEVICE_LIMITS, type DeviceLimits, DOORBELL_RECV, type MwType, Ring } from '../src/index.ts';
import { addressOf, Side } from '../testing/pair.ts';

const NO_MORE = expect.objectContaining({ code: 'ERR_ROCE_LIMIT', errno: 'ENOMEM' });
const BUSY = expect.objectContaining({ code: 'ERR_ROCE_BUSY', errno: 'EBUSY' });
const INVALID = (attribute: string) =>
  expect.objectContaining({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute });

/** A side has one PD, one completion queue and one queue pair from the start. */
const make = (limits: Partial<DeviceLimits> = {}) => new Side(1, 3, { limits });
const CAP = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

type Create = (side: Side, pd: number) => number;
type Destroy = (adapter: Side['adapter'], handle: number) => void;

const kinds: [string, keyof DeviceLimits, Create, Destroy][] = [
  ['PDs', 'maxPd', ({ adapter }) => adapter.allocPd(), (adapter, pd) => adapter.deallocPd(pd)],
  [
    'regions',
    'maxMr',
    ({ adapter }, pd) => {
      const [buffer, length] = [new ArrayBuffer(8), 8];
      return adapter.registerMr({ pd, backing: 1, buffer, offset: 0, length, access: 0 }).handle;
    },
    (adapter, mr) => adapter.deregisterMr(mr),
  ],
  [
    'windows',
    'maxMw',
    ({ adapter }, pd) => adapter.allocMw(pd, 1).handle,
    (adapter, mw) => adapter.deallocMw(mw),
  ],
  [
    'completion queues',
    'maxCq',
    ({ adapter }) => adapter.createCq(1).handle,
    (adapter, cq) => adapter.destroyCq(cq),
  ],
  [
    'shared receive queues',
    'maxSrq',
    ({ adapter }, pd) => adapter.createSrq({ pd, maxWr: 1, maxSge: 1, limit: 0 }).handle,
    (adapter, srq) => adapter.destroySrq(srq),
  ],
  [
    'address handles',
    'maxAh',
    ({ adapter }, pd) => adapter.createAh(pd, addressOf(2)),
    (adapter, ah) => adapter.destroyAh(ah),
  ],
  [
    'queue pairs',
    'maxQp',
    ({ adapter, cqHandle: cq }, pd) =>
      adapter.createQp({ pd, type: 'RC', sendCq: cq, recvCq: cq, cap: CAP, sqSigAll: false }).qpn,
    (adapter, qpn) => adapter.destroyQp(qpn),
  ],
];

test.each(kinds)('%s', (_what, limit, create, destroy) => {
  const had = ['maxPd', 'maxCq', 'maxQp'].includes(limit) ? 1 : 0;
  const side = make({ [limit]: had + 2 });
  const { adapter, pd } = side;
  const first = create(side, pd);
  const second = create(side, pd);
  expect(second).not.toBe(first);
  expect(() => create(side, pd)).toThrow(NO_MORE);
  destroy(adapter, first);
  expect(() => destroy(adapter, first)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
  create(side, pd);
  expect(() => create(side, pd)).toThrow(NO_MORE);
});

describe('a PD is busy while something holds it, each time for its own', () => {
  const holders = kinds.filter(([, limit]) => limit !== 'maxPd' && limit !== 'maxCq');
  test.each(holders)('%s', (_what, _limit, create, destroy) => {
    const side = make();
    const { adapter } = side;
    const pd = adapter.allocPd();
    const handle = create(side, pd);
    expect(() => adapter.deallocPd(pd)).toThrow(BUSY);
    destroy(adapter, handle);
    adapter.deallocPd(pd);
    expect(() => adapter.deallocPd(pd)).toThrow(INVALID('pd'));
    expect(() => create(side, pd)).toThrow(INVALID('pd'));
  });
});

describe('a queue pair', () => {
  const limits = { maxQpWr: 128, maxSge: 8, maxInlineData: 256 };

  test.each([
    ['maxSendWr', 128],
    ['maxRecvWr', 128],
    ['maxSendSge', 8],
    ['maxRecvSge', 8],
    ['maxInlineData', 256],
  ] as const)('%s', (name, most) => {
    const side = make(limits);
    const { adapter, pd, cqHandle: cq } = side;
    const create = (value: number) =>
      adapter.createQp({
        pd,
        type: 'RC',
        sendCq: cq,
        recvCq: cq,
        cap: { ...CAP, [name]: value },
        sqSigAll: false,
      });
    expect(create(most).cap[name]).toBe(most);
    for (const value of [most + 1, -1, 1.5]) expect(() => create(value)).toThrow(INVALID(`cap.${name}`));
    expect(create(0).cap[name]).toBe(name === 'maxInlineData' ? 0 : 1);
  });

  test('without the completion queue, SRQ or PD that it names', () => {
    const { adapter, pd, cqHandle: cq } = make();
    const init = { pd, type: 'RC' as const, sendCq: cq, recvCq: cq, cap: CAP, sqSigAll: false };
    expect(() => adapter.createQp({ ...init, sendCq: 999 })).toThrow(INVALID('sendCq'));
    expect(() => adapter.createQp({ ...init, recvCq: 999 })).toThrow(INVALID('recvCq'));
    expect(() => adapter.createQp({ ...init, srq: 999 })).toThrow(INVALID('srq'));
    expect(() => adapter.createQp({ ...init, pd: 999 })).toThrow(INVALID('pd'));
    expect(() => adapter.createQp({ ...init, type: 'XRC' as never })).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_NOT_SUPPORTED', errno: 'EOPNOTSUPP', attribute: 'type' }),
    );
    expect(() => adapter.queryQp(1)).toThrow(INVALID('qp'));
  });

  test('its completion queues are busy as long as it is there', () => {
    const side = make();
    const { adapter } = side;
    const cq = adapter.createCq(8).handle;
    side.createQp({}, { cq });
    expect(() => adapter.destroyCq(cq)).toThrow(BUSY);
    adapter.destroyQp(side.qp.qpn);
    adapter.destroyCq(cq);
    expect(() => adapter.destroyCq(cq)).toThrow(INVALID('cq'));
  });

  test('QP1 can be had again once it is destroyed', () => {
    const side = make();
    side.createQp({}, { type: 'GSI' });
    expect(() => side.createQp({}, { type: 'GSI' })).toThrow(BUSY);
    side.adapter.destroyQp(1);
    side.createQp({}, { type: 'GSI' });
    expect(side.qp.qpn).toBe(1);
  });

  test('its number is neither QP0 nor QP1, nor one that is or lately was in use', () => {
    // The first call is the fixture's own queue pair.
    const drawn = [50, 0, 1, 50, 2, 0x7f_fffe, 2, 60, 0x0500_0032, 60];
    const random = () => {
      const next = drawn.shift();
      if (next === undefined) throw new Error('no more numbers');
      return next;
    };
    const side = new Side(1, 3, { random });
    expect(side.qp.qpn).toBe(50);
    side.createQp();
    expect(side.qp.qpn).toBe(2);
    side.adapter.destroyQp(2);
    side.createQp();
    expect(side.qp.qpn).toBe(0x7f_fffe);
    side.createQp();
    expect(side.qp.qpn).toBe(60);
    side.adapter.destroyQp(50);
    expect(() => side.createQp()).toThrow('no more numbers');
    expect(drawn).toEqual([]);
  });

  test('its number has the highest bit set where the address is shared, and is not that of groups', () => {
    const drawn = [0x7f_ffff, 63];
    const numbers = { modulus: 32, remainder: 31 };
    expect(new Side(1, 3, { random: () => drawn.shift() ?? 0, numbers }).qp.qpn).toBe(0x80_003f);
  });
});

describe('a completion queue', () => {
  test('has 1 entry to the most of the device', () => {
    const { adapter } = make({ maxCqe: 8192 });
    for (const cqe of [0, 8193, 1.5]) expect(() => adapter.createCq(cqe)).toThrow(INVALID('cqe'));
    expect(adapter.createCq(1).cqe).toBe(1);
    const { handle, cqe } = adapter.createCq(4097);
    expect(cqe).toBe(8192);
    expect(adapter.createCq(8192).cqe).toBe(8192);
    for (const size of [0, 8193]) expect(() => adapter.resizeCq(handle, size)).toThrow(INVALID('cqe'));
    expect(() => adapter.resizeCq(999, 8)).toThrow(INVALID('cq'));
  });

  test('is not made smaller than its unpolled completions', () => {
    const side = make();
    const { adapter } = side;
    const { handle, ring } = adapter.createCq(16);
    new Ring(ring).publish(4); // As if four completions were there.
    expect(() => adapter.resizeCq(handle, 2)).toThrow(INVALID('cqe'));
    expect(adapter.resizeCq(handle, 4).cqe).toBe(4);
  });
});

test('each queue pair has room for its two doorbells', () => {
  expect(make({ maxQp: 4 }).adapter.doorbells.capacity).toBe(1024);
  expect(make({ maxQp: 1024 }).adapter.doorbells.capacity).toBe(2048);
  expect(DOORBELL_RECV).toBe(0x8000_0000);
});

test.each<MwType>([1, 2])('a window of type %i is of its PD', (type) => {
  const { adapter } = make();
  expect(() => adapter.allocMw(999, type)).toThrow(INVALID('pd'));
  expect(() => adapter.allocMw(adapter.allocPd(), 3 as never)).toThrow(INVALID('type'));
});

test('a limit that is undefined is the default one', () => {
  const { adapter } = make({ maxQp: undefined, maxSge: 4 } as never);
  expect(adapter.limits).toEqual({ ...DEVICE_LIMITS, maxSge: 4 });
});
