/**
 * UC over a network that loses, doubles and reorders: what is delivered is what the rules make of the packets that
 * the receiver got, no more and no less. Those packets are captured, so the rules can be played over them.
 */
import { psnAdd } from '@node-roce/wire';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { fill, LinkUp, sha256 } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const COUNT = 200;
const ROOM = 8192;
const MTU = 1024;
/** UC SEND FIRST, LAST with immediate, ONLY with immediate; what else comes is a MIDDLE. */
const [FIRST, LAST_IMM, ONLY_IMM] = [0x20, 0x23, 0x25];

/** Message i: its bytes lie at offset i of the pattern, so that no two are alike. */
const sizeOf = (i: number) => 1 + ((i * 977) % (5 * MTU));
const pattern = new Uint8Array(ROOM + COUNT);
fill(pattern, 99);
const digestOf = (i: number) => sha256(pattern.subarray(i, i + sizeOf(i)));

let capture: WireCapture | undefined;
afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
  await guest.netem('');
});

const immediateOf = ({ payload }: WirePacket) =>
  new DataView(payload.buffer, payload.byteOffset + 12, 4).getUint32(0);
const begins = ({ opcode }: WirePacket) => opcode === FIRST || opcode === ONLY_IMM;
const ends = ({ opcode }: WirePacket) => opcode === LAST_IMM || opcode === ONLY_IMM;

/** The immediate data of the messages that arrive whole, by §9.8.2.2: a packet goes on, begins anew, or is dropped. */
function bySpecification(packets: readonly WirePacket[]): number[] {
  const whole: number[] = [];
  /** The PSN that goes on with the message that is coming in. */
  let next: number | undefined;
  for (const packet of packets) {
    if (!begins(packet) && packet.psn !== next) {
      next = undefined;
      continue;
    }
    next = ends(packet) ? undefined : psnAdd(packet.psn, 1);
    if (ends(packet)) whole.push(immediateOf(packet));
  }
  return whole;
}

/** The same as rxe does it (docs/quirks.md, messageAfterABrokenOneIsLost). */
function byRxe(packets: readonly WirePacket[], firstPsn: number): number[] {
  const whole: number[] = [];
  let next = firstPsn;
  let open = false;
  let drop = false;
  for (const packet of packets) {
    if (drop || packet.psn !== next) {
      drop = !begins(packet);
      if (drop) continue;
    }
    if (open && begins(packet)) {
      // It notices that the message before is broken, and the beginning of the next goes with it.
      open = false;
      continue;
    }
    if (!open && !begins(packet)) {
      drop = true;
      continue;
    }
    next = psnAdd(packet.psn, 1);
    open = !ends(packet);
    if (ends(packet)) whole.push(immediateOf(packet));
  }
  return whole;
}

describe.each(['loss 10%', 'duplicate 20%', 'delay 2ms reorder 30% 50%', 'loss 5% duplicate 10%'])(
  'rxe to us, netem on its packets: %s',
  (fault) => {
    test('exactly the messages that arrived whole, in order, each receive used until it is full', async () => {
      await using link = await LinkUp.make(guest, { type: 'UC', mtu: MTU });
      const { agent, qp, cq, theirQp } = link;
      const into = await link.memory(256 * ROOM);
      for (let i = 0; i < 256; i++) {
        qp.postRecv({ wrId: i, sgList: [{ mr: into.mr, offset: i * ROOM, length: ROOM }] });
      }
      const theirs = await agent.mr({ size: pattern.length, access: 'LOCAL_WRITE', seed: 99 });
      await guest.netem(fault);
      capture = await WireCapture.start(address);
      for (let i = 0; i < COUNT; i++) {
        const wr = { opcode: 'SEND_WITH_IMM', imm: i, wr_id: i, sge: `${theirs.mr}:${i}:${sizeOf(i)}` };
        await agent.call('post_send', { qp: theirQp, ...wr });
      }
      const sent = await agent.poll(COUNT);
      expect(sent.map((c) => [c.wrId, c.status])).toEqual(Array.from({ length: COUNT }, (_, i) => [i, 0]));
      const packets = (await capture.stop()).filter((p) => p.source === link.peer);
      const expected = bySpecification(packets);
      expect(expected.length).toBeGreaterThan(COUNT / 4);
      if (fault !== 'duplicate 20%') expect(expected.length).toBeLessThan(COUNT);

      const found = [];
      for (let list = cq.poll(64); list.length > 0; list = cq.poll(64)) found.push(...list);
      expect(found.map((wc) => [wc.wrIdNumber, wc.status, wc.immData])).toEqual(
        expected.map((imm, i) => [i, 'SUCCESS', imm]),
      );
      for (const wc of found) {
        const i = wc.immData as number;
        expect(wc.byteLen).toBe(sizeOf(i));
        const start = wc.wrIdNumber * ROOM;
        expect(sha256(into.bytes.subarray(start, start + wc.byteLen))).toBe(digestOf(i));
      }
      expect(into.guardsIntact).toBe(true);
      expect(qp.state).toBe('RTS');
    });
  },
);

describe.each([{ loss: 0.1 }, { duplicate: 0.2 }, { loss: 0.05, duplicate: 0.1, reorder: 0.1 }])(
  'us to rxe, our packets spoilt: %o',
  (faults) => {
    test('what rxe makes of the packets that it gets', async () => {
      await using link = await LinkUp.make(guest, {
        type: 'UC',
        mtu: MTU,
        open: { faults: { ...faults, seed: 5, direction: 'outbound' } },
      });
      const { agent, qp, cq, theirQp } = link;
      const theirs = await agent.mr({ size: 256 * ROOM, access: 'LOCAL_WRITE' });
      for (let i = 0; i < 255; i++) {
        await agent.call('post_recv', { qp: theirQp, wr_id: i, sge: `${theirs.mr}:${i * ROOM}:${ROOM}` });
      }
      const ours = await link.memory(pattern.length, { seed: 99 });
      capture = await WireCapture.start(address);
      for (let i = 0; i < COUNT; i++) {
        const sgList = [{ mr: ours.mr, offset: i, length: sizeOf(i) }];
        qp.postSend({ wrId: i, opcode: 'SEND_WITH_IMM', immData: i, sgList, signaled: true });
        expect(await cq.next()).toMatchObject({ wrId: BigInt(i), status: 'SUCCESS' });
      }
      const packets = (await capture.stop()).filter((p) => p.source === link.host);
      const expected = byRxe(packets, qp.initialPsn);
      expect(expected.length).toBeGreaterThan(COUNT / 4);
      if (!('duplicate' in faults)) {
        expect(expected.length).toBeLessThan(bySpecification(packets).length);
      }
      const found = await agent.poll(expected.length);
      expect(found.map((c) => [c.wrId, c.status, c.imm, c.byteLen])).toEqual(
        expected.map((imm, i) => [i, 0, imm, sizeOf(imm)]),
      );
      expect(await agent.poll(1, 100)).toEqual([]);
      for (const { wrId, imm } of found) {
        expect(await agent.sha256(theirs.mr, wrId * ROOM, sizeOf(imm!))).toBe(digestOf(imm!));
      }
    });
  },
);
