/**
 * Fixtures that are cut, reordered or damaged by a seeded script: what a verdict calls certain is true of the whole capture, too.
 * The whole capture is the truth; a clean one whose frames are swapped has no loss and no retransmission.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { type Analysis, analyzeCapture, type Verdict } from '@node-roce/capture/node';
import { createRandom } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';

const FILE_HEADER = 24;
const RECORD_HEADER = 16;
/** Larger ones take too long to analyze often. */
const MOST_FRAMES = 200;
/** Alterations of each kind for a fixture. */
const ROUNDS = Number(process.env.ROCE_ALTERED_ROUNDS ?? 4);

const fixtures = join(import.meta.dirname, '../fixtures');
const files = ['captures', 'captures-review'].flatMap((folder) =>
  readdirSync(join(fixtures, folder))
    .filter((name) => name.endsWith('.pcap'))
    .map((name) => join(fixtures, folder, name)),
);

interface Frames {
  name: string;
  header: Buffer;
  records: Buffer[];
}

function framesOf(file: string): Frames {
  const bytes = readFileSync(file);
  const records: Buffer[] = [];
  for (let at = FILE_HEADER; at < bytes.length; ) {
    const end = at + RECORD_HEADER + bytes.readUInt32LE(at + 8);
    records.push(bytes.subarray(at, end));
    at = end;
  }
  return { name: basename(file, '.pcap'), header: bytes.subarray(0, FILE_HEADER), records };
}

const small = files.map(framesOf).filter(({ records }) => records.length > 1 && records.length < MOST_FRAMES);

const analyze = (header: Buffer, records: readonly Buffer[]): Promise<Analysis> =>
  analyzeCapture(Readable.from([Buffer.concat([header, ...records])]));

/** The records' bodies in another order, each at the time of its place, as if time passed `stretch` times as fast. */
function reordered(records: readonly Buffer[], order: readonly number[], stretch: number): Buffer[] {
  const [first] = records;
  const start = first.readUInt32LE(0) * 1e6 + first.readUInt32LE(4);
  return order.map((from, place) => {
    const stamp = Buffer.from(records[place].subarray(0, 8));
    const time = start + (stamp.readUInt32LE(0) * 1e6 + stamp.readUInt32LE(4) - start) * stretch;
    stamp.writeUInt32LE(Math.floor(time / 1e6), 0);
    stamp.writeUInt32LE(time % 1e6, 4);
    return Buffer.concat([stamp, records[from].subarray(8)]);
  });
}

const verdictsOf = ({ verdict, connections }: Analysis): Verdict[] => [
  verdict,
  ...connections.map((connection) => connection.verdict),
];

/** All that an analysis names: verdicts, what is named with them, findings, and the reasons of recoveries. */
const namedBy = (analysis: Analysis): Set<string> =>
  new Set([
    ...verdictsOf(analysis).flatMap(({ kind, also }) => [kind, ...also.map((each) => each.kind)]),
    ...analysis.findings.map(({ kind }) => kind),
    ...analysis.connections.flatMap(({ recoveries }) =>
      recoveries.map(({ reason }) => KIND_OF_REASON[reason] ?? reason),
    ),
  ]);

const KIND_OF_REASON: Readonly<Record<string, string>> = {
  'not-ready': 'rnr',
  lost: 'packets-lost',
  reordered: 'reordering',
  spurious: 'spurious-retransmission',
  damaged: 'damaged-on-the-way',
  'stood-still': 'host-stood-still',
};

/** Statements about the file, and about headers that a part of it has. */
const OF_THE_FILE = new Set([
  'healthy',
  'nothing-decoded',
  'damaged-file',
  'damaged-packets',
  'traffic-class',
]);

const certain = (analysis: Analysis): Verdict[] =>
  verdictsOf(analysis).filter(({ certainty, kind }) => certainty === 'certain' && !OF_THE_FILE.has(kind));

describe('a window of a capture', () => {
  test.each(small)('$name', async ({ name, header, records }) => {
    const random = createRandom(4791);
    const whole = await analyze(header, records);
    const named = namedBy(whole);
    for (let i = 0; i < ROUNDS; i++) {
      const start = random.between(0, records.length - 1);
      const end = random.between(start + 1, Math.min(records.length, start + (i % 2 === 0 ? 40 : 1e9)));
      const part = await analyze(header, records.slice(start, end));
      for (const { kind, text } of certain(part))
        expect([...named], `${name} [${start}, ${end}): ${text}`).toContain(kind);
      for (const { ended } of part.connections)
        if (ended !== undefined)
          expect(
            whole.connections.map((connection) => connection.ended?.how),
            `${name} [${start}, ${end})`,
          ).toContain(ended.how);
    }
  });
});

describe('frames in another order', () => {
  test.each(small)('$name', async ({ name, header, records }) => {
    const whole = await analyze(header, records);
    const again = whole.connections.flatMap(({ aToB, bToA }) => [aToB.retransmitted, bToA.retransmitted]);
    if (again.length === 0 || again.some((count) => count > 0)) return;
    const named = namedBy(whole);
    const random = createRandom(4791);
    for (let i = 0; i < ROUNDS; i++) {
      const distance = Math.min(records.length - 1, random.between(1, 8));
      const at = random.between(0, records.length - 1 - distance);
      const order = records.map((_, place) => place);
      if (i % 2 === 0) order.splice(at + distance, 0, ...order.splice(at, 1));
      else [order[at], order[at + distance]] = [order[at + distance], order[at]];
      const analysis = await analyze(header, reordered(records, order, i % 4 < 2 ? 30 : 1));
      const where = `${name}, frame ${at + 1} by ${distance}`;
      for (const { kind, text } of certain(analysis))
        expect(['reordering', ...named], `${where}: ${text}`).toContain(kind);
      for (const { kind, text } of verdictsOf(analysis))
        expect(kind, `${where}: ${text}`).not.toBe('spurious-retransmission');
    }
  });
});

describe('a byte of a packet changed', () => {
  test.each(small)('$name', async ({ name, header, records }) => {
    const named = namedBy(await analyze(header, records));
    const random = createRandom(4791);
    for (let i = 0; i < ROUNDS; i++) {
      const frame = random.between(0, records.length - 1);
      const changed = Buffer.from(records[frame]);
      // Headers more often than payload.
      const last = Math.min(changed.length - 1, i % 4 === 0 ? 1e9 : RECORD_HEADER + 66);
      const at = random.between(RECORD_HEADER, last);
      changed[at] ^= random.between(1, 255);
      const analysis = await analyze(header, records.with(frame, changed));
      for (const { kind, text } of certain(analysis))
        expect(['icrc-bad', ...named], `${name}, frame ${frame + 1}, byte ${at}: ${text}`).toContain(kind);
    }
  });
});

test('a request that stands behind its answer was not sent twice: the capture shows it late', async () => {
  const { header, records } = framesOf(join(fixtures, 'captures/op_all.pcap'));
  const order = records.map((_, place) => place);
  // The READ request of frame 23, behind all of its responses.
  order.splice(27, 0, ...order.splice(22, 1));
  const { connections, verdict } = await analyze(header, reordered(records, order, 1));
  expect(connections[0].aToB.retransmitted).toBe(0);
  expect(verdict.kind).not.toBe('spurious-retransmission');
  const slow = await analyze(header, reordered(records, order, 30));
  expect(slow.verdict).toMatchObject({ kind: 'reordering', certainty: 'likely' });
});

test('RNR NAKs where the capture ends: no more is certain than that the receiver was not ready', async () => {
  const { header, records } = framesOf(join(fixtures, 'captures-review/err_rnr_writeimm.pcap'));
  const five = await analyze(header, records.slice(10, 22));
  expect(five.verdict).toMatchObject({ kind: 'rnr-retries-exceeded', certainty: 'likely' });
  expect(five.connections[0].ended).toBeUndefined();
  // More than seven: no limit was agreed, so nothing can be exceeded.
  const nine = await analyze(header, records.slice(4, 28));
  expect(nine.verdict).toMatchObject({ kind: 'rnr', certainty: 'certain' });
});
