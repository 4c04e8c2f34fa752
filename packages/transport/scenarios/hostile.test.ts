/** Packets that nobody of good will sends: no exception, no byte outside of the regions. */
import { createRandom } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Icrc, RX_SLOT_WORDS, Rx, RxBatch } from '../src/batch.ts';
import { gidOf, Pair } from '../testing/pair.ts';

/** Whole numbers below a bound. */
function generator(seed: number): (below: number) => number {
  const random = createRandom(seed);
  return (below) => Math.floor(random.unit() * below);
}

function playHostile(from: number, to: number): void {
  for (let seed = from; seed <= to; seed++) {
    const random = generator(seed);
    const pair = new Pair({ seed, mtu: 256, attr: { timeout: 10 } });
    const sides = [pair.left, pair.right].map((side) => {
      const whole = new Uint8Array(3 * 4096).fill(0xa5);
      const mr = side.register(whole.buffer, 0xf, 4096, 4096);
      return { side, whole, mr };
    });
    const [left, right] = sides;
    const seen: Uint8Array[] = [];
    const batch = new RxBatch(64, 1 << 20);
    for (let round = 0; round < 6; round++) {
      for (let i = 0; i < 4; i++)
        right.side.postRecv(i, [{ mr: right.mr, offset: random(3000), length: random(1000) }]);
      const length = random(900);
      const sge = [{ mr: left.mr, offset: random(3000), length }];
      const remote = { addr: right.mr.addr + BigInt(random(3000)), rkey: right.mr.rkey };
      left.side.post({ opcode: 'RDMA_WRITE', sge, remote });
      left.side.post({ opcode: 'RDMA_READ', sge, remote });
      left.side.post({ opcode: 'SEND', sge });
      pair.run(random(200));
      seen.push(...pair.sent.splice(0).map((s) => s.packet));

      for (const { side } of sides) {
        let offset = 0;
        batch.count = 0;
        while (batch.count < 32) {
          const packet = forge(seen, random, side.qp.qpn, pair.left.qp.qpn, pair.right.qp.qpn);
          if (offset + packet.length > batch.slab.length) break;
          batch.slab.set(packet, offset);
          const w = batch.count * RX_SLOT_WORDS;
          batch.slots[w + Rx.OFFSET] = offset;
          batch.slots[w + Rx.LENGTH] = packet.length;
          batch.slots[w + Rx.LOCAL] = 0;
          batch.slots[w + Rx.VERDICT] = random(20) === 0 ? Icrc.BAD : Icrc.OK;
          batch.sources.set(gidOf(side === pair.left ? 2 : 1), batch.count * 16);
          offset += packet.length;
          batch.count++;
        }
        side.adapter.receive(batch);
      }
      pair.run(random(5000));
      for (const { side } of sides) side.poll();
    }
    for (const { whole } of sides) {
      expect(whole.subarray(0, 4096).every((byte) => byte === 0xa5)).toBe(true);
      expect(whole.subarray(8192).every((byte) => byte === 0xa5)).toBe(true);
    }
  }
}

test('mutated, forged and random packets at both sides of a connection with traffic', () =>
  playHostile(1, 100));
test('more of them', { tags: ['slow'] }, () => playHostile(101, 400));

/** A packet that was sent, or noise, with some of its bytes changed and perhaps cut or lengthened. */
function forge(seen: Uint8Array[], random: (below: number) => number, ...qpns: number[]): Uint8Array {
  const original = seen.length > 0 && random(8) > 0 ? seen[random(seen.length)] : undefined;
  const length = original ? original.length : 12 + 4 * random(80);
  const packet = new Uint8Array(Math.max(0, length + (random(6) === 0 ? 4 * (random(9) - 4) : 0)));
  if (original) packet.set(original.subarray(0, packet.length));
  else for (let i = 0; i < packet.length; i++) packet[i] = random(256);
  for (let changes = random(4); changes > 0 && packet.length > 0; changes--) {
    packet[random(Math.min(packet.length, 48))] = random(256);
  }
  if (random(3) > 0 && packet.length >= 12) {
    // To a queue pair that exists, with a PSN that may be expected.
    const qpn = qpns[random(qpns.length)];
    packet[1] &= 0xf0;
    packet[2] = packet[3] = 0xff;
    packet[5] = qpn >>> 16;
    packet[6] = qpn >>> 8;
    packet[7] = qpn;
  }
  return packet;
}
