/** Ladders of captures with more packets than an analysis keeps. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Analysis, analyzeCapture, readLadder } from '@node-roce/capture/node';
import { run } from '@node-roce/cli';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { simulate } from './simulate.ts';

const folder = mkdtempSync(join(tmpdir(), 'roce-ladder-'));
const file = join(folder, 'simulated.pcapng');
const bytes = simulate(6000, { connections: 3 });
let analysis: Analysis;

beforeAll(async () => {
  writeFileSync(file, bytes);
  analysis = await analyzeCapture(file);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Duplicate frames among them. */
const packetsOf = ({ aToB, bToA }: Analysis['connections'][number]) =>
  aToB.packets + aToB.repeatedFrames + bToA.packets + bToA.repeatedFrames;

test('read again, a connection has all its packets, and those that were kept are the same', async () => {
  expect(analysis.connections.some((each) => each.ladder.length < packetsOf(each))).toBe(true);
  for (const connection of analysis.connections) {
    const all = await readLadder(file, connection, { most: 1e6 });
    expect(all).toHaveLength(packetsOf(connection));
    const byFrame = new Map(all.map((packet) => [packet.frame, packet]));
    for (const kept of connection.ladder) {
      // Which message a packet is of comes to light later.
      expect(byFrame.get(kept.frame)).toEqual({ ...kept, message: undefined });
    }
  }
});

test('a filter and a number leave the others out', async () => {
  const connection = analysis.connections[0];
  const all = await readLadder(file, connection, {
    most: 1e6,
    filter: { kinds: new Set(['retransmission']) },
  });
  expect(all).toHaveLength(connection.aToB.retransmitted + connection.bToA.retransmitted);
  const [from, to] = [connection.start + 1e6, connection.end - 1e6];
  const within = await readLadder(file, connection, { most: 50, filter: { from, to } });
  expect(within).toHaveLength(51);
  expect(within.every(({ time }) => time >= from && time <= to)).toBe(true);
});

async function roce(args: readonly string[]) {
  let [out, err] = ['', ''];
  const code = await run(args, {
    stdin: Readable.from([bytes]),
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal: new AbortController().signal,
  });
  return { code, out, err };
}

test('the command draws all of a file, and of a stream the packets so far', async () => {
  const connection = analysis.connections[0];
  const args = ['-o', '-', '--connection', String(connection.id), '-c', '100000'];
  const rows = (svg: string) => svg.match(/class="row /g)!.length;
  const ofFile = await roce(['ladder', file, ...args]);
  expect({ code: ofFile.code, err: ofFile.err }).toEqual({ code: 0, err: '' });
  expect(rows(ofFile.out)).toBe(packetsOf(connection));
  const ofStream = await roce(['ladder', '-', ...args]);
  expect(ofStream.err).toContain(`of ${packetsOf(connection)} packets, only the first and those of findings`);
  expect(rows(ofStream.out)).toBe(connection.ladder.length);
});
