/** Whatever a program passes to a method or function of this package: it works, or fails with a RoceError. */
import { MemoryNetwork } from '@node-roce/link';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSide, type Side } from '../testing/pair.ts';
import { wrongErrorsWith } from '../testing/wrong-errors.ts';
import * as api from './index.ts';

/** Of each type, and objects whose members have a wrong one. */
const WRONG = [
  ...[undefined, null, 0, -1, 1.5, Number.NaN, 2 ** 53, 'x', '', true, 1n, Symbol('wrong'), () => {}],
  ...[[], [null], {}, { a: 1 }, Object.create(null), new Uint8Array(1), new Uint8Array(40), new Date()],
  ...[
    { signal: 1 },
    { signal: {} },
    { channel: {} },
    { access: Symbol('wrong') },
    { access: [] },
    { pd: {} },
  ],
  ...[
    { sendCq: {} },
    { cap: null },
    { gid: 5 },
    { gid: new Uint8Array(3) },
    { grh: {} },
    { grh: { dgid: {} } },
  ],
  ...[{ sgList: 5 }, { sgList: [{ mr: {} }] }, { wrId: {} }, { opcode: {} }, { mr: {} }, { mw: 5 }],
  ...[
    { opcode: 'SEND', ud: 5 },
    { opcode: 'BIND_MW', bind: 5 },
    { opcode: 'RDMA_WRITE', remote: { addr: 1n, rkey: 'x' } },
  ],
  { qpState: 'INIT', pkeyIndex: 'x', portNum: {}, qpAccessFlags: {} },
  { qpState: 'RTR', ahAttr: { grh: { dgid: 'x' } } },
  { qpNum: -1, psn: 1, gid: '10.0.0.2' },
];
const wrongErrors = wrongErrorsWith(WRONG, 3);

/** Calls that end an object, take nothing, or subscribe; and those that the package alone makes. */
const SKIPPED =
  /^(constructor|close|destroy|dealloc|deregister|counters|progress|events|ref|unref|fail|end|notify|abandon|serve|ring|unwatch|add|raise|remove|isOf)$/;

function methodsOf(object: object): string[] {
  const found = new Set<string>();
  for (
    let kind = Object.getPrototypeOf(object);
    kind !== Object.prototype;
    kind = Object.getPrototypeOf(kind)
  ) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(kind)))
      if (typeof value === 'function' && !SKIPPED.test(name)) found.add(name);
  }
  return [...found];
}

let side: Side;
beforeEach(async () => {
  side = await openSide(new MemoryNetwork(), '10.0.0.1');
});
afterEach(() => side.device.close());

async function objects(): Promise<Record<string, object>> {
  const { device, pd, cq, qp, mr } = side;
  const ud = await pd.createQp({ type: 'UD', sendCq: cq });
  await ud.activate();
  const [srq, mw, ah] = [await pd.createSrq(), await pd.allocMw(1), await pd.createAh({ gid: '10.0.0.2' })];
  return { device, pd, cq, qp, ud, mr, mw, ah, srq, channel: device.createCompChannel() };
}

test.each(['device', 'pd', 'cq', 'qp', 'ud', 'mr', 'mw', 'ah', 'srq', 'channel'])(
  'methods of %s',
  async (name) => {
    const object = (await objects())[name] as Record<string, (...args: unknown[]) => unknown>;
    const methods = methodsOf(object);
    const found: string[] = [];
    for (const method of methods) {
      const call = (...args: unknown[]) => object[method](...args);
      found.push(...(await wrongErrors(method, call)));
    }
    expect(found).toEqual([]);
    if (!['mw', 'ah'].includes(name)) expect(methods).not.toEqual([]);
  },
);

test('functions of the package', async () => {
  const functions = Object.entries(api).filter(
    ([, value]) => typeof value === 'function' && !`${value}`.startsWith('class'),
  ) as [string, (...args: unknown[]) => unknown][];
  expect(functions.length).toBeGreaterThan(5);
  for (const [name, call] of functions) expect(await wrongErrors(name, call)).toEqual([]);
});

test('a count that is no count acknowledges nothing', async () => {
  for (const count of [-1, Number.NaN, '1'])
    expect(() => side.cq.ackEvents(count as number)).toThrow(expect.objectContaining({ attribute: 'count' }));
  await side.cq.channelEvents.acknowledged();
});
