/** Rings that there is no memory for: the call fails, changes nothing, and holds nothing. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { addressOf, Side } from '../../testing/pair.ts';
import type { QpAttr } from '../index.ts';

const { ArrayBuffer: Buffers } = globalThis;
const held = new Map<number, number>();
let side: Side;

beforeEach(() => {
  held.clear();
  let next = 0;
  const peers = {
    add: () => {
      held.set(next, 1);
      return next++;
    },
    remove: (peer: number) => void held.delete(peer),
  };
  side = new Side(1, 1, { sharedRings: false, peers });
  class Scarce extends Buffers {
    constructor(bytes: number) {
      if (bytes > 1 << 20) throw new RangeError('Array buffer allocation failed');
      super(bytes);
    }
  }
  vi.stubGlobal('ArrayBuffer', Scarce);
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const SMALL = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
/** The first ring is small, the second one is not. */
const LARGE = { ...SMALL, maxRecvWr: 16_384, maxRecvSge: 16 };
const slabs = () => side.adapter.regions.views.filter((view) => view !== undefined).length;

test('queue pairs that can not be created leave no ring behind', () => {
  side.createQp(SMALL);
  const before = slabs();
  for (let i = 0; i < 20; i++) expect(() => side.createQp(LARGE)).toThrow(RangeError);
  expect(slabs()).toBe(before);
});

test('a change with a resize that fails changes nothing', () => {
  const { adapter, qp } = side;
  const change = (attr: QpAttr) => adapter.modifyQp(qp.qpn, attr);
  change({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  side.createQp(SMALL);
  const [before, regions] = [adapter.queryQp(qp.qpn), slabs()];
  const rtr: QpAttr = {
    qpState: 'RTR',
    ahAttr: addressOf(2),
    pathMtu: 1024,
    destQpNum: 5,
    rqPsn: 7,
    maxDestRdAtomic: 1,
    minRnrTimer: 12,
  };
  for (let i = 0; i < 20; i++) expect(() => change({ ...rtr, cap: LARGE })).toThrow(RangeError);
  expect(() => change({ cap: LARGE, qpAccessFlags: 2 })).toThrow(RangeError);
  expect(adapter.queryQp(qp.qpn)).toEqual(before);
  expect([slabs(), held.size]).toEqual([regions, 0]);
  change({ ...rtr, cap: SMALL });
  expect(held.size).toBe(1);
});
