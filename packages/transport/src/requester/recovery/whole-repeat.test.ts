/** A requester that retransmits all (`selective` false) towards a responder that repeats its NAK while packets come (`keepEarly` ahead). */
import { createRandom } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Pair } from '../../../testing/pair.ts';

const MESSAGES = 20;
const BYTES = 64 * 1024;
/** µs that a packet takes to leave; one of five comes up to so much later. */
const LEAVES = 8;
const LATE_MAX = 300;

test.each([
  [14, true],
  [14, false],
  [0, false],
])(
  'every message arrives where a fifth of the packets comes late: timeout %i, probes %s',
  (timeout, probes) => {
    for (const latency of [10, 200]) {
      const pair = new Pair({
        latency,
        attr: { timeout },
        left: { recovery: { selective: false, probes } },
        right: { recovery: { keepEarly: 'ahead' } },
      });
      const { left, right } = pair;
      const random = createRandom(latency);
      let free = 0;
      pair.fault = (packet, now, _gid, from) => {
        if (from === right) return [{ packet, delay: 0 }];
        free = Math.max(free, now) + LEAVES;
        const late = random.next() % 5 === 0 ? random.next() % LATE_MAX : 0;
        return [{ packet, delay: free - now + late }];
      };
      const data = new Uint8Array(BYTES).map((_, i) => i * 7);
      const mr = left.register(data.buffer);
      const memory = new Uint8Array(BYTES);
      const remote = right.register(memory.buffer);
      for (let i = 0; i < MESSAGES; i++)
        left.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr, length: BYTES }], remote });
      pair.run(60_000_000);
      const found = left.poll().map(({ wrId, status }) => [wrId, status]);
      expect(found).toEqual(Array.from({ length: MESSAGES }, (_, i) => [i, 'SUCCESS']));
      expect(memory).toEqual(data);
    }
  },
);
