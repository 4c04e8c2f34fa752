/**
 * XRC over a network that loses, repeats and delays packets, by seeds: initiators of one side send to all SRQs of the other, which
 * run empty now and then. A ledger, not a model: nothing is lost, nothing comes twice, each target's messages arrive in order and with
 * their bytes, and memory holds what WRITEs and atomics have put there. Each run has to have been where it was meant to go.
 */
import { createRandom, opcodeInfo } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Ring, WcOpcode } from '../../packages/transport/src/index.ts';
import { Pair } from '../../packages/transport/testing/pair.ts';

const SEEDS = Number(process.env.ROCE_XRC_SEEDS ?? 6);
const INITIATORS = 4;
const SRQS = 3;
const MESSAGES = 60;
const SLOT = 4096;

const EXPERIMENTAL = { experimental: ['xrc'] as const };

interface Sent {
  srq: number;
  length: number;
  fill: number;
}

function play(seed: number) {
  const random = createRandom(seed);
  const upTo = (n: number) => random.next() % n;
  const pair = new Pair({ seed, left: EXPERIMENTAL, right: EXPERIMENTAL });
  const { left, right } = pair;
  const { adapter } = right;
  const domain = adapter.openXrcd({});

  const memory = new Uint8Array(SRQS * 64 * SLOT);
  const to = right.register(memory.buffer);
  const counters = new Uint8Array(8 * INITIATORS);
  const counted = right.register(counters.buffer);
  const source = new Uint8Array(256 * SLOT).map((_, i) => Math.floor(i / SLOT));
  const from = left.register(source.buffer);
  const results = left.register(new ArrayBuffer(64));

  const srqs = Array.from({ length: SRQS }, () => {
    const cq = adapter.createCq(1024);
    const srq = adapter.createSrq({
      pd: right.pd,
      maxWr: 64,
      maxSge: 1,
      limit: 0,
      xrc: { domain, cq: cq.handle },
    });
    return { number: srq.number!, ring: new Ring(srq.ring), cq: new Ring(cq.ring), posted: 0 };
  });
  const post = (which: number) => {
    const srq = srqs[which];
    const slot = which * 64 + (srq.posted++ % 64);
    right.postRecv(slot, [{ mr: to, offset: slot * SLOT, length: SLOT }], srq.ring);
  };

  const links = Array.from({ length: INITIATORS }, () => {
    left.createQp({ maxSendWr: 256 }, { type: 'XRC_INI' });
    const ini = left.qp;
    const { qpn } = right.createXrcTarget(domain);
    pair.connect({ psn: [upTo(2 ** 24), upTo(2 ** 24)], attr: { timeout: 10, minRnrTimer: 10 } });
    const plan: Sent[] = [];
    return { ini, qpn, plan, taken: 0, adds: 0 };
  });

  const seen = { lost: 0, twice: 0, late: 0, rnr: 0, switches: 0 };
  pair.fault = (packet) => {
    const dice = upTo(100);
    if (dice < 4) {
      seen.lost++;
      return [];
    }
    if (dice < 7) {
      seen.twice++;
      return [
        { packet, delay: 0 },
        { packet, delay: upTo(200) },
      ];
    }
    if (dice < 10) seen.late++;
    return [{ packet, delay: dice < 10 ? upTo(300) : 0 }];
  };

  for (const [i, link] of links.entries()) {
    left.use(link.ini);
    for (let n = 0; n < MESSAGES; n++) {
      const srq = upTo(SRQS);
      const fill = upTo(256);
      const length = [0, 1, 1024, 1025, 3000, SLOT][upTo(6)];
      const srqn = srqs[srq].number;
      if (upTo(4) === 0) {
        const remote = { addr: counted.addr + BigInt(8 * i), rkey: counted.rkey };
        const sge = [{ mr: results, offset: 8 * i, length: 8 }];
        left.post({ opcode: 'ATOMIC_FETCH_AND_ADD', srqn, sge, remote, compareAdd: 1n, wrId: n });
        link.adds++;
        continue;
      }
      left.post({ opcode: 'SEND', srqn, wrId: n, sge: [{ mr: from, offset: fill * SLOT, length }] });
      if (link.plan.at(-1)?.srq !== undefined && link.plan.at(-1)!.srq !== srq) seen.switches++;
      link.plan.push({ srq, length, fill });
    }
  }

  const sends: { wrId: number; status: string }[] = [];
  const byQpn = new Map(links.map((link) => [link.qpn, link]));
  for (let turn = 0; turn < 4000 && sends.length < INITIATORS * MESSAGES; turn++) {
    // Receives come a few at a time, and to any SRQ: the others run empty; not for long, as an RNR NAK that is lost costs a retry.
    if (turn % 3 === 0)
      for (let n = upTo(12); n > 0; n--) {
        const which = upTo(SRQS);
        if (srqs[which].ring.used < 64) post(which);
      }
    pair.run(500);
    sends.push(...left.poll());
    for (const [which, { cq }] of srqs.entries()) {
      right.poll(cq).forEach((wc) => {
        expect(wc).toMatchObject({ status: 'SUCCESS', opcode: WcOpcode.RECV });
        const link = byQpn.get(wc.qpn)!;
        const expected = link.plan.filter(({ srq }) => srq === which)[taken(link, which)];
        expect(wc.byteLen).toBe(expected.length);
        const at = wc.wrId * SLOT;
        expect(memory.subarray(at, at + expected.length).every((byte) => byte === expected.fill)).toBe(true);
        taken(link, which, 1);
      });
    }
  }
  pair.fault = undefined;
  pair.run(100_000);
  expect(sends.length).toBe(INITIATORS * MESSAGES);
  expect(sends.filter(({ status }) => status !== 'SUCCESS')).toEqual([]);
  for (const [i, link] of links.entries()) {
    for (let which = 0; which < SRQS; which++)
      expect(taken(link, which)).toBe(link.plan.filter(({ srq }) => srq === which).length);
    expect(new DataView(counters.buffer).getBigUint64(8 * i, true)).toBe(BigInt(link.adds));
    seen.rnr += left.adapter.qpCounters(link.ini.qpn).receivedRnrErr;
  }
  // Every packet was XRC's.
  expect(pair.sent.every(({ packet }) => opcodeInfo(packet[0])!.transportName === 'XRC')).toBe(true);
  return seen;
}

const counts = new WeakMap<object, number[]>();
/** Messages that came for an SRQ from one target, after adding `by`. */
function taken(link: object, which: number, by = 0): number {
  const list = counts.get(link) ?? new Array<number>(SRQS).fill(0);
  counts.set(link, list);
  list[which] += by;
  return list[which];
}

test.each(Array.from({ length: SEEDS }, (_, i) => i + 1))('seed %i: nothing lost, nothing twice', (seed) => {
  const { lost, twice, late, rnr, switches } = play(seed);
  expect(lost).toBeGreaterThan(10);
  expect(twice).toBeGreaterThan(10);
  expect(late).toBeGreaterThan(10);
  expect(rnr).toBeGreaterThan(3);
  expect(switches).toBeGreaterThan(50);
});
