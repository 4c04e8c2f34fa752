/**
 * How packets are taken out of batches that the link has not looked at. A packet that is withdrawn names no peer and no memory any more: the link
 * refuses it. Slots that the link has looked at already may be among the withdrawn ones; it does not look again.
 */
import { opcodeInfo } from '@node-roce/wire';
import { NO_PEER, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import { unfoldRuns } from './run-slots.ts';

/**
 * Withdraws the requests of a queue pair: they complete as flushed, or are dropped, and their memory is the
 * program's again. With `responses`, READ responses too. ACKs, NAKs and atomic results still leave.
 */
export function withdraw(batches: readonly TxBatch[], slotTag: number, responses: boolean): void {
  for (const batch of batches) {
    unfoldRuns(batch);
    const { slots, headers, count } = batch;
    for (let w = 0; w < count * TX_SLOT_WORDS; w += TX_SLOT_WORDS) {
      if (slots[w + Tx.QPN] !== slotTag) continue;
      const info = opcodeInfo(headers[slots[w + Tx.HEADER_OFFSET]]);
      if (info?.isRequest || (responses && info?.isReadResponse)) withdrawSlot(slots, w);
    }
  }
}

/** Withdraws READ responses of a key that opens nothing to peers any more (IBTA vol 1 §10.6.4). */
export function withdrawReads(batches: readonly TxBatch[], key: number): void {
  for (const batch of batches) {
    unfoldRuns(batch);
    const { slots, headers, count } = batch;
    for (let w = 0; w < count * TX_SLOT_WORDS; w += TX_SLOT_WORDS) {
      if (slots[w + Tx.ENTRY] !== key || slots[w + Tx.FRAGMENT_COUNT] === 0) continue;
      if (opcodeInfo(headers[slots[w + Tx.HEADER_OFFSET]])?.isReadResponse) withdrawSlot(slots, w);
    }
  }
}

function withdrawSlot(slots: Uint32Array, w: number): void {
  slots[w + Tx.PEER] = NO_PEER;
  slots[w + Tx.FRAGMENT_COUNT] = 0;
  slots[w + Tx.PAYLOAD_LENGTH] = 0;
  slots[w + Tx.PAD] = 0;
}
