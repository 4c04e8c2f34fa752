/**
 * The notification point of a connection: packets that come marked "congestion experienced" are answered with congestion notification packets
 * (CNP; IBTA vol 1 annex A17.9, DCQCN §3.1), one at once and then one for each interval in which marks came.
 */
import { BTH_BYTES, EXTENSION_BYTES, Opcode, writeBth } from '@node-roce/wire';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import type { Deadlines } from '../deadlines.ts';
import type { Owner } from '../qp/owner.ts';
import { DEFAULT_PKEY, finishSlot } from '../slots.ts';
import type { Clock } from '../times.ts';

/** The fifth byte of a BTH (IBTA vol 1 §9.2.1). */
const BECN_BYTE = 4;
const BECN = 0x40;
const CNP_BYTES = BTH_BYTES + EXTENSION_BYTES.cnp;

const STOPPED = Number.POSITIVE_INFINITY;

interface NotificationContext {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
}

/** Promise: a CNP is added to a batch no sooner than `minTimeBetweenCnps` after the one before. */
export class NotificationPoint {
  readonly #context: NotificationContext;
  readonly #owner: Owner;
  readonly #id: number;
  /** When the interval since the last CNP ends. */
  readonly #timer = new Float64Array(1).fill(STOPPED);
  #wanted = false;
  /** A mark came in the interval at hand. */
  #marked = false;

  constructor(context: NotificationContext, owner: Owner) {
    this.#context = context;
    this.#owner = owner;
    this.#id = context.deadlines.enroll({ timersDue: () => this.#intervalEnds() }, this.#timer);
  }

  /** Whether a CNP is to be sent. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /** A packet came marked. */
  marked(): void {
    if (this.#timer[0] > this.#context.clock[0] && this.#timer[0] !== STOPPED) this.#marked = true;
    else this.#want();
  }

  /** Adds the CNP that is wanted to the batch; returns how many packets that were. */
  transmit(batch: TxBatch): number {
    if (!this.#wanted || batch.full) return 0;
    const owner = this.#owner;
    const base = batch.count * TX_HEADER_STRIDE;
    batch.headers.fill(0, base + BTH_BYTES, base + CNP_BYTES);
    writeBth(batch.headers, base, Opcode.CNP, 0, DEFAULT_PKEY, owner.attributes.destQpn, 0);
    batch.headers[base + BECN_BYTE] = BECN;
    finishSlot(owner, batch, CNP_BYTES, batch.fragmentCount, 0, 0);
    batch.slots[(batch.count - 1) * TX_SLOT_WORDS + Tx.TRAFFIC_CLASS] = owner.congestion.cnpDscp << 2;
    owner.counters.cnpSent++;
    this.#wanted = this.#marked = false;
    this.#timer[0] = this.#context.clock[0] + owner.congestion.minTimeBetweenCnps;
    this.#context.deadlines.armed(this.#id, 0);
    return 1;
  }

  /** RESET, ERR: there is nobody to notify. */
  reset(): void {
    this.#wanted = this.#marked = false;
    this.#timer[0] = STOPPED;
    this.#context.deadlines.disarm(this.#id);
  }

  /** The queue pair is gone. */
  close(): void {
    this.reset();
    this.#context.deadlines.leave(this.#id);
  }

  #intervalEnds(): void {
    if (this.#timer[0] > this.#context.clock[0]) return;
    this.#timer[0] = STOPPED;
    if (this.#marked) this.#want();
  }

  #want(): void {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#owner.wantsReplyTurn();
  }
}
