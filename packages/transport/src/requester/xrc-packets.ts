/** The packets of an XRC initiator queue pair: those of RC, with an XRCETH behind the BTH (IBTA vol 1 annex A14). */
import { BTH_BYTES, Transport, writeXrceth, XRCETH_BYTES } from '@node-roce/wire';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import type { Context } from '../context.ts';
import { SendWqe } from '../entry-words.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { runOf } from '../run-slots.ts';
import type { WrOpcodeRow } from '../wr-opcodes.ts';
import type { SendCursor } from './cursor.ts';
import { RequestPackets } from './packets.ts';

/** Names the SRQ in each packet after it was written. RC's own path pays nothing for it. */
export class XrcPackets extends RequestPackets {
  readonly #queue: SendQueue;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    super(context, owner, queue);
    this.#queue = queue;
  }

  override addMessage(
    batch: TxBatch,
    cursor: SendCursor,
    row: WrOpcodeRow,
    last: boolean,
    ackReq: boolean,
  ): number {
    const { count } = batch;
    const srqn = this.#srqOf(cursor);
    const status = super.addMessage(batch, cursor, row, last, ackReq);
    this.#name(batch, count, srqn);
    return status;
  }

  override addMiddles(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, most: number): number {
    const { count } = batch;
    const srqn = this.#srqOf(cursor);
    const added = super.addMiddles(batch, cursor, row, most);
    this.#name(batch, count, srqn);
    return added;
  }

  override addRead(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, responses: number): number {
    const { count } = batch;
    const status = super.addRead(batch, cursor, row, responses);
    this.#name(batch, count, this.#srqOf(cursor));
    return status;
  }

  override addAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): void {
    const { count } = batch;
    super.addAtomic(batch, cursor, row);
    this.#name(batch, count, this.#srqOf(cursor));
  }

  override addPlacement(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const { count } = batch;
    const status = super.addPlacement(batch, cursor, row);
    this.#name(batch, count, this.#srqOf(cursor));
    return status;
  }

  #srqOf({ entry }: SendCursor): number {
    return this.#queue.words[this.#queue.wordOf(entry) + SendWqe.REMOTE_SRQN];
  }

  /** The packets from slot `from` on get their XRCETH, and opcodes of XRC. */
  #name(batch: TxBatch, from: number, srqn: number): void {
    const { headers, slots, count } = batch;
    for (let i = from; i < count; i += runOf(batch, i)) {
      const w = i * TX_SLOT_WORDS;
      const base = i * TX_HEADER_STRIDE;
      const length = slots[w + Tx.HEADER_LENGTH];
      headers.copyWithin(base + BTH_BYTES + XRCETH_BYTES, base + BTH_BYTES, base + length);
      writeXrceth(headers, base + BTH_BYTES, srqn);
      headers[base] |= Transport.XRC;
      slots[w + Tx.HEADER_LENGTH] = length + XRCETH_BYTES;
    }
  }
}
