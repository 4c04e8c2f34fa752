/**
 * A path that reorders and loses nothing, and no ACK timer (`timeout` 0): nothing stands still. A peer reports once that it has discarded what came early,
 * and its NAK may come late itself.
 *
 * ROCE_SIM_SEEDS=20: seeds of each row, 3 by default.
 */
import { CONNECTION_DEFAULTS, EngineDevice, Network } from '@node-roce/sim';
import type { Recovery } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 3);
const seeds = Array.from({ length: SEEDS }, (_, i) => i + 1);
const COUNT = 300;
const DEPTH = 16;

describe.each(['RDMA_WRITE', 'RDMA_READ'] as const)('%s', (opcode) => {
  describe.each([
    ['off', true],
    ['off', false],
    ['quiet', true],
    ['ahead', true],
  ] as const)('the peer keeps early packets: %s; selective: %s', (keepEarly, selective) => {
    test.each(seeds)('seed %d', { timeout: 600_000 }, (seed) => {
      const { isDone, statuses } = run(opcode, seed, { selective }, { keepEarly });
      expect([...statuses]).toEqual(['SUCCESS']);
      expect(isDone).toBe(true);
    });
  });
});

/** Of the packets of both directions 20 % come 60 µs late. */
function run(
  opcode: 'RDMA_WRITE' | 'RDMA_READ',
  seed: number,
  ours: Partial<Recovery>,
  theirs: Partial<Recovery>,
) {
  const network = new Network(seed);
  network.record = false;
  const [a, b] = [ours, theirs].map((recovery, i) => {
    const gid = gidFromText(`10.0.0.${i + 1}`);
    return new EngineDevice({
      gid,
      arenaBytes: 8192,
      seed: seed + i,
      depth: 32,
      checkEvery: 4096,
      recovery,
    });
  });
  network.add(a);
  network.add(b);
  const wire = { delay: 10, rate: 10e9, reorder: 0.2, reorderBy: 60 };
  network.link(a, b, wire);
  network.link(b, a, wire);
  const [from, to] = [a, b].map((device) => device.createQp({ service: 'RC', psn: 0 }));
  from.connect(to.info, { ...CONNECTION_DEFAULTS, timeout: 0 });
  to.connect(from.info, { ...CONNECTION_DEFAULTS, timeout: 0 });
  const statuses = new Set<string>();
  let [posted, done] = [0, 0];
  const step = () => {
    for (const { status } of from.pollSend()) {
      statuses.add(status);
      done++;
    }
    while (posted < COUNT && posted - done < DEPTH) {
      from.postSend({ wrId: posted++, opcode, offset: 0, length: 4099, remoteOffset: 0 });
    }
    return done === COUNT;
  };
  return { isDone: network.run(step, 60e6), statuses };
}
