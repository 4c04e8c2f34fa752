/** A call whose network breaks down, or whose caller gives it up, after any number of packets: it ends, and leaves nothing on its device. */
// @module-tag slow
import { MemoryNetwork } from '@node-roce/link';
import { callPerf, type PerfOptions, servePerf } from '@node-roce/perf';
import { openDevice } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';
import { expectError, guard } from './guard.ts';
import { settled } from './sides.ts';

const { heldOn } = guard();

const [OURS, THEIRS] = ['10.0.0.1', '10.0.0.2'];
const few = { size: 64, iters: 5 } as const;
const TESTS: [string, PerfOptions][] = [
  ['write bw', { verb: 'write', measure: 'bw', ...few }],
  ['send bw -b -c UD', { verb: 'send', measure: 'bw', service: 'UD', bidirectional: true, ...few }],
  ['read lat', { verb: 'read', measure: 'lat', ...few }],
];

interface Side {
  role: 'server' | 'client';
  rdmaCm: boolean;
  timeout: number;
}

/** Plays a test against another side of ours; `onPacket` gets the network and the number of each packet, and may stop our call. */
async function play(
  options: PerfOptions,
  { role, rdmaCm, timeout }: Side,
  onPacket: (network: MemoryNetwork, number: number, stop: AbortController) => void,
) {
  const network = new MemoryNetwork();
  const stop = new AbortController();
  const deliver = network.deliver.bind(network);
  let packets = 0;
  network.deliver = (packet, to) => {
    deliver(packet, to);
    onPacket(network, packets++, stop);
  };
  await using ours = await openDevice({ link: network.link(OURS) });
  await using theirs = await openDevice({ link: network.link(THEIRS) });
  const mine = { device: ours, rdmaCm, timeout, signal: stop.signal };
  const end = new AbortController();
  const peers = { device: theirs, rdmaCm, timeout: 20, signal: end.signal };
  const [server, client] = role === 'server' ? [mine, peers] : [peers, mine];
  let serving: ReturnType<typeof servePerf> | undefined;
  const port = await new Promise<number>((onListening) => {
    serving = servePerf(options, { ...server, host: '127.0.0.1', port: 0, onListening });
  });
  const host = rdmaCm ? (role === 'server' ? OURS : THEIRS) : '127.0.0.1';
  const calling = callPerf(options, { ...client, host, port });
  const [call, peer] = role === 'server' ? [serving!, calling] : [calling, serving!];
  peer.catch(() => {});
  const outcome = await settled(call, performance.now());
  const held = heldOn(ours);
  if (outcome.error) end.abort();
  await peer.catch(() => {});
  return { outcome, held, packets, heldByPeer: heldOn(theirs) };
}

const SIDES = (['server', 'client'] as const).flatMap((role) =>
  [false, true].map((rdmaCm) => ({ role, rdmaCm })),
);

describe.each(TESTS)('%s', (_name, options) => {
  describe.each(SIDES)('as $role, rdmaCm $rdmaCm', (side) => {
    test.each(['breaks down', 'is given up'])('%s after any number of packets', async (how) => {
      const whole = await play(options, { ...side, timeout: 120 }, () => {});
      expect(whole.outcome.error).toBeUndefined();
      const step = Math.max(1, Math.floor(whole.packets / 24));
      const lasts = Array.from({ length: 24 }, (_, i) => i * step).filter((last) => last < whole.packets);
      const why = new Error('enough');
      const plays = lasts.map(async (last) => {
        const where = `after packet ${last} of ${whole.packets}`;
        const played = await play(
          options,
          { ...side, timeout: how === 'breaks down' ? 0.4 : 20 },
          (network, number, stop) => {
            if (number !== last) return;
            if (how === 'breaks down') network.deliver = () => {};
            else stop.abort(why);
          },
        );
        const { error } = played.outcome;
        // After its last packet a call may succeed.
        if (error && how === 'is given up') expect(error, where).toBe(why);
        else if (error) expectError(played.outcome, undefined, where);
        expect(played.held, where).toBe(0);
        expect(played.heldByPeer, where).toBe(0);
        return error !== undefined;
      });
      const failed = (await Promise.all(plays)).filter(Boolean).length;
      expect(failed).toBeGreaterThan(lasts.length / 2);
    });
  });
});
