/**
 * Keys, QPNs, first PSNs and addresses, as a program gets them from openDevice, can't be guessed from earlier ones (ReDMArk's
 * V1 to V6, docs/security.md). hostile/statistics.ts states the bounds: 2.6e-14 for each sum of coins; of those there are
 * some 12,000 here, and 12 counts of equal pairs, so good randomness fails once in a billion runs at most (3.1e-10).
 */
import { execFileSync } from 'node:child_process';
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { beforeAll, describe, expect, test } from 'vitest';
import { correlation, DEVIATIONS, type Series, weaknesses } from './statistics.ts';

const SAMPLES = 8192;
/** Numbers that were just given back are not given out again for so long. */
const REUSE_DISTANCE = 4096;
const CAP = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

const series = (name: string, bits: number): Series & { values: number[] } => ({ name, bits, values: [] });
const qpns = series('QPN', 23);
const psns = series('first PSN', 24);
const rkeys = series('R_Key of a region', 32);
const windows = series('R_Key of a window', 32);
// The 48 bits of an address that are drawn, above those of a page, in two parts.
const low = series('address, low bits', 24);
const high = series('address, high bits', 24);
const all = [qpns, psns, rkeys, windows, low, high];

beforeAll(async () => {
  const device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1') });
  const pd = await device.allocPd();
  const cq = await device.createCq(1);
  // One after the other, each given back before the next: as a server does whose clients come and go.
  for (let i = 0; i < SAMPLES; i++) {
    const qp = await pd.createQp({ sendCq: cq, cap: CAP });
    const mr = await pd.registerMr(new Uint8Array(8), { access: { remoteRead: true } });
    const mw = await pd.allocMw();
    qpns.values.push(qp.qpNum);
    psns.values.push(qp.initialPsn);
    rkeys.values.push(mr.rkey);
    windows.values.push(mw.rkey);
    low.values.push(Number((mr.addr >> 12n) & 0xff_ffffn));
    high.values.push(Number((mr.addr >> 36n) & 0xff_ffffn));
    await Promise.all([qp.close(), mr.deregister(), mw.dealloc()]);
  }
  await device.close();
});

test.each(all)('$name can not be distinguished from randomness', (numbers) => {
  expect(numbers.values).toHaveLength(SAMPLES);
  expect(weaknesses(numbers)).toEqual([]);
});

test('one kind reveals nothing of another that is drawn with it', () => {
  for (const [a, b] of [
    [qpns, psns],
    [rkeys, qpns],
    [rkeys, windows],
    [low, rkeys],
  ]) {
    expect(correlation(a, b, 0), `${a.name} and ${b.name}`).toBeLessThan(DEVIATIONS);
  }
});

test.each([
  ['QPNs', qpns.values, 0],
  ['key indices', rkeys.values, 8],
])('%s do not come back soon', (_name, values, shift) => {
  const last = new Map<number, number>();
  for (const [i, value] of values.entries()) {
    const number = value >>> shift;
    const before = last.get(number);
    // Keys are given back two at a time, a region's and a window's.
    if (before !== undefined) expect(i - before).toBeGreaterThan(REUSE_DISTANCE / 2);
    last.set(number, i);
  }
});

test('numbers in use at the same time are different', async () => {
  const device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1') });
  const pd = await device.allocPd();
  const cq = await device.createCq(1);
  const memory = new Uint8Array(8);
  const kept = { qpns: new Set<number>(), keys: new Set<number>() };
  for (let i = 0; i < 2048; i++) {
    kept.qpns.add((await pd.createQp({ sendCq: cq, cap: CAP })).qpNum);
    kept.keys.add((await pd.registerMr(memory)).rkey >>> 8);
    kept.keys.add((await pd.allocMw()).rkey >>> 8);
  }
  expect([kept.qpns.size, kept.keys.size]).toEqual([2048, 4096]);
  await device.close();
});

test('a queue pair that goes back to RESET gets another first PSN', async () => {
  const device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1') });
  const pd = await device.allocPd();
  const qp = await pd.createQp({ sendCq: await device.createCq(1), cap: CAP });
  const seen = [qp.initialPsn];
  for (let i = 0; i < 4; i++) {
    await qp.modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    expect(qp.connectionData().psn).toBe(seen[i]);
    await qp.modify({ qpState: 'RESET' });
    seen.push(qp.initialPsn);
  }
  // All five alike: 2^-96.
  expect(new Set(seen).size).toBeGreaterThan(1);
  await device.close();
});

/** The first keys, QPNs and PSNs of a process of its own. */
function firstOfAProcess(): number[] {
  const program = `
    import { MemoryNetwork } from '@node-roce/link';
    import { openDevice } from '@node-roce/verbs-api';
    const device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1') });
    const pd = await device.allocPd();
    const cq = await device.createCq(1);
    const numbers = [];
    for (let i = 0; i < 16; i++) {
      const qp = await pd.createQp({ sendCq: cq });
      numbers.push(qp.qpNum, qp.initialPsn, (await pd.registerMr(new Uint8Array(8))).rkey);
    }
    console.log(JSON.stringify(numbers));
    await device.close();`;
  const options = { cwd: new URL('../..', import.meta.url), encoding: 'utf8' } as const;
  return JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', program], options));
}

test('two processes, and two devices of one, begin differently', () => {
  const [one, other] = [firstOfAProcess(), firstOfAProcess()];
  const same = one.filter((number, i) => number === other[i]);
  // Three places of 48 alike by accident: less than 48³ / 2^72 = 3e-17.
  expect(same.length).toBeLessThan(3);
});

describe('weaknesses of known adapters are found', () => {
  const count = (make: (i: number) => number, bits: number): Series => ({
    name: 'weak',
    bits,
    values: Array.from({ length: SAMPLES }, (_, i) => (make(i) & (2 ** bits - 1)) >>> 0),
  });
  let state = 1;
  const congruential = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state;
  };
  test.each([
    ['QPNs counted up (V5)', count((i) => 0x11 + i, 24)],
    ['the same first PSN for all (V6)', count(() => 0, 24)],
    ['keys counted up in steps (V1, V4)', count((i) => 0x1000 + i * 0x100, 32)],
    ['keys counted up, with a random byte', count((i) => (i << 8) | (congruential() >>> 24), 32)],
    ['few random bits under a fixed prefix', count(() => 0x55_0000 | (congruential() >>> 16), 24)],
    ['a linear congruential generator', count(congruential, 24)],
    ['a bit that is one in 60 percent', count(() => congruential() | (congruential() % 5 ? 0 : 1 << 20), 24)],
  ])('%s', (_name, weak) => {
    expect(weaknesses(weak)).not.toEqual([]);
  });
});
