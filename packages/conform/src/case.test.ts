/** Frames that reach a case from the network. */
import { buildPacket, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import type { Line } from './line.ts';
import { judgeCases } from './passive/cases.ts';
import { rules } from './rules/all.ts';
import { play } from './run.ts';
import { modelBench } from './virtual/bench.ts';
import { TESTER } from './virtual/line.ts';

/** Offset of the BTH in a frame. */
const BTH = 42;

/** The line, but for what arrives. */
const lineWith = (line: Line, take: Line['take']): Line => ({
  tester: line.tester,
  device: line.device,
  offers: line.offers,
  now: () => line.now(),
  send: (frame) => line.send(frame),
  wait: (done, ms) => line.wait(done, ms),
  take,
});

/** Frames of another host: a packet for the tester's queue pair, one that was cut, and what is no IPv4. */
function foreign(destQp: number): Uint8Array[] {
  const packet = buildPacket({
    ethernet: { source: '02:00:00:00:00:07', destination: TESTER.mac },
    ip: { source: '10.77.0.7', destination: TESTER.ip, ttl: 64 },
    bth: { opcode: 'RC_ACKNOWLEDGE', destQp, psn: 0x1000 },
    extensions: { aeth: { syndrome: 0x60, msn: 1 } },
  });
  const cut = packet.slice(0, 50);
  const arp = new Uint8Array(60);
  arp.set([0x08, 0x06], 12);
  return [packet, cut, arp, packet.slice(0, 10)];
}

test('frames of other hosts have no part in a case', async () => {
  const bench = modelBench();
  const { line } = bench;
  const disturbed = lineWith(line, () => {
    const frames = foreign(0x100).map((frame) => ({ time: line.now(), frame }));
    return [...frames, ...line.take(), ...frames];
  });
  const { verdict, ladder, entries } = await play(rules('PSN-01')[0], { ...bench, line: disturbed });
  expect(verdict, ladder).toBe('pass');
  expect(ladder).toBe((await play(rules('PSN-01')[0], modelBench())).ladder);
  expect(entries.some(({ packet }) => packet === undefined)).toBe(false);
});

/** A line on which each frame of the device arrives so many times. */
const repeated = (line: Line, times: number): Line =>
  lineWith(line, () => line.take().flatMap((arrival) => Array.from({ length: times }, () => arrival)));

test('TMO-03: a repetition that a late tester notices together with the first packets is one', async () => {
  const bench = modelBench();
  const { line } = bench;
  // Of what comes behind the warm-up, the tester hears nothing before the repetition is there as well.
  const held: ReturnType<typeof line.take> = [];
  let isDeaf = true;
  const late = lineWith(line, () => {
    held.push(...line.take());
    if (line.now() > 1 && held.length > 2) isDeaf = false;
    return isDeaf && line.now() > 1 ? [] : held.splice(0);
  });
  const { verdict, why, ladder } = await play(rules('TMO-03')[0], { ...bench, line: late });
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
});

test('TMO-03: a tester that is late behind its ACK notices the repetition of the rest', async () => {
  const bench = modelBench();
  const { line } = bench;
  let acks = 0;
  let isLate = false;
  const late: Line = {
    ...lineWith(line, () => line.take()),
    send(frame) {
      line.send(frame);
      // The first one is that of the warm-up.
      isLate = ++acks === 2;
    },
    async wait(done, ms) {
      // Longer than the device's timer.
      if (isLate) await line.wait(() => false, 150);
      isLate = false;
      return line.wait(done, ms);
    },
  };
  const { verdict, why, ladder } = await play(rules('TMO-03')[0], { ...bench, line: late });
  expect(acks, ladder).toBeGreaterThan(2);
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
});

test('a device that does not stop sending ends the case, not the tester', async () => {
  const bench = modelBench();
  const line = repeated(bench.line, 21_000);
  const { verdict, why, entries } = await play(rules('PSN-01')[0], { ...bench, line });
  expect({ verdict, why: why.at(-1) }).toEqual({
    verdict: 'broken',
    why: 'more than 20000 packets in one rule: the device does not stop sending',
  });
  expect(entries).toHaveLength(4000);
});

test('of a case with very many packets, the first and the last are kept, and the passive rules do not judge them', async () => {
  const bench = modelBench();
  const noisy = repeated(bench.line, 2000);
  const result = await play(rules('PSN-01')[0], { ...bench, line: noisy });
  expect(result.verdict).toBe('deviation');
  expect(result.why.every((text) => text.length < 1100)).toBe(true);
  expect(result.entries).toHaveLength(4000);
  expect(result.leftOut).toBeGreaterThan(0);
  expect(judgeCases([result], bench.line)).toEqual([]);
});

test('a device that asks for the same READ again and again, for ever, is not listened to for ever', async () => {
  const bench = modelBench();
  const { line } = bench;
  let last: { time: number; frame: Uint8Array } | undefined;
  const repeating = lineWith(line, () => {
    const fresh = line.take();
    const read = fresh.find(({ frame }) => frame[BTH] === Opcode.RC_RDMA_READ_REQUEST);
    last ??= read;
    if (last === undefined) return fresh;
    const isDue = line.now() - last.time > 1000;
    if (isDue) last = { ...last, time: line.now() };
    // Nothing else comes: all that it asks for is this READ.
    return isDue || read !== undefined ? [last] : [];
  });
  for (const rule of rules('RD')) {
    last = undefined;
    const { time } = await play(rule, { ...bench, line: repeating });
    expect(time, rule.id).toBeLessThan(120_000);
  }
});
