/** Peers that play another test than perf. */
// @module-tag slow
import type { PerfOptions } from '@node-roce/perf';
import { describe, expect, test } from 'vitest';
import { EXCHANGE, expectError, guard } from './guard.ts';
import { type Channel, meet } from './meeting.ts';
import { BOUND } from './sides.ts';

guard();

/** ms after which a peer that waits for another test's data leaves. */
const LEAVES_AFTER = 700;

describe('a peer with another test', () => {
  const base: PerfOptions = { verb: 'write', measure: 'bw', size: 64, iters: 20 };
  const theirs = { verb: 'write', kind: 'bw', size: 64, iters: 20 };
  const changes: [string, object][] = [
    ['size', { size: 128 }],
    ['iterations', { iters: 10 }],
    ['verb', { verb: 'read' }],
    ['kind', { kind: 'lat' }],
    ['queue pairs', { qps: 2 }],
    ['service', { connection: 'UC' }],
    ['unit', { gbits: true }],
    ['length', { seconds: 1 }],
    ['sizes', { all: true, size: undefined }],
    ['immediate', { immediate: true }],
  ];
  describe.each(['server', 'client'] as const)('perf is the %s', (role) => {
    test.each(changes)('of 6.29: another %s', async (_what, change) => {
      const outcome = await meet(role, base, { ...theirs, ...change });
      expectError(outcome, EXCHANGE);
      expect(outcome.error!.message).toMatch(/\bnot\b|differ/);
    });
  });

  // Nothing in the dialogue names the test.
  test.each([
    ['another verb', { verb: 'read' }],
    ['another kind', { kind: 'lat' }],
    ['more queue pairs', { qps: 2 }],
    ['both ways', { duplex: true }],
    ['SEND', { verb: 'send' }],
  ])('of 6.24: %s', async (_what, change) => {
    const spoil = (channel: Channel) => {
      setTimeout(() => channel.socket.destroy(), LEAVES_AFTER).unref();
      return channel;
    };
    const outcome = await meet('server', base, { ...theirs, ...change, version: '6.24' }, { spoil });
    // Without data of ours the sides may agree to the end.
    if (outcome.error) expectError(outcome);
    expect(outcome.ms).toBeLessThan(BOUND + LEAVES_AFTER);
  });

  test('of 6.24, SEND: larger messages than ours', async () => {
    const options: PerfOptions = { verb: 'send', measure: 'bw', size: 64, iters: 20 };
    const send = { verb: 'send', kind: 'bw', size: 128, iters: 20, version: '6.24' };
    expectError(await meet('server', options, send));
  });

  // Its SENDs are answered by RNR NAKs, and it repeats them without end.
  test.each([
    ['SEND, more messages than ours', { verb: 'send' }],
    ['SEND in place of WRITE', { verb: 'write' }],
    ['SEND in place of READ', { verb: 'read' }],
  ] as [string, Pick<PerfOptions, 'verb'>][])('of 6.24 that stays: %s', async (_what, { verb }) => {
    const options: PerfOptions = { verb, measure: 'bw', size: 64, iters: 20 };
    const send = { verb: 'send', kind: 'bw', size: 64, iters: 40, version: '6.24', patience: 6000 };
    expectError(await meet('server', options, send), /^ERR_ROCE_TIMEOUT$/);
  });

  // Its data ends early, and then its dialogue, or the peer itself.
  describe.each(['server', 'client'] as const)('perf is the %s', (role) => {
    test.each([
      [
        'send bw -b',
        { verb: 'send', measure: 'bw', bidirectional: true },
        { verb: 'send', kind: 'bw', duplex: true },
      ],
      ['send lat', { verb: 'send', measure: 'lat' }, { verb: 'send', kind: 'lat' }],
      ['write lat', { verb: 'write', measure: 'lat' }, { verb: 'write', kind: 'lat' }],
    ] as [string, PerfOptions, object][])(
      'of 6.24, fewer messages than ours: %s',
      async (_what, ours, theirs) => {
        const options = { ...ours, size: 64, iters: 20 };
        const peer = { ...theirs, size: 64, iters: 10, version: '6.24' };
        expectError(await meet(role, options, peer));
      },
    );
  });
});
