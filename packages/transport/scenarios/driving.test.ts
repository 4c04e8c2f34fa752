/** The calls by which a link drives an adapter: what is to be waited for, and doorbells. */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Ring, TxBatch } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import { addressOf } from '../testing/pair.ts';

const P = 1000;
const remote = { addr: 0n, rkey: 1 };

function connected(options = {}) {
  const hand = new ByHand({ rqPsn: P }, options);
  const { side } = hand;
  const { adapter } = side;
  hand.out();
  const mr = side.register(new ArrayBuffer(64));
  const post = () => side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote });
  const write = (psn: number) => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr: mr.addr, rkey: mr.rkey, length: 4 },
    payload: new Uint8Array(4),
  });
  return { hand, side, adapter, mr, post, write };
}

describe('an adapter has something to send', () => {
  test('when a doorbell rang', () => {
    const { hand, adapter, post } = connected();
    expect(adapter.wantsToSend).toBe(false);
    post();
    expect(adapter.wantsToSend).toBe(true);
    expect(hand.out()).toHaveLength(1);
    expect(adapter.wantsToSend).toBe(false);
  });

  test('when a reply is owed', () => {
    const { hand, adapter, write } = connected();
    hand.put(write(P));
    expect(adapter.wantsToSend).toBe(true);
    hand.out();
    expect(adapter.wantsToSend).toBe(false);
  });

  test('when a queue pair that is gone owes one', () => {
    const { hand, side, adapter, write } = connected();
    hand.put(write(P));
    adapter.destroyQp(side.qp.qpn);
    expect(adapter.wantsToSend).toBe(true);
    expect(hand.out()).toHaveLength(1);
    expect(adapter.wantsToSend).toBe(false);
  });

  test('when the engine’s own thread reports that something was posted', () => {
    const { hand, side, adapter, mr } = connected();
    const { sq } = side;
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote });
    hand.out();
    sq.publish((sq.producer + 1) | 0); // The next entry, without a doorbell.
    expect(adapter.wantsToSend).toBe(false);
    adapter.posted(side.qp.qpn);
    expect(adapter.wantsToSend).toBe(true);
    adapter.posted(0x1234); // One that there is not.
  });
});

test('a batch counts what is added to what it has', () => {
  const { side, adapter, post } = connected();
  const tx = new TxBatch(adapter.regions, 16);
  post();
  expect(adapter.transmit(tx)).toBe(1);
  post();
  post();
  expect(adapter.transmit(tx)).toBe(2);
  expect(tx.count).toBe(3);
  expect(adapter.counters().sentPackets).toBe(3);
  expect(adapter.transmit(tx)).toBe(0);
  adapter.sent(tx);
  expect(adapter.counters().sentPackets).toBe(3);
  expect(side.adapter.counters().sendErrors).toBe(0);
});

test('a doorbell for a queue pair that is gone is nobody’s', () => {
  const { hand, side, adapter, post } = connected();
  post();
  adapter.destroyQp(side.qp.qpn);
  expect(hand.out()).toEqual([]);
  expect(new Ring(adapter.doorbells).used).toBe(0);
});

test('an address handle is given back to its PD once', () => {
  const { adapter } = connected();
  const pd = adapter.allocPd();
  const ah = adapter.createAh(pd, addressOf(3));
  adapter.destroyAh(ah);
  adapter.deallocPd(pd);
});

test('two counts of errors: the adapter’s, and each queue pair’s, also of those that are gone', () => {
  const { side, adapter, post } = connected();
  const tx = new TxBatch(adapter.regions, 16);
  post();
  post();
  adapter.transmit(tx);
  tx.slots[10] = 101; // ENETUNREACH, of the first.
  adapter.sent(tx);
  expect(adapter.qpCounters(side.qp.qpn)).toMatchObject({ sendErrors: 1, sentPackets: 2 });
  adapter.destroyQp(side.qp.qpn);
  expect(adapter.counters()).toMatchObject({ sendErrors: 1, sentPackets: 2 });
});
