/**
 * FLUSH and ATOMIC_WRITE of the real rxe (Linux 6.12) and ours, recorded by test/interop/placement.test.ts (fixtures/placement/README.md): each packet
 * is decoded, each message followed, and what rxe does otherwise is named (docs/quirks.md).
 */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { type Analysis, analyzeCapture, type Message } from '@node-roce/capture/node';
import { describe, expect, test } from 'vitest';

const fileOf = (name: string) => join(import.meta.dirname, '../fixtures/placement', `${name}.pcap`);
const roce = (...args: string[]) =>
  execFileSync(process.execPath, [join(import.meta.dirname, '../../packages/cli/bin/roce.js'), ...args], {
    encoding: 'utf8',
  });

async function analyze(name: string): Promise<{ analysis: Analysis; messages: Message[] }> {
  const messages: Message[] = [];
  const analysis = await analyzeCapture(fileOf(name), { onMessage: (message) => messages.push(message) });
  return { analysis, messages };
}
const counts = ({ findings }: Analysis) => findings.map(({ kind, frameCount }) => [kind, frameCount]);
const outcomes = (messages: Message[]) => messages.map(({ operation, outcome }) => [operation, outcome]);

test('both sides write, flush and point: every message is completed, and rxe’s FLUSHes are named', async () => {
  const { analysis, messages } = await analyze('both');
  const round = ['RDMA_WRITE', 'FLUSH', 'ATOMIC_WRITE'].map((operation) => [operation, 'completed']);
  for (const end of ['a', 'b']) {
    expect(outcomes(messages.filter(({ from }) => from === end))).toEqual([round, round, round].flat());
  }
  expect(analysis.summary.icrc.bad).toBe(0);
  expect(counts(analysis)).toContainEqual(['flush-covered-twice', 3]);
});

describe.each(['FLUSH', 'ATOMIC_WRITE'] as const)('%s', (operation) => {
  test('the answer was lost: one message that is retransmitted, without an address, and completed', async () => {
    const { analysis, messages } = await analyze(`${operation}_answer_lost`);
    expect(outcomes(messages)).toEqual([[operation, 'completed']]);
    const again = analysis.connections[0].aToB.retransmitted;
    expect(again).toBeGreaterThan(0);
    expect(counts(analysis)).toContainEqual(['placement-without-address', again]);
  });

  test('the request was lost: the one that comes again is refused', async () => {
    const { analysis, messages } = await analyze(`${operation}_request_lost`);
    expect(messages).toMatchObject([{ operation, failure: 'remote-access-error' }]);
    expect(counts(analysis)).toContainEqual(['placement-without-address', 1]);
  });
});

test('roce dump names the ICRC in text and JSON, and roce flows the findings', () => {
  const file = fileOf('FLUSH_answer_lost');
  const [first] = roce('dump', file).split('\n');
  expect(first).toMatch(
    /RC Flush .*Placement=global-visibility Selectivity=range .*icrc BAD \(flush-covered-twice\)$/,
  );
  const [packet, answer] = roce('dump', '--json', file)
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(packet).toMatchObject({ opcode: 'RC FLUSH', icrc: 'bad', icrcQuirk: 'flush-covered-twice' });
  expect(answer).toMatchObject({ icrc: 'ok' });
  expect(answer).not.toHaveProperty('icrcQuirk');
  expect(roce('flows', file)).toMatch(/FLUSHes with an ICRC over BTH to RETH twice/);
  const kinds = JSON.parse(roce('flows', '--json', file)).findings.map(({ kind }: { kind: string }) => kind);
  expect(kinds).toEqual(expect.arrayContaining(['flush-covered-twice', 'placement-without-address']));
  expect(roce('messages', file)).toMatch(/FLUSH .*completed/);
});
