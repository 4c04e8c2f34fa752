import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { answer, ladderPacket } from '../../testing/analysis.ts';
import { filterLadder, kindOf, packetLabel, packetNotes } from './kind.ts';

const packets = [
  ladderPacket({ frame: 1, time: 0, psn: 7, payloadLength: 64, ackReq: true }),
  answer(0x60, 'NAK PSN sequence error', { frame: 2, time: 10, psn: 7 }),
  ladderPacket({
    frame: 3,
    time: 20,
    psn: 7,
    retransmission: 'sequence-nak',
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
  }),
  answer(0x1f, 'ACK', { frame: 4, time: 30, psn: 7 }),
];
const frames = (filter: Parameters<typeof filterLadder>[1]) =>
  filterLadder(packets, filter).map(({ frame }) => frame);

describe('kinds', () => {
  test.each([
    ['request', ladderPacket()],
    ['request', ladderPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST })],
    ['request', ladderPacket({ opcode: Opcode.UD_SEND_ONLY })],
    ['response', ladderPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_MIDDLE })],
    ['response', answer(0x1f, 'ACK', { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY })],
    ['response', answer(0x1f, 'ACK', { opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE })],
    ['ack', answer(0x1f, 'ACK')],
    ['rnr', answer(0x2c, 'RNR NAK 0.64 ms')],
    ['nak', answer(0x62, 'NAK remote access error')],
    // The reserved top bit is ignored (IBTA vol 1 §9.3.5).
    ['nak', answer(0xe0, 'NAK PSN sequence error')],
    ['retransmission', ladderPacket({ retransmission: 'unknown' })],
    ['cnp', ladderPacket({ opcode: Opcode.CNP })],
  ] as const)('%s', (kind, packet) => {
    expect(kindOf(packet)).toBe(kind);
  });
});

describe('filter', () => {
  test('nothing given lets everything pass', () => expect(frames({})).toEqual([1, 2, 3, 4]));
  test('time, both ends included', () => expect(frames({ from: 10, to: 20 })).toEqual([2, 3]));
  test('keeps the kinds that are asked for', () =>
    expect(frames({ kinds: new Set(['nak', 'ack'] as const) })).toEqual([2, 4]));
  test('text of the label or the notes', () => {
    expect(frames({ text: ' WRITE ' })).toEqual([3]);
    expect(frames({ text: 'psn 7' })).toEqual([1, 2, 3, 4]);
    expect(frames({ text: 'retransmission' })).toEqual([3]);
  });
  test('the number of a frame', () => expect(frames({ text: '#4' })).toEqual([4]));
});

test('a label has opcode, PSN, length and AckReq, or the syndrome', () => {
  expect(packetLabel(packets[0])).toBe('Send Only · PSN 7 = 0x000007 · 64 B · AckReq');
  expect(packetLabel(packets[1])).toBe('NAK PSN sequence error · PSN 7 = 0x000007 · MSN 1');
  const read = { opcode: Opcode.RC_RDMA_READ_REQUEST, reth: { va: '0x1000', rkey: 1, length: 4096 } };
  expect(packetLabel(ladderPacket(read))).toBe('Read Request · PSN 100 = 0x000064 · of 4096 B');
  expect(packetLabel(ladderPacket({ opcode: Opcode.CNP }))).toBe('CNP');
  expect(packetLabel(packets[0], true)).toBe('Send Only · 7 · 64 B');
  expect(packetLabel(answer(0x1f, 'ACK, unlimited credits'), true)).toBe('ACK · 100');
});

test('notes name retransmissions, bad ICRCs, ECN marks and repeated frames', () => {
  expect(packetNotes(packets[0])).toEqual([]);
  expect(packetNotes(ladderPacket({ retransmission: 'timeout', icrc: 'bad', ecnMarked: true }))).toEqual([
    'retransmission: timeout',
    'ICRC bad',
    'ECN CE',
  ]);
  expect(packetNotes(ladderPacket({ retransmission: 'unknown', repeatedFrame: true }))).toEqual([
    'retransmission',
    'duplicate frame',
  ]);
});
