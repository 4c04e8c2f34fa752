/** ACKs that `transmit` holds back behind the answer to their message: they leave with the next call, whatever comes between. */
import { BTH_BYTES, bthOpcode, bthPsn, CREDIT_UNLIMITED, NakCode, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ByHand } from '../testing/by-hand.ts';
import { gatherSlot } from './index.ts';

const P = 1000;
const NAMES: Record<number, string> = {
  [Opcode.RC_SEND_ONLY]: 'SEND',
  [Opcode.RC_ACKNOWLEDGE]: 'ACK',
  [Opcode.RC_RDMA_READ_RESPONSE_ONLY]: 'READ',
};

/** A peer that knows of ACKs ahead, or not, and a program that answers. */
function table({ ahead = true, ...options }: { ahead?: boolean; credits?: boolean } = {}) {
  const hand = new ByHand({}, { credits: false, ...options });
  const { side } = hand;
  const { adapter, tx, qp } = side;
  if (ahead) adapter.acknowledgeAhead(qp.qpn);
  const mr = side.register(new ArrayBuffer(4096));
  for (let i = 0; i < 16; i++) side.postRecv(i, [{ mr, length: 64 }]);
  const name = (bytes: Uint8Array) => {
    const opcode = NAMES[bthOpcode(bytes, 0)];
    if (opcode !== 'ACK') return opcode;
    const isNak = bytes[BTH_BYTES] >= NakCode.PSN_SEQUENCE_ERROR;
    return `${isNak ? 'NAK' : opcode} ${bthPsn(bytes, 0) - P}`;
  };
  /** The packets of one call of `transmit`. */
  const transmit = (hold: boolean) => {
    tx.clear();
    adapter.transmit(tx, hold);
    const names = Array.from({ length: tx.count }, (_, i) => name(gatherSlot(tx, i)));
    adapter.sent(tx);
    adapter.checkInvariants();
    return names;
  };
  const message = (psn: number) =>
    hand.put({ opcode: Opcode.RC_SEND_ONLY, psn: P + psn, payload: new Uint8Array(8) });
  const answer = () => side.post({ opcode: 'SEND', sge: [{ mr, length: 8 }] });
  const read = (psn: number) =>
    hand.put({
      opcode: Opcode.RC_RDMA_READ_REQUEST,
      psn: P + psn,
      reth: { addr: mr.addr, rkey: mr.rkey, length: 8 },
    });
  /** A message, and the answer without its ACK. */
  const hold = (psn: number) => {
    message(psn);
    answer();
    expect(transmit(true)).toEqual(['SEND']);
    expect([adapter.holdsAck, adapter.wantsToSend]).toEqual([true, true]);
  };
  // Whose first ACK lets the program send before it has credits.
  answer();
  transmit(false);
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x500, aeth: { syndrome: CREDIT_UNLIMITED, msn: 1 } });
  return { adapter, qp, transmit, message, answer, read, hold };
}

test('one ACK for all messages that it was held back for', () => {
  const { adapter, transmit, answer, message, hold } = table();
  for (let psn = 0; psn < 5; psn++) hold(psn);
  message(5);
  answer();
  expect(adapter.holdsAck).toBe(false);
  expect(transmit(false)).toEqual(['SEND', 'ACK 5']);
  expect([adapter.holdsAck, adapter.wantsToSend]).toEqual([false, false]);
  hold(6);
  expect(transmit(false)).toEqual(['ACK 6']);
});

test('nothing else is held back with it: what is posted, and what other packets draw', () => {
  const { adapter, transmit, answer, message, read, hold } = table();
  hold(0);
  answer();
  expect(adapter.holdsAck).toBe(false);
  expect(transmit(false)).toEqual(['SEND', 'ACK 0']);
  // In PSN order, as ever.
  hold(1);
  read(2);
  expect(transmit(false)).toEqual(['ACK 1', 'READ']);
  hold(3);
  message(5);
  expect(transmit(false)).toEqual(['ACK 3', 'NAK 4']);
  message(4);
  hold(5);
  expect(transmit(false)).toEqual(['ACK 5']);
});

test('a message that comes twice is acknowledged with it', () => {
  const { transmit, message, hold } = table();
  hold(0);
  message(0);
  expect(transmit(false)).toEqual(['ACK 0']);
});

test.each([
  ['the peer may mind', { ahead: false }],
  ['ACKs bring credits', { credits: true }],
])('no ACK is held back where %s', (_, options) => {
  const { transmit, message, answer } = table(options);
  message(0);
  answer();
  expect(transmit(true)).toEqual(['SEND', 'ACK 0']);
});

test('nor where the answer is a READ response or a NAK, or there is none', () => {
  const { transmit, message, answer, read } = table();
  message(0);
  read(1);
  answer();
  expect(transmit(true).toSorted()).toEqual(['ACK 0', 'READ', 'SEND']);
  message(3);
  answer();
  expect(transmit(true)).toEqual(['SEND', 'NAK 2']);
  message(2);
  // The packet that came early was kept.
  expect(transmit(true)).toEqual(['ACK 3']);
});

test('it leaves after ERR and after RESET; with the queue pair, too', () => {
  for (const end of ['ERR', 'RESET', 'destroyed']) {
    const { adapter, qp, transmit, hold } = table();
    hold(0);
    hold(1);
    if (end === 'destroyed') adapter.destroyQp(qp.qpn);
    else adapter.modifyQp(qp.qpn, { qpState: end as 'ERR' | 'RESET' });
    expect(transmit(false), end).toEqual(['ACK 1']);
    expect(adapter.wantsToSend, end).toBe(false);
  }
});
