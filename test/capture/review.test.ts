/**
 * Captures that an engineer judged the analysis by (test/evidence/capture-review.md). The expected values were read off the
 * packets, their IPv4 Identifications and the completions in the sidecars by hand; none comes from the analysis.
 */
import { join } from 'node:path';
import { type Analysis, analyzeCapture, type Message, overviewText } from '@node-roce/capture/node';
import { PcapEncoder } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import { expect, test } from 'vitest';

const analyze = async (
  folder: string,
  name: string,
): Promise<{ analysis: Analysis; messages: Message[] }> => {
  const messages: Message[] = [];
  const path = join(import.meta.dirname, '../fixtures', folder, `${name}.pcap`);
  const analysis = await analyzeCapture(path, { onMessage: (message) => messages.push(message) });
  return { analysis, messages };
};
const review = (name: string) => analyze('captures-review', name);
const fixture = (name: string) => analyze('captures', name);

const kinds = ({ findings }: Analysis) => findings.map(({ kind }) => kind);

test('reorder_A: 34 retransmissions in three recoveries for the NAKs in frames 2, 40 and 67', async () => {
  const { analysis, messages } = await review('reorder_A');
  const [{ aToB, recoveries }] = analysis.connections;
  expect(aToB).toMatchObject({ retransmitted: 34, goBacks: 3, missedByCapture: 0 });
  expect(aToB.retransmitCauses).toMatchObject({ 'sequence-nak': 34, timeout: 0 });
  expect(recoveries.map(({ cause, evidence }) => [cause, evidence])).toEqual([
    ['sequence-nak', 2],
    ['sequence-nak', 40],
    ['sequence-nak', 67],
  ]);
  expect(kinds(analysis)).not.toContain('capture-loss');
  expect(messages.map(({ operation, bytes, outcome }) => [operation, bytes, outcome])).toEqual([
    ['RDMA_WRITE', 9000, 'completed'],
    ['SEND', 9000, 'completed'],
    ['RDMA_WRITE', 9000, 'completed'],
    ['RDMA_READ', 3000, 'completed'],
  ]);
});

test('loss10_both_mixed: the NAK, and the responses that were missing, each with its frame', async () => {
  const { analysis } = await review('loss10_both_mixed');
  const { recoveries } = analysis.connections[0];
  const by = (frame: number) => recoveries.find((recovery) => recovery.frame === frame);
  expect(by(9)).toMatchObject({ cause: 'sequence-nak', grade: 'certain', evidence: 8, side: 'requester' });
  expect(by(26)).toMatchObject({
    cause: 'implied-nak',
    evidence: 23,
    missing: 'response',
    side: 'responder',
  });
  // The READ that the timer began with was lost before the tap: no silence is shown that a timer could have.
  expect(by(54)).toMatchObject({ cause: 'timeout', grade: 'likely', wait: 0, side: 'requester' });
  expect(analysis.findings[0].text).toContain('1 after an ACK timeout (likely, at 0.017 s);');
  expect(by(79)).toMatchObject({ cause: 'implied-nak', evidence: 73, missing: 'response', reason: 'lost' });
  // Losses on both sides of the tap; the atomics behind the READ were asked for again, so their answers were not overtaken.
  expect(analysis.verdict).toMatchObject({
    text: 'The path between 10.77.0.2 and 10.77.0.3 lost packets in both directions; this explains all 4 recoveries.',
    also: [],
  });
});

test('loss15_cm: 2.24 s of silence are about the ACK timeout that the connection manager agreed', async () => {
  const { analysis } = await fixture('loss15_cm');
  const { text, frames, severity } = analysis.findings.find(({ kind }) => kind === 'idle-like-timeout')!;
  expect([severity, frames]).toEqual(['note', [23]]);
  expect(text).toContain(
    'nothing for 2.24 s before a request at 2.274 s, about the ACK timeout agreed (2.15 s): its first transmission may have been lost',
  );
});

test('blackhole_timeout: four times the same packet, 66 to 71 ms apart, is ACK timeout 14', async () => {
  const { analysis } = await fixture('blackhole_timeout');
  const { recoveries } = analysis.connections[0];
  expect(recoveries.map(({ cause, timeout, wait }) => [cause, timeout, Math.round(wait / 1e6)])).toEqual([
    ['timeout', 14, 66],
    ['timeout', 14, 71],
    ['timeout', 14, 65],
  ]);
  // Without the other direction nothing is certain.
  expect(recoveries.every(({ grade }) => grade === 'likely')).toBe(true);
});

test('loss5: 65 ms of silence before the directions are paired count', async () => {
  const { analysis } = await fixture('loss5_both_rc_pingpong');
  expect(analysis.connections[0].recoveries[0]).toMatchObject({
    from: 'a',
    frame: 3,
    cause: 'timeout',
    grade: 'likely',
    timeout: 14,
  });
});

test('text and JSON agree: how often, how many, and why', async () => {
  for (const name of ['loss5_both_rc_pingpong', 'corrupt_A', 'loss10_A_write', 'loss25_B_acks']) {
    const { analysis } = await fixture(name);
    for (const { id, aToB, bToA, recoveries } of analysis.connections) {
      for (const [from, counts] of [
        ['a', aToB],
        ['b', bToA],
      ] as const) {
        const finding = analysis.findings.find(
          ({ kind, connection, from: end }) =>
            kind === 'retransmissions' && connection === id && end === from,
        );
        if (counts.retransmitted === 0) continue;
        expect(finding?.text).toContain(
          `${counts.retransmitted} packets retransmitted in ${counts.goBacks} go-back-N events`,
        );
        const grades = Object.values(counts.retransmitGrades).reduce((sum, count) => sum + count, 0);
        expect(grades).toBe(counts.retransmitted);
        for (const [cause, byGrade] of Object.entries(counts.goBackCauses)) {
          const count = byGrade.certain + byGrade.likely + byGrade['not-shown'];
          const listed = recoveries.filter((recovery) => recovery.from === from && recovery.cause === cause);
          expect(listed.length, `${name} ${cause}`).toBe(count);
        }
      }
    }
  }
});

test('err_rnr_writeimm: the WRITE that waited 146 ms for its receive took 146 ms, and 1 ms after it was sent last', async () => {
  const { analysis, messages } = await review('err_rnr_writeimm');
  const { latency = 0, ackRoundTrip = 0 } = messages[1];
  expect([Math.round(latency / 1e5), Math.round(ackRoundTrip / 1e4)]).toEqual([1456, 107]);
  const { completion, stalls, latencyClasses } = analysis.connections[0];
  expect(completion!.p99).toBeGreaterThan(145e6);
  expect(latencyClasses.map(({ operation, mostBytes }) => [operation, mostBytes])).toContainEqual([
    'RDMA_WRITE_WITH_IMM',
    4096,
  ]);
  const lengths = stalls.map(({ duration }) => duration);
  expect(lengths).toEqual(lengths.toSorted((x, y) => y - x));
  expect(stalls.every(({ end }) => end === 'rnr')).toBe(true);
  expect(kinds(analysis)).toContain('stalls');
});

test('reorder_A: the packets that were overtaken, by how much, and that the receiver sent NAKs', async () => {
  const { analysis } = await review('reorder_A');
  const { aToB } = analysis.connections[0];
  // Read off the Identifications: frames 9-16, 25-31 without retransmissions, 41-47, 50.
  expect(aToB.late).toBeGreaterThanOrEqual(18);
  expect(analysis.findings.find(({ kind }) => kind === 'reordering')?.text).toContain('sequence NAKs');
});

type Frame = { data: Uint8Array; timestamp: bigint };

/** A fixture with changed frames, as a capture. */
async function altered(name: string, change: (frame: Frame, number: number) => void): Promise<Analysis> {
  const encoder = new PcapEncoder({ linkType: 1 });
  let number = 0;
  for await (const records of openCapture(
    join(import.meta.dirname, '../fixtures/captures', `${name}.pcap`),
  )) {
    for (const { data, seconds, nanoseconds } of records) {
      const frame = {
        data: data.slice(),
        timestamp: BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds),
      };
      change(frame, ++number);
      encoder.packet({ ...frame, originalLength: data.length });
    }
  }
  async function* chunks() {
    yield encoder.take().slice();
  }
  return await analyzeCapture(chunks());
}

test('a packet that is damaged in the capture, and acknowledged, is not called missing', async () => {
  const analysis = await altered('op_all', ({ data }, number) => {
    if (number === 4) data[data.length - 20] ^= 1;
  });
  expect(kinds(analysis)).toEqual(['icrc-bad']);
  expect(analysis.findings[0].text).toContain('1 acknowledged nevertheless: damaged at the tap or behind it');
});

test('corrupt_A: damage is named as what made the sender go back', async () => {
  const { analysis } = await fixture('corrupt_A');
  const damaged = analysis.connections[0].recoveries.filter((recovery) => recovery.damaged !== undefined);
  expect(damaged.length).toBeGreaterThanOrEqual(5);
  expect(analysis.findings.find(({ kind }) => kind === 'icrc-bad')?.text).toContain(
    `${damaged.length} recoveries began with such a packet`,
  );
});

test('a clock that goes back an hour is reported, and nothing after it is certain', async () => {
  const analysis = await altered('loss5_both_rc_pingpong', (frame, number) => {
    if (number >= 100) frame.timestamp -= 3_600_000_000_000n;
  });
  expect(analysis.findings.find(({ kind }) => kind === 'clock-back')?.text).toContain(
    '1 timestamp goes back',
  );
  expect(kinds(analysis)).not.toContain('capture-loss');
  for (const { recoveries } of analysis.connections)
    for (const { frame, grade } of recoveries) if (frame >= 100) expect(grade).not.toBe('certain');
});

test('the overview has how much, how often, why and where', async () => {
  const { analysis } = await review('reorder_A');
  expect(analysis.overview).toMatchObject({
    hosts: 2,
    connections: 1,
    messages: 4,
    retransmitted: 34,
    goBacks: 3,
    causes: { 'sequence-nak': 3, timeout: 0 },
    worstPath: { from: '10.77.0.2', to: '10.77.0.3', retransmitted: 34 },
    incast: undefined,
  });
  expect(overviewText(analysis.overview)[1]).toBe(
    '34 packets retransmitted in 3 recoveries (go-back-N): 3 sequence NAKs',
  );
});
