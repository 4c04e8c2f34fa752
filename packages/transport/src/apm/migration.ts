/**
 * Automatic path migration of a connection (IBTA vol 1 §17.2.8): both sides hold an alternate path, agree by the MigReq bit of their
 * packets that either may go over to it, and see by the same bit that the other one did.
 */
import { BthFlags, bthMigReq, psnAdd, psnDiff } from '@node-roce/wire';
import type { MigState } from '../constants.ts';
import type { AsyncEvent } from '../context.ts';
import type { AhAttr } from '../control.ts';
import { invalid, RoceError } from '../errors.ts';
import { comesBy, type InboundPacket } from '../inbound.ts';
import type { PathAttributes, QpAttributes } from '../qp/attributes.ts';

/** The queue pair as its migration sees it. */
export interface Migrating {
  readonly qpn: number;
  readonly attributes: QpAttributes;
  /** PSN of the next request. */
  readonly expectedPsn: number;
  /** Whether the PSN of a packet is one that its peer may send now: of the next request, of a recent one, or of an answer that is owed. */
  awaits(packet: InboundPacket): boolean;
  /** Takes another path, and retransmits the packets in flight. */
  takePath(path: PathAttributes): void;
  /** Changes the MigReq bit of its packets. */
  setMigReq(migReq: number): void;
  event(event: AsyncEvent): void;
}

const NONE = -1;
/** The PSN of the last REARM is at most so far behind: a quarter of their range, so that PSNs before and after it can be distinguished. */
const REARM_BEHIND = 1 << 22;

/**
 * Owns the state of migration. Promise: REARM and ARMED have an alternate path; packets have MigReq 1 exactly in MIGRATED.
 */
export class PathMigration {
  readonly #qp: Migrating;
  #state: MigState = 'MIGRATED';
  /** The peer was seen in MIGRATED since this side was: a peer that always sends 0 knows no migration. */
  #peerMigrated = false;
  /** PATH_MIG_ERR was raised since the last REARM. */
  #reported = false;
  /** PSN of the next request at the last REARM, or a later one that is far behind. */
  #rearmPsn = 0;
  /** PSN of the last request from before the REARM that came by the alternate path, and the one with which they last began anew. */
  #lastPsn = NONE;
  #repeatedPsn = NONE;

  constructor(qp: Migrating) {
    this.#qp = qp;
  }

  get state(): MigState {
    return this.#state;
  }

  /** Throws EINVAL where a modify call can't change the state so; `alternate` is the path that there would be then. */
  check(to: MigState, alternate: AhAttr | undefined): void {
    const from = this.#state;
    if (to === 'ARMED') throw invalid('pathMigState', 'the answer of the peer arms', 'REARM');
    if (to === 'MIGRATED' && from === 'REARM') {
      throw invalid('pathMigState', 'the peer may be armed already', 'REARM');
    }
    if (to === 'REARM' && alternate === undefined) {
      throw new RoceError('ERR_ROCE_MISSING_ATTRIBUTE', 'altAhAttr: there is no alternate path to arm', {
        errno: 'EINVAL',
        attribute: 'altAhAttr',
        expected: 'altAhAttr, altPkeyIndex, altPortNum, altTimeout',
      });
    }
  }

  /** A modify call, which is checked: MIGRATED migrates where the connection is armed. */
  enter(to: MigState): void {
    if (to === 'REARM') {
      this.#state = 'REARM';
      this.#reported = false;
      this.#rearmPsn = this.#qp.expectedPsn;
      this.#lastPsn = this.#repeatedPsn = NONE;
      this.#qp.setMigReq(0);
    } else if (this.#state === 'ARMED') this.#migrate();
  }

  /** RESET. */
  reset(): void {
    this.#state = 'MIGRATED';
    this.#peerMigrated = this.#reported = false;
  }

  /** The retries are used up. @returns whether there is another path now */
  giveUp(): boolean {
    if (this.#state !== 'ARMED') return false;
    this.#migrate();
    return true;
  }

  /**
   * Whether a packet to the queue pair comes from its peer. If it does, its MigReq bit is obeyed, unless its PSN is one that the peer has
   * no reason to send: a late copy, or a forgery.
   */
  admit(packet: InboundPacket): boolean {
    const { attributes } = this.#qp;
    const { batch, index } = packet;
    const isMigrated = bthMigReq(packet.slab, packet.at) === 1;
    const isArmed = this.#state === 'ARMED';
    if (this.#state !== 'MIGRATED') this.#follow();
    if (comesBy(attributes, batch, index) && !(isArmed && isMigrated)) {
      if (isMigrated) this.#peerMigrated ||= this.#isTimely(packet);
      else if (this.#state === 'REARM' && this.#peerMigrated && this.#isTimely(packet)) this.#state = 'ARMED';
      return true;
    }
    if (this.#state === 'MIGRATED' || !isMigrated) return false;
    const { alternate } = attributes;
    const isByAlternate = alternate !== undefined && comesBy(alternate, batch, index);
    if (!this.#isTimely(packet) && !(isByAlternate && this.#isRepeated(packet))) return false;
    if (isByAlternate) {
      // In REARM, too: the peer was armed by our bit, and all that it sent before it migrated was lost.
      this.#migrate();
      this.#peerMigrated = true;
      return true;
    }
    if (isArmed && !this.#reported) {
      this.#reported = true;
      this.#qp.event({ type: 'PATH_MIG_ERR', qpn: this.#qp.qpn });
    }
    return false;
  }

  /** Keeps the PSN of the last REARM within half of their range, however many requests have come since. */
  #follow(): void {
    const { expectedPsn } = this.#qp;
    const behind = psnDiff(expectedPsn, this.#rearmPsn);
    // One READ takes up to half of the range.
    if (behind < 0 || behind > REARM_BEHIND) this.#rearmPsn = psnAdd(expectedPsn, -REARM_BEHIND);
  }

  /** Whether the peer may send the packet in its present state: of requests that were taken before the last REARM it had the answers. */
  #isTimely(packet: InboundPacket): boolean {
    if (!this.#qp.awaits(packet)) return false;
    return this.#state === 'MIGRATED' || !packet.info.isRequest || psnDiff(packet.psn, this.#rearmPsn) >= 0;
  }

  /**
   * Whether requests from before the last REARM come a second time: the answers to them were lost just then, and the peer goes on asking.
   * It goes back to the oldest one each time, however many it sends from there.
   */
  #isRepeated(packet: InboundPacket): boolean {
    const { psn } = packet;
    if (!this.#qp.awaits(packet)) return false;
    const goesBack = this.#lastPsn === NONE || psnDiff(psn, this.#lastPsn) <= 0;
    this.#lastPsn = psn;
    if (!goesBack) return false;
    if (psn === this.#repeatedPsn) return true;
    this.#repeatedPsn = psn;
    return false;
  }

  #migrate(): void {
    const qp = this.#qp;
    const path = qp.attributes.alternate;
    if (path === undefined) return;
    this.#state = 'MIGRATED';
    this.#peerMigrated = false;
    qp.setMigReq(BthFlags.MIG_REQ);
    qp.takePath(path);
    qp.event({ type: 'PATH_MIG', qpn: qp.qpn });
  }

  /** The broken promise, if there is one. */
  fault(): string | undefined {
    const { alternate, migReq } = this.#qp.attributes;
    if (this.#state !== 'MIGRATED' && alternate === undefined)
      return `${this.#state} without an alternate path`;
    const isRight = (migReq !== 0) === (this.#state === 'MIGRATED');
    return isRight ? undefined : `MigReq ${migReq} in ${this.#state}`;
  }
}
