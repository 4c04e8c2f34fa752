/**
 * Run slots (`Tx.RUN`): packets to send that differ in their PSNs alone have one slot written, and a fragment each. The addon reads them as they are; for
 * others they are unfolded, which gives each packet a slot as if there were no runs.
 */
import { bthPsn, opcodeInfo, psnAdd } from '@node-roce/wire';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';

/** Offset of the PSN in a BTH. */
const PSN_BYTE = 9;

/** Packets in the slot, and in those behind it that are not written. */
export function runOf({ slots }: TxBatch, index: number): number {
  return Math.max(1, slots[index * TX_SLOT_WORDS + Tx.RUN]);
}

/** Writes the slot of packet `by` of the run in slot `index`; `packets` are a run from there on. Its STATUS stays. */
function writeSlot({ slots, headers }: TxBatch, index: number, by: number, packets: number): void {
  const w = index * TX_SLOT_WORDS;
  const to = (index + by) * TX_SLOT_WORDS;
  const from = slots[w + Tx.HEADER_OFFSET];
  const base = (index + by) * TX_HEADER_STRIDE;
  const status = slots[to + Tx.STATUS];
  slots.copyWithin(to, w, w + TX_SLOT_WORDS);
  headers.copyWithin(base, from, from + slots[w + Tx.HEADER_LENGTH]);
  const psn = psnAdd(bthPsn(headers, from), by);
  headers[base + PSN_BYTE] = psn >>> 16;
  headers[base + PSN_BYTE + 1] = psn >>> 8;
  headers[base + PSN_BYTE + 2] = psn;
  slots[to + Tx.HEADER_OFFSET] = base;
  slots[to + Tx.FRAGMENT_FIRST] += by;
  slots[to + Tx.STATUS] = status;
  slots[to + Tx.RUN] = packets;
  // Requests of one packet have an entry each; the packets of a longer message have that of the message.
  const info = opcodeInfo(headers[from]);
  if (info?.isRequest && info.first && info.last) slots[to + Tx.ENTRY] += by;
}

/** The run in slot `index` ends after `packets`; another one begins there. */
function cut(batch: TxBatch, index: number, packets: number): void {
  const rest = runOf(batch, index) - packets;
  writeSlot(batch, index, packets, rest);
  batch.slots[index * TX_SLOT_WORDS + Tx.RUN] = packets;
  if (batch.lastRun === index) batch.lastRun = index + packets;
}

/** Slot `at` is written: if a run goes through it, another one begins there. */
export function splitRun(batch: TxBatch, at: number): void {
  if (batch.lastRun < 0) return;
  for (let i = 0; i < at; ) {
    const packets = runOf(batch, i);
    if (i + packets > at) cut(batch, i, at - i);
    i += packets;
  }
}

/** The packet that was added last has a slot of its own, which may be changed. */
export function splitLast(batch: TxBatch): void {
  const { lastRun, count } = batch;
  if (lastRun < 0) return;
  const packets = runOf(batch, lastRun);
  if (packets > 1 && lastRun + packets === count) cut(batch, lastRun, packets - 1);
}

/** Each packet has a slot of its own. */
export function unfoldRuns(batch: TxBatch): void {
  if (batch.lastRun < 0) return;
  const { slots, count } = batch;
  for (let i = 0; i < count; ) {
    const packets = runOf(batch, i);
    for (let by = 1; by < packets; by++) writeSlot(batch, i, by, 1);
    slots[i * TX_SLOT_WORDS + Tx.RUN] = 1;
    i += packets;
  }
  batch.lastRun = -1;
}
