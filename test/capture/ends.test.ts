/**
 * Two captures of both ends of a link with 3 ms ± 1 ms and 5 % loss, of the real rxe (test/evidence/captures-judged.md), one of them shifted by
 * −250 ms: the clock's offset, the delay, and each lost packet, held to the link's own log.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { compareCaptures } from '@node-roce/capture/node';
import { afterAll, describe, expect, test } from 'vitest';

const captures = fileURLToPath(new URL('real/captures/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'roce-ends-'));
afterAll(() => rmSync(folder, { recursive: true }));

const MS = 1e6;
const names = readdirSync(captures)
  .map((file) => /^(.*delay-3ms-loss5.*)\.json$/.exec(file)?.[1])
  .filter((name) => name !== undefined);

interface Seen {
  frame: number;
  ns: string;
}

/** One frame in the log of the link (test/capture/real/link.c). */
interface Logged {
  from: 'a' | 'b';
  lost: string | null;
  in: Seen[];
  out: Seen[];
}

function logOf(name: string): Logged[] {
  const { log } = JSON.parse(gunzipSync(readFileSync(`${captures}${name}.witness.gz`)).toString());
  return (log as string)
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}

/** A copy of a capture whose clock is `shift` nanoseconds ahead. */
function shifted(path: string, shift: number): string {
  const bytes = gunzipSync(readFileSync(path));
  for (let at = 24; at < bytes.length; at += 16 + bytes.readUInt32LE(at + 8)) {
    const time = BigInt(bytes.readUInt32LE(at)) * 1_000_000_000n + BigInt(bytes.readUInt32LE(at + 4) + shift);
    bytes.writeUInt32LE(Number(time / 1_000_000_000n), at);
    bytes.writeUInt32LE(Number(time % 1_000_000_000n), at + 4);
  }
  const copy = join(folder, 'shifted.pcap');
  writeFileSync(copy, bytes);
  return copy;
}

test('there are such captures of both kernels', () => {
  expect(names).toEqual(expect.arrayContaining(['k61-delay-3ms-loss5', 'k612-delay-3ms-loss5']));
});

describe.each(names)('%s', (name) => {
  const log = logOf(name);

  test.each([0, -250 * MS])('shifted by %d ns', async (shift) => {
    const { clock, aToB, bToA, events, outside } = await compareCaptures(
      `${captures}${name}-a.pcap.gz`,
      shifted(`${captures}${name}-b.pcap.gz`, shift),
    );
    expect(Math.abs(clock.offset - shift)).toBeLessThan(0.1 * MS);
    let losses = 0;
    for (const [transit, from] of [
      [aToB, 'a'],
      [bToA, 'b'],
    ] as const) {
      const sent = log.filter((frame) => frame.from === from);
      const delays = sent
        .filter(({ out }) => out.length > 0)
        .map((frame) => Number(BigInt(frame.out[0].ns) - BigInt(frame.in[0].ns)));
      const mean = delays.reduce((x, y) => x + y) / delays.length;
      expect(transit.arrived).toBe(delays.length);
      expect(Math.abs(transit.delay!.mean / mean - 1)).toBeLessThan(0.1);
      const key = from === 'a' ? 'frameA' : 'frameB';
      const lost = sent.filter((frame) => frame.lost !== null).map((frame) => frame.in[0].frame);
      const found = events
        .filter((event) => event.fate === 'lost' && event[key] !== undefined)
        .map((event) => event[key]);
      // Before the first packet of the other capture, or after its last one, a packet that only one has may be beyond its ends.
      const left = lost.filter((frame) => !found.includes(frame));
      expect(left.length).toBeLessThanOrEqual(Math.min(1, outside[from]));
      expect(found.filter((frame) => !lost.includes(frame!))).toEqual([]);
      losses += lost.length;
    }
    expect(losses).toBeGreaterThan(8);
  });
});
