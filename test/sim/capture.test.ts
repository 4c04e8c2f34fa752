/** Captures of simulated networks, as the project's own tools read them. */
import { analyzeCapture } from '@node-roce/capture/node';
import { captureOf, Pair } from '@node-roce/sim';
import { expect, test } from 'vitest';

/** Two messages over a network that loses the second packet. */
function run() {
  const pair = new Pair({ a: 'model', b: 'engine', aToB: { drop: (_, index) => index === 1 } });
  const { a, b, network } = pair;
  for (const wrId of [1, 2]) {
    b.postReceive({ wrId, offset: 0, length: 4096 });
    a.postSend({ wrId, opcode: 'SEND', offset: 0, length: 4096 });
  }
  let done = 0;
  network.run(() => {
    done += a.pollSend().length;
    return done === 2;
  });
  return network.trace;
}

async function* chunks(bytes: Uint8Array) {
  yield bytes;
}

test('each packet that was sent stands in the capture once', async () => {
  const trace = run();
  const { summary, findings, connections } = await analyzeCapture(chunks(captureOf(trace, 'a test')));
  expect(summary.rocePackets).toBe(trace.filter(({ event }) => event === 'sent').length);
  expect(findings.map(({ kind }) => kind)).not.toContain('repeated-frames');
  expect(connections).toMatchObject([{ aToB: { repeatedFrames: 0 }, messagesFromA: { completed: 2 } }]);
  expect(connections[0].aToB.retransmitted).toBeGreaterThan(0);
});

test('other events are taken if they are asked for, each on its interface', async () => {
  const trace = run();
  const arrived = captureOf(trace, 'a test', { events: ['arrived'] });
  const both = captureOf(trace, 'a test', { events: ['sent', 'arrived'] });
  const [one, two] = [await analyzeCapture(chunks(arrived)), await analyzeCapture(chunks(both))];
  expect(one.summary.rocePackets).toBe(trace.filter(({ event }) => event === 'arrived').length);
  expect(two.summary.rocePackets).toBe(trace.filter(({ event }) => event !== 'passed').length);
  expect(one.summary.rocePackets).toBeLessThan(two.summary.rocePackets - one.summary.rocePackets);
});
