/** Starts send entries: gives them their PSNs, or executes them at once where they are local. */
import { QpStateCode, SendFlags, WcStatus, WrOpcode } from '../constants.ts';
import { SendWqe } from '../entry-words.ts';
import { executeLocal } from '../windows.ts';
import { Wire, WR_OPCODES, type WrOpcodeRow } from '../wr-opcodes.ts';
import { checkEntry } from './checks.ts';
import type { Credits } from './credits.ts';
import type { RequesterParts, SenderParts } from './parts.ts';
import type { Recovery } from './recovery/recovery.ts';

/** Local operations that are executed in a turn, at most: another thread may post them as fast as they are done. */
const LOCAL_OPERATIONS = 128;

/** Those that decide how a READ is split. */
type ReadParts = Pick<RequesterParts, 'reads' | 'pacing'> & { readonly recovery: Recovery };

/** Owns the count of local operations of the turn. */
export class Starter {
  readonly #parts: SenderParts;
  readonly #credits: Credits;
  readonly #reads: ReadParts | undefined;
  #local = 0;

  /** @param reads of a service that has READs */
  constructor(parts: SenderParts, credits: Credits, reads?: ReadParts) {
    this.#parts = parts;
    this.#credits = credits;
    this.#reads = reads;
  }

  /** A turn begins. */
  beginTurn(): void {
    this.#local = 0;
  }

  /**
   * Starts the entry under the cursor, unless it was started. After a local operation, which is done then, the cursor is at the next entry, not started.
   * @returns false if nothing can be sent or started now; if all that was posted is started, the next entry rings
   */
  prepare(): boolean {
    const { owner, flight, failed } = this.#parts;
    const { cursor, queue } = flight;
    if (cursor.entry !== queue.started) return !(failed.waiting && failed.isAt(cursor.entry));
    // SQD; or ERR and SQE, where what was sent in this turn has failed.
    if (failed.waiting || owner.state !== QpStateCode.RTS) return false;
    if (!queue.waiting && !queue.sleep()) return false;
    if (!this.#start()) return false;
    if (cursor.entry !== queue.started || ++this.#local < LOCAL_OPERATIONS) return true;
    owner.wantsTurn();
    return false;
  }

  /** False if the entry can't start now: fence, credits, or a failure that waits for the entries before it. */
  #start(): boolean {
    const { context, owner, flight, failed } = this.#parts;
    const { cursor, queue } = flight;
    const credits = this.#credits;
    const index = cursor.entry;
    const { words } = queue;
    const w = queue.wordOf(index);
    // Each word is looked at once: the program may write another meanwhile.
    const opcodeFlags = words[w + SendWqe.OPCODE_FLAGS];
    const length = words[w + SendWqe.LENGTH];
    const row = WR_OPCODES[opcodeFlags & 0xff];
    const flags = opcodeFlags >>> 8;
    if (row !== undefined && (flags & SendFlags.FENCE) !== 0 && this.#fenceHolds(row)) return false;

    let status = checkEntry(context, owner, queue, index, row, length, (flags & SendFlags.INLINE) !== 0);
    if (status === WcStatus.SUCCESS && row!.wire === Wire.LOCAL) {
      status = executeLocal(context, owner, row!, words, w);
      if (status === WcStatus.SUCCESS) {
        this.#finishLocal(row!);
        return true;
      }
    }
    if (status !== WcStatus.SUCCESS) {
      failed.set(index, status);
      failed.completeIfOldest();
      return false;
    }
    // One request may go past the limit, and asks for the ACK that moves it (§9.7.7.2.5). And one may always be
    // out: an ACK whose credits make no sense, or one that was lost, must not be the last that is heard.
    const { limited } = credits;
    if (limited && row!.consumesReceive && credits.exhausted && !flight.isOver) return false;

    const { pathMtu } = owner.attributes;
    const packets = row!.wire === Wire.ATOMIC ? 1 : Math.max(1, Math.ceil(length / pathMtu));
    const asksLarge = row!.wire === Wire.READ && this.#startsLarge(packets);
    queue.start(cursor.psn, packets, row!, asksLarge);
    if (limited) credits.count(this.#messagesOf(index));
    cursor.place(index, cursor.psn);
    return true;
  }

  /**
   * SQD: an entry that was given its PSNs and of which nothing was sent (it waited for the window, or for READs that are
   * out) is not started after all. @returns whether there was one
   */
  takeBack(): boolean {
    const { flight } = this.#parts;
    const { queue } = flight;
    if (queue.started === queue.head) return false;
    const last = (queue.started - 1) | 0;
    if (queue.packetsOf(last) === 0 || queue.firstPsn(last) !== flight.sendPsn) return false;
    const credits = this.#credits;
    if (credits.limited) credits.count(-this.#messagesOf(last));
    queue.unstart();
    return true;
  }

  /** Whether a READ is split into large requests: not while losses are recovered from. */
  #startsLarge(packets: number): boolean {
    if (this.#reads === undefined) return false;
    const { reads, pacing, recovery } = this.#reads;
    return recovery.idle && reads.startsLarge(packets, pacing.congestion.window);
  }

  /** Messages that the responder counts for an entry that was started. */
  #messagesOf(entry: number): number {
    const { queue } = this.#parts.flight;
    if (this.#reads === undefined || queue.wireOf(entry) !== Wire.READ) return 1;
    return this.#reads.reads.requestsFor(queue.packetsOf(entry), queue.asksLarge(entry));
  }

  /** A fenced entry waits for the READs and atomics before it (§10.8.3.3); a LOCAL_INV for all before it (§10.6.5.1). */
  #fenceHolds(row: WrOpcodeRow): boolean {
    const { flight } = this.#parts;
    const { queue } = flight;
    if (row.opcode === WrOpcode.LOCAL_INV) return flight.cursor.entry !== queue.head;
    return queue.readOrAtomics > 0;
  }

  /** A local operation is done; it completes in its turn. */
  #finishLocal(row: WrOpcodeRow): void {
    const { flight } = this.#parts;
    const { cursor, queue } = flight;
    const index = cursor.entry;
    queue.start(cursor.psn, 0, row);
    cursor.place(queue.started, cursor.psn);
    if (index === queue.head) queue.completeOldest();
  }
}
