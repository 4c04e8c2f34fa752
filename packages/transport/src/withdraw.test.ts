/** Packets that are withdrawn from a batch that the link has not looked at. */
import { Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import {
  FRAGMENT_WORDS,
  NO_PEER,
  RegionTable,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from './batch.ts';
import { OpenBatches } from './open-batches.ts';
import { withdraw, withdrawReads } from './withdraw.ts';

const TAG = 0x0500_0011;
interface PacketInit {
  opcode: number;
  tag?: number;
  /** `Tx.ENTRY`. */
  entry?: number;
  /** Region and offset of the payload; nothing without. */
  from?: [region: number, offset: number];
}

function batchOf(...packets: PacketInit[]): TxBatch {
  const batch = new TxBatch(new RegionTable(), 8);
  // As a batch is that was used before: what is behind its count is of earlier packets.
  batch.slots.fill(TAG);
  for (const { opcode, tag = TAG, entry = 0, from } of packets) {
    const w = batch.count * TX_SLOT_WORDS;
    batch.headers[batch.count * TX_HEADER_STRIDE] = opcode;
    batch.slots[w + Tx.HEADER_OFFSET] = batch.count * TX_HEADER_STRIDE;
    batch.slots[w + Tx.QPN] = tag;
    batch.slots[w + Tx.PEER] = 5;
    batch.slots[w + Tx.ENTRY] = entry;
    batch.slots[w + Tx.PAD] = 1;
    batch.slots[w + Tx.PAYLOAD_LENGTH] = from ? 3 : 0;
    batch.slots[w + Tx.FRAGMENT_FIRST] = batch.fragmentCount;
    batch.slots[w + Tx.FRAGMENT_COUNT] = from ? 1 : 0;
    if (from) {
      const f = batch.fragmentCount++ * FRAGMENT_WORDS;
      batch.fragments.set([from[0], from[1] >>> 0, Math.floor(from[1] / 2 ** 32), 3], f);
    }
    batch.count++;
  }
  return batch;
}

/** Numbers of the packets that name no peer any more; all of those name no memory either. */
function withdrawn({ slots, count }: TxBatch): number[] {
  const numbers = Array.from({ length: count }, (_, i) => i);
  return numbers.filter((i) => {
    const [peer, ...rest] = [Tx.PEER, Tx.FRAGMENT_COUNT, Tx.PAYLOAD_LENGTH, Tx.PAD].map(
      (word) => slots[i * TX_SLOT_WORDS + word],
    );
    if (peer === NO_PEER) expect(rest).toEqual([0, 0, 0]);
    else expect([peer, rest[2]]).toEqual([5, 1]);
    return peer === NO_PEER;
  });
}

const REQUEST = { opcode: Opcode.RC_SEND_ONLY, from: [1, 0] as [number, number] };
const RESPONSE = { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, from: [1, 0] as [number, number] };
const ACK = { opcode: Opcode.RC_ACKNOWLEDGE };
const RESULT = { opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE };
const ALL = [REQUEST, RESPONSE, ACK, RESULT, { ...REQUEST, tag: TAG + 1 }, { opcode: Opcode.CNP }, REQUEST];

test.each([
  ['requests', false, [0, 6]],
  ['requests and READ responses', true, [0, 1, 6]],
])('%s of one queue pair; ACKs and results of atomics still leave', (_what, responses, expected) => {
  const batches = new OpenBatches<TxBatch>();
  const batch = batchOf(...ALL);
  batches.open(batch);
  withdraw(batches.list, TAG, responses);
  expect(withdrawn(batch)).toEqual(expected);
  // Behind the packets of the batch is nothing to withdraw.
  expect(batch.slots[batch.count * TX_SLOT_WORDS + Tx.PEER]).toBe(TAG);
});

test('of every open batch, and of none that is closed', () => {
  const batches = new OpenBatches<TxBatch>();
  const [a, b, c] = [batchOf(REQUEST), batchOf(REQUEST), batchOf(REQUEST)];
  for (const batch of [a, b, c, b]) batches.open(batch);
  for (const batch of [b, b]) batches.close(batch);
  expect(batches.list).toEqual([a, c]);
  withdraw(batches.list, TAG, false);
  expect([a, b, c].map(withdrawn)).toEqual([[0], [], [0]]);
});

test('READ responses of a key that is closed, and no others', () => {
  const batches = new OpenBatches<TxBatch>();
  const key = 0xfedc_ba98;
  const batch = batchOf(
    { ...RESPONSE, entry: key },
    { ...RESPONSE, entry: key - 1 },
    { ...REQUEST, entry: key },
    { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, entry: key },
  );
  batches.open(batch);
  withdrawReads(batches.list, key);
  expect(withdrawn(batch)).toEqual([0]);
});
