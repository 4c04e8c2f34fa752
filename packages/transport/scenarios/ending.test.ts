/**
 * A connection that ends while packets wait for the link: its last replies still leave, its requests do not, and no memory is read
 * that is the program's again.
 */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { gatherSlot, NO_PEER, QpStateCode, TX_SLOT_WORDS, Tx, TxBatch } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';

const P = 1000;
const EINVAL = 22;

function connection() {
  const freed: number[] = [];
  let peers = 0;
  const hand = new ByHand(
    { rqPsn: P },
    { peers: { add: () => peers++, remove: (peer) => void freed.push(peer) } },
  );
  const buffer = new ArrayBuffer(8192);
  const region = hand.side.register(buffer);
  const { addr, rkey } = region;
  const write = (psn: number) => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr, rkey, length: 4 },
    payload: new Uint8Array(4),
  });
  const add = (psn: number) => ({ opcode: Opcode.RC_FETCH_ADD, psn, atomic: { addr, rkey, swapAdd: 1n } });
  const read = (psn: number, length = 64) => ({
    opcode: Opcode.RC_RDMA_READ_REQUEST,
    psn,
    reth: { addr, rkey, length },
  });
  const { adapter, qp } = hand.side;
  const ends: Record<string, () => void> = {
    destroyed: () => adapter.destroyQp(qp.qpn),
    reset: () => adapter.modifyQp(qp.qpn, { qpState: 'RESET' }),
    'in error': () => adapter.modifyQp(qp.qpn, { qpState: 'ERR' }),
  };
  const out = () => hand.out().map(inShort);
  return { hand, adapter, region, write, add, read, ends, out, freed };
}

/** The packets of a batch that the link would send; the others it refuses. */
function sendable(tx: TxBatch) {
  const packets = [];
  for (let i = 0; i < tx.count; i++) {
    const w = i * TX_SLOT_WORDS;
    if (tx.slots[w + Tx.PEER] === NO_PEER) tx.slots[w + Tx.STATUS] = EINVAL;
    else packets.push(inShort(gatherSlot(tx, i)));
  }
  return packets;
}

describe.each(['destroyed', 'reset', 'in error'])('a queue pair that is %s', (how) => {
  test('owes the ACK of delivered messages', () => {
    const { hand, write, ends, out } = connection();
    hand.put(write(P), write(P + 1));
    ends[how]();
    expect(out()).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
    expect(out()).toEqual([]);
  });

  test('owes the results of atomics, and ACKs between them', () => {
    const { hand, add, write, ends, out } = connection();
    hand.put(add(P), write(P + 1), add(P + 2), write(P + 3));
    ends[how]();
    expect(out()).toEqual([
      ['ATOMIC_ACKNOWLEDGE', P, 0n],
      ['ACKNOWLEDGE', P + 1, 0x1f],
      ['ATOMIC_ACKNOWLEDGE', P + 2, 0n],
      ['ACKNOWLEDGE', P + 3, 0x1f],
    ]);
  });

  test('owes no READ response, and no ACK behind one, which would mean that the READ was answered', () => {
    const { hand, read, write, ends, out } = connection();
    hand.put(write(P), read(P + 1), write(P + 2));
    ends[how]();
    expect(out()).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
  });

  test('owes the NAK that ended the connection', () => {
    const { hand, ends, out } = connection();
    hand.put({ opcode: Opcode.RC_SEND_MIDDLE, psn: P, payload: new Uint8Array(1024) });
    ends[how]();
    expect(out()).toEqual([['ACKNOWLEDGE', P, NakCode.INVALID_REQUEST]]);
  });

  test('owes nothing twice: replies in a batch leave with it', () => {
    const { hand, adapter, write, ends, out } = connection();
    hand.put(write(P));
    const tx = new TxBatch(adapter.regions, 64);
    adapter.transmit(tx);
    ends[how]();
    expect(sendable(tx)).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
    adapter.sent(tx);
    expect(out()).toEqual([]);
  });

  test('sends none of its requests any more, also those in a batch that waits', () => {
    const { hand, adapter, region, write, ends } = connection();
    const { side } = hand;
    const remote = { addr: 0n, rkey: 1 };
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: region, length: 4000 }], remote });
    side.post({ opcode: 'RDMA_READ', sge: [{ mr: region, length: 8 }], remote });
    hand.put(write(P));
    const tx = new TxBatch(adapter.regions, 64);
    expect(adapter.transmit(tx)).toBe(6);
    ends[how]();
    expect(sendable(tx)).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
    adapter.sent(tx);
    expect(hand.run(1_000_000)).toEqual([]);
  });
});

describe('the peer of a connection that ends', () => {
  test.each(['destroyed', 'reset'])('%s: is given back once the link has taken the last reply', (how) => {
    const { hand, adapter, write, ends, freed } = connection();
    hand.put(write(P));
    ends[how]();
    expect(freed).toEqual([]);
    expect(adapter.wantsToSend).toBe(true);
    const tx = new TxBatch(adapter.regions, 64);
    expect(adapter.transmit(tx)).toBe(1);
    expect(freed).toEqual([]);
    adapter.sent(tx);
    expect(freed).toEqual([0]);
    expect(adapter.wantsToSend).toBe(false);
  });

  test('hears the last reply of the old connection and the first of the new one', () => {
    const { hand, write, ends, out } = connection();
    hand.put(write(P));
    ends.reset();
    hand.connect({ rqPsn: 5000 });
    hand.put(write(5000));
    expect(out()).toEqual([
      ['ACKNOWLEDGE', P, 0x1f],
      ['ACKNOWLEDGE', 5000, 0x1f],
    ]);
  });
});

describe('READ responses in a batch that waits', () => {
  function waiting() {
    const set = connection();
    const { hand, adapter, read, write } = set;
    hand.put(write(P), read(P + 1, 3000));
    const tx = new TxBatch(adapter.regions, 64);
    expect(adapter.transmit(tx)).toBe(4);
    return { ...set, tx };
  }

  test.each(['destroyed', 'reset'])('do not leave once the queue pair is %s', (how) => {
    const { tx, ends } = waiting();
    ends[how]();
    expect(sendable(tx)).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
  });

  test('do not leave once the region is deregistered, though another region has the same bytes', () => {
    const { tx, hand, adapter, region, read, out } = waiting();
    const local = { pd: hand.side.pd, backing: 1, offset: 0, length: 8192, access: 0 };
    adapter.registerMr({ ...local, buffer: adapter.regions.views.at(-1)!.buffer });
    adapter.deregisterMr(region.handle);
    expect(sendable(tx)).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
    adapter.sent(tx);
    // The requester asks again and again, and hears why.
    for (let i = 0; i < 3; i++) hand.put(read(P + 1, 3000));
    expect(out()).toEqual([['ACKNOWLEDGE', P + 1, NakCode.REMOTE_ACCESS_ERROR]]);
  });

  // Once: they were withdrawn by the bytes that they are read from, and the requester had to ask again.
  test.each([
    ['next to theirs', 4096],
    ['of the same bytes', 0],
  ])('leave though a region %s is deregistered', (_where, offset) => {
    const { tx, hand, adapter } = waiting();
    const buffer = adapter.regions.views.at(-1)!.buffer;
    const other = { pd: hand.side.pd, backing: 1, offset, length: 4096, access: 0xf };
    adapter.deregisterMr(adapter.registerMr({ ...other, buffer }).handle);
    expect(sendable(tx)).toHaveLength(4);
  });
});

// Once: the READ's NAK took the queue pair to the error state in the middle of RESET, and it stayed there.
describe.each(['destroyed', 'reset'])(
  'a queue pair in error, with a READ whose region is gone and a NAK behind it, that is %s',
  (how) => {
    test('owes the NAK for the READ, and has ended', () => {
      const { hand, adapter, region, read, ends, out } = connection();
      const { side } = hand;
      hand.put(read(P), { opcode: Opcode.RC_SEND_MIDDLE, psn: P + 1, payload: new Uint8Array(1024) });
      expect(side.events.map(({ type }) => type)).toEqual(['QP_REQ_ERR']);
      adapter.deregisterMr(region.handle);
      ends[how]();
      expect(side.sq.state).toBe(QpStateCode.RESET);
      expect(side.events).toHaveLength(1);
      expect(out()).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_ACCESS_ERROR]]);
      if (how === 'reset') {
        hand.connect({ rqPsn: P });
        expect(adapter.queryQp(side.qp.qpn).attr.qpState).toBe('RTS');
      }
    });
  },
);

// Once: READ responses that had not left held the NAK back, and went with the queue pair: the peer asked for them until its retries were used up.
test.each(['destroyed', 'reset'])(
  'a queue pair in error that is %s before its READ responses have left: the peer hears that there are none',
  (how) => {
    const { hand, adapter, write, read, ends, out } = connection();
    hand.put(write(P), read(P + 1, 3000), {
      opcode: Opcode.RC_SEND_MIDDLE,
      psn: P + 4,
      payload: new Uint8Array(1024),
    });
    ends[how]();
    expect(out()).toEqual([
      ['ACKNOWLEDGE', P, 0x1f],
      ['ACKNOWLEDGE', P + 1, NakCode.REMOTE_OPERATIONAL_ERROR],
    ]);
    expect(adapter.wantsToSend).toBe(false);
  },
);

test('a queue pair in error that is destroyed: a READ that the peer repeats is dropped, and the NAK leaves', () => {
  const { hand, read, ends, out } = connection();
  hand.put(read(P, 3000));
  expect(out()).toHaveLength(3);
  hand.put(read(P, 3000), { opcode: Opcode.RC_SEND_MIDDLE, psn: P + 3, payload: new Uint8Array(1024) });
  ends.destroyed();
  expect(out()).toEqual([['ACKNOWLEDGE', P + 3, NakCode.INVALID_REQUEST]]);
});
