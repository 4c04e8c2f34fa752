/** Engines of the simulated network send run slots where `runs` allows it, and put the same packets on the wire as without. */
import { gidFromText } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { CONNECTION_DEFAULTS, EngineDevice, Network } from '../index.ts';

/** Two engines, the first of which sends; the packets that it sent, and how many of them were part of a run. */
function exchange(runs: boolean | undefined, seed: number) {
  const network = new Network(seed);
  const devices = [1, 2].map(
    (n) =>
      new EngineDevice({
        gid: gidFromText(`10.0.0.${n}`),
        seed,
        arenaBytes: 1 << 17,
        ...(runs === undefined ? {} : { runs }),
      }),
  );
  const [a, b] = devices;
  const [from, to] = devices.map((device) => device.createQp({ service: 'RC', psn: 0xff_fff0, qkey: 7 }));
  network.add(a);
  network.add(b);
  network.link(a, b, {});
  network.link(b, a, {});
  from.connect(to.info, { ...CONNECTION_DEFAULTS, pathMtu: 1024 });
  to.connect(from.info, { ...CONNECTION_DEFAULTS, pathMtu: 1024 });
  const settle = () => network.run(() => false, 1e9);
  for (let i = 0; i < 30; i++) to.postReceive({ wrId: i, offset: 0, length: 4096 });
  // The first ACK lifts the limit of credits.
  from.postSend({ wrId: 0, opcode: 'SEND', offset: 0, length: 8 });
  settle();
  for (let i = 1; i < 20; i++) from.postSend({ wrId: i, opcode: 'SEND', offset: i, length: 64 });
  from.postSend({ wrId: 20, opcode: 'RDMA_WRITE', offset: 0, length: 60_000, remoteOffset: 0 });
  settle();
  expect(from.pollSend().map(({ status }) => status)).toEqual(Array(21).fill('SUCCESS'));
  const packets = network.trace
    .filter(({ event, source }) => event === 'sent' && source === a.gid)
    .map(({ bytes }) => Buffer.from(bytes).toString('base64'));
  return { packets, runPackets: a.runPackets };
}

test('with runs, with the default of an even seed, and without', () => {
  const without = exchange(false, 2);
  expect(without.runPackets).toBe(0);
  for (const runs of [true, undefined]) {
    const { packets, runPackets } = exchange(runs, 2);
    expect(packets).toEqual(without.packets);
    expect(runPackets).toBeGreaterThan(50);
  }
  expect(exchange(undefined, 3).runPackets).toBe(0);
});
