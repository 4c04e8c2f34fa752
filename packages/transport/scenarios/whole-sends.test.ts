/**
 * SENDs of one packet have a short way through the responder, which receives of one element alone may take. Both ways have to do the
 * same: completions, memory, replies, counters and state.
 */
import { createRandom, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Ring } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';

const P = 0xff_fff0;
const MTU = 256;
/** Bytes from one receive to the next. */
const PLACE = 512;
const { RC_SEND_FIRST, RC_SEND_LAST, RC_SEND_ONLY, RC_SEND_ONLY_WITH_IMMEDIATE } = Opcode;

/** Plays the random SENDs of a seed against receives of one element, or of the same memory in two. */
function play(seed: number, elements: 1 | 2) {
  const { between } = createRandom(seed);
  const upTo = (n: number) => between(0, n);
  const hand = new ByHand();
  const { side } = hand;
  // Some completion queues overrun.
  const cq = side.adapter.createCq(upTo(3) === 0 ? 16 : 256);
  const polled = new Ring(cq.ring);
  const keepEarly = (['off', 'quiet', 'ahead'] as const)[upTo(2)];
  side.createQp({ maxRecvSge: 2 }, { cq: cq.handle, recovery: { keepEarly } });
  hand.connect({ rqPsn: P, pathMtu: MTU });
  const memory = new Uint8Array(64 * PLACE);
  const mr = side.register(memory.buffer);
  const bad = { ...mr, lkey: (mr.lkey ^ 1) >>> 0 };
  const nothing = side.adapter.allocNullMr(side.pd);
  const seen: unknown[] = [];
  let psn = P;
  let receives = 0;
  let inMiddle = false;

  const post = () => {
    const length = 2 + upTo(PLACE - 2);
    const kind = upTo(200);
    const region = kind === 0 ? bad : kind < 3 ? { ...mr, ...nothing } : mr;
    const offset = (receives % 64) * PLACE;
    const split = 1 + upTo(length - 2);
    const list = [
      { mr: region, offset, length: split },
      { mr: region, offset: offset + split, length: length - split },
    ];
    side.postRecv(receives++, elements === 2 ? list : [{ mr: region, offset, length }]);
  };

  const next = () => {
    const kind = upTo(100);
    let opcode: number = RC_SEND_ONLY;
    if (inMiddle !== kind < 5) opcode = inMiddle ? RC_SEND_LAST : RC_SEND_FIRST;
    else if (kind < 15) opcode = RC_SEND_ONLY_WITH_IMMEDIATE;
    const length = opcode === RC_SEND_FIRST ? MTU : kind === 100 ? MTU + upTo(8) : upTo(64);
    const immediate = opcode === RC_SEND_ONLY_WITH_IMMEDIATE ? 4 : 0;
    const payload = Uint8Array.from({ length: length + immediate }, () => upTo(255));
    const packet = { opcode, psn, ackReq: upTo(2) > 0, payload, pad: -length & 3 };
    // A duplicate, or one that comes before others.
    const order = upTo(20);
    if (order < 4) return { ...packet, psn: psn + [-1, 1, 2, 3][order] };
    if (opcode === RC_SEND_FIRST || opcode === RC_SEND_LAST) inMiddle = opcode === RC_SEND_FIRST;
    psn = (psn + 1) & 0xff_ffff;
    return packet;
  };

  for (let round = 0; round < 30; round++) {
    for (let i = upTo(6); i > 0 && receives - polled.producer < 60; i--) post();
    hand.put(...Array.from({ length: upTo(8) }, next));
    seen.push(hand.out().map(inShort));
    if (upTo(2) > 0) seen.push(side.poll(polled));
  }
  const { adapter, qp } = side;
  seen.push(side.poll(polled), side.events, adapter.queryQp(qp.qpn).attr.qpState, adapter.qpCounters(qp.qpn));
  return { seen, memory: Buffer.from(memory).toString('base64') };
}

test('SENDs of one packet do the same with a receive of one element as with one of two', () => {
  for (let seed = 1; seed <= 30; seed++) expect(play(seed, 1), `seed ${seed}`).toEqual(play(seed, 2));
});
