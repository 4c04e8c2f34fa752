/** The files that a request with nothing lost or a captured packet enters are few, and none is of loss recovery (docs/architecture.md): a file more is a reason to look. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';

type Step = 'post' | 'sent' | 'taken' | 'acknowledged' | 'completed';

/** Files, of all packages, that are entered at most: by the post, the turn that sends, the peer's two turns, and the turn that takes the ACK. */
const MOST: Record<Step, number> = { post: 9, sent: 29, taken: 25, acknowledged: 19, completed: 26 };

function print(what: string): unknown {
  const script = join(import.meta.dirname, 'doors.mjs');
  return JSON.parse(execFileSync(process.execPath, [script, what], { encoding: 'utf8' }));
}

/** The fewest files of each step. */
function entered(what: string): [step: Step, files: string[]][] {
  const requests = print(what) as Record<Step, string[]>[];
  return (Object.keys(MOST) as Step[]).map((step) => {
    const [fewest] = requests.map((request) => request[step]).sort((a, b) => a.length - b.length);
    return [step, fewest];
  });
}

const ofRecovery = (files: readonly string[]) => files.filter((file) => file.includes('/recovery/'));

test('a SEND and its ACK', () => {
  const steps = entered('send');
  for (const [step, files] of steps) {
    expect(files.length, `${step}: ${files.join(' ')}`).toBeLessThanOrEqual(MOST[step]);
    expect(ofRecovery(files), step).toEqual([]);
  }
  // The count is one of files that are there.
  const [, [, sent], [, taken]] = steps;
  expect(sent).toContain('transport/requester/transmitter');
  expect(taken).toContain('transport/responder/rc');
});

test('a WRITE enters no file of loss recovery', () => {
  for (const [step, files] of entered('write')) {
    expect(files.length, step).toBeGreaterThan(5);
    expect(ofRecovery(files), step).toEqual([]);
  }
});

/** Files of both sides, from `connect` to `getRequest`: of the first connection, which makes the caller's queue pair 1, and of another. */
const MOST_OF_REQ = { first: 105, another: 87 };

test('a REQ, and the queue pair that it is the first to leave by', () => {
  const times = print('req') as { first: string[]; another: string[] }[];
  const [first] = times.map((time) => time.first).sort((a, b) => a.length - b.length);
  const [another] = times.map((time) => time.another).sort((a, b) => a.length - b.length);
  expect(first.length, first.join(' ')).toBeLessThanOrEqual(MOST_OF_REQ.first);
  expect(another.length, another.join(' ')).toBeLessThanOrEqual(MOST_OF_REQ.another);
  // A queue pair for datagrams is made without what only reliable connections use.
  expect(ofRecovery(first)).toEqual([]);
  expect(first.filter((file) => file.includes('/congestion/'))).toEqual([]);
  expect(first).toContain('transport/requester/unreliable');
  expect(another).toContain('cm/arrivals');
});

/** Files that a capture enters: the whole analysis of one with losses, its findings counted as one file, and one more packet of one without. */
const MOST_OF_CAPTURE = { analysis: 96, 'RC Send Only': 43, 'RC Acknowledge': 45 };

test('a captured packet, and a whole analysis', () => {
  const [{ analysis, packets }] = print('capture') as {
    analysis: string[];
    packets: Record<string, string[]>;
  }[];
  const rest = analysis.filter((file) => !file.startsWith('capture/flow/findings/'));
  expect(rest.length).toBeLessThan(analysis.length);
  expect(rest.length + 1, rest.join(' ')).toBeLessThanOrEqual(MOST_OF_CAPTURE.analysis);
  for (const name of ['RC Send Only', 'RC Acknowledge'] as const) {
    expect(packets[name].length, packets[name].join(' ')).toBeLessThanOrEqual(MOST_OF_CAPTURE[name]);
    expect(packets[name]).toContain('capture/flow/track/packet-tracker');
    // What a packet shows is counted when it comes, and judged at the end.
    expect(packets[name].filter((file) => /\/(findings|verdict)\//.test(file))).toEqual([]);
  }
});
