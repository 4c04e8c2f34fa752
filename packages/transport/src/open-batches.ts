/** Batches with packets that the link has not looked at, and how packets are taken out of them. */
import { opcodeInfo } from '@node-roce/wire';
import { NO_PEER, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import { unfoldRuns } from './run-slots.ts';

/**
 * Owns the list of open batches. A packet that is withdrawn names no peer and no memory any more: the link refuses
 * it. Slots that the link has looked at already may be among the withdrawn ones; it does not look again.
 */
export class OpenBatches {
  readonly #batches: TxBatch[] = [];

  /** Packets go into a batch. False if it was open already. */
  open(batch: TxBatch): boolean {
    if (this.#batches.includes(batch)) return false;
    this.#batches.push(batch);
    return true;
  }

  /** The link has looked at all of a batch, or it has none. False if it was not open. */
  close(batch: TxBatch): boolean {
    const at = this.#batches.indexOf(batch);
    if (at < 0) return false;
    this.#batches[at] = this.#batches[this.#batches.length - 1];
    this.#batches.pop();
    return true;
  }

  /**
   * Withdraws the requests of a queue pair: they complete as flushed, or are dropped, and their memory is the
   * program's again. With `responses`, READ responses too. ACKs, NAKs and atomic results still leave.
   */
  withdraw(slotTag: number, responses: boolean): void {
    for (const batch of this.#batches) {
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
  withdrawReads(key: number): void {
    for (const batch of this.#batches) {
      unfoldRuns(batch);
      const { slots, headers, count } = batch;
      for (let w = 0; w < count * TX_SLOT_WORDS; w += TX_SLOT_WORDS) {
        if (slots[w + Tx.ENTRY] !== key || slots[w + Tx.FRAGMENT_COUNT] === 0) continue;
        if (opcodeInfo(headers[slots[w + Tx.HEADER_OFFSET]])?.isReadResponse) withdrawSlot(slots, w);
      }
    }
  }
}

function withdrawSlot(slots: Uint32Array, w: number): void {
  slots[w + Tx.PEER] = NO_PEER;
  slots[w + Tx.FRAGMENT_COUNT] = 0;
  slots[w + Tx.PAYLOAD_LENGTH] = 0;
  slots[w + Tx.PAD] = 0;
}
