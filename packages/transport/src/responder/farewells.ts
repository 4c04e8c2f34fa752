/** Last replies of connections that end: ACKs of delivered messages, and the NAK with the reason (IBTA vol 1 §9.9.3). */
import type { Addresses } from '../addresses.ts';
import { type RegionTable, TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, TxBatch } from '../batch.ts';
import type { Own } from '../own.ts';
import type { Responder } from './responder.ts';

/**
 * Owns the packets that queue pairs owed when they were reset or destroyed, and their peers' indices until the link has
 * taken them.
 *
 * Invariants: a packet that waits has no payload, so that no memory is read for it; a peer is given back once.
 */
export class Farewells {
  /** Whether packets wait; and whether there are peers to give back once the link has taken a batch. */
  readonly waiting: boolean = false;
  readonly leaving: boolean = false;
  readonly #regions: RegionTable;
  readonly #addresses: Addresses;
  /** Packets that wait, each in a batch of its connection's; and how many of the oldest batch have left. */
  readonly #waiting: TxBatch[] = [];
  #sent = 0;
  /** Peers of connections whose packets are all in a batch that the link has. */
  readonly #leaving: number[] = [];

  constructor(regions: RegionTable, addresses: Addresses) {
    this.#regions = regions;
    this.#addresses = addresses;
  }

  /** Takes over the replies that a responder owes its peer, and the peer's index with them. */
  take(responder: Responder, peer: number): void {
    responder.stop();
    const { owed } = responder;
    if (owed > 0) {
      // Room for a fragment list, which none of them has: a batch without counts as full.
      const batch = new TxBatch(this.#regions, owed, 64);
      responder.transmit(batch, owed, false);
      if (responder.owed > 0 && responder.refuseReads !== undefined) {
        responder.refuseReads();
        responder.transmit(batch, owed, false);
      }
      if (batch.count > 0) {
        this.#waiting.push(batch);
        this.#note();
        return;
      }
    }
    this.#addresses.removePeer(peer);
  }

  /** Adds the waiting replies to a batch; returns the number of packets. */
  transmit(batch: TxBatch): number {
    const before = batch.count;
    while (this.#waiting.length > 0 && !batch.full) {
      const from = this.#waiting[0];
      copySlot(from, this.#sent++, batch);
      if (this.#sent < from.count) continue;
      this.#leaving.push(from.slots[Tx.PEER]);
      this.#waiting.shift();
      this.#sent = 0;
    }
    this.#note();
    return batch.count - before;
  }

  /** The link has looked at all of the batch. */
  taken(): void {
    // V8 calls its runtime to set the length of an array.
    if (this.#leaving.length === 0) return;
    for (const peer of this.#leaving) this.#addresses.removePeer(peer);
    this.#leaving.length = 0;
    this.#note();
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const isShown = this.waiting === this.#waiting.length > 0 && this.leaving === this.#leaving.length > 0;
    return isShown ? undefined : `${this.#waiting.length} last replies wait, and that is shown wrong`;
  }

  #note(): void {
    (this as Own<Farewells>).waiting = this.#waiting.length > 0;
    (this as Own<Farewells>).leaving = this.#leaving.length > 0;
  }
}

function copySlot(from: TxBatch, index: number, to: TxBatch): void {
  const source = index * TX_SLOT_WORDS;
  const w = to.count * TX_SLOT_WORDS;
  const header = from.slots[source + Tx.HEADER_OFFSET];
  to.slots.set(from.slots.subarray(source, source + TX_SLOT_WORDS), w);
  to.slots[w + Tx.HEADER_OFFSET] = to.count * TX_HEADER_STRIDE;
  to.slots[w + Tx.FRAGMENT_FIRST] = to.fragmentCount;
  to.headers.set(from.headers.subarray(header, header + TX_HEADER_STRIDE), to.count * TX_HEADER_STRIDE);
  to.count++;
}
