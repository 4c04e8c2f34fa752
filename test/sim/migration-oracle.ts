/**
 * Judges path migration (IBTA vol 1 §17.2.8) by events that can be seen from outside: packets on each path, the program's calls, and events.
 * It follows the rules of docs/rules.md (P1 to P13) and the bounds of the ACK timeout (§9.7.6.1.3), and knows nothing of the engine.
 *
 * Of each packet that a side sends:
 * - MigReq is 1 in MIGRATED, and 0 in REARM and ARMED (P1, P2).
 * - It takes the primary path, between the two GIDs of that path, with the connection's P_Key and destination (P7).
 * - A request has the next PSN, or one that is not acknowledged yet: migration skips none and numbers none anew (P13). A PSN
 *   that is retransmitted has the same opcode and bytes, on whichever path.
 * - A response has the PSN of a request that arrived.
 *
 * Of each packet that arrives:
 * - MigReq 0 by the primary path arms a side in REARM that has seen 1 since it was in MIGRATED (P3, P4).
 * - MigReq 1 by the alternate path takes a side in REARM or ARMED along, and the packet is taken (P10).
 * - MigReq 1 by another path in ARMED is dropped, with PATH_MIG_ERR once until the next REARM (P11).
 * - Other packets that come by another path than the primary one are dropped (P12).
 * - All this holds of packets that the peer may send now (P20). Where that depends on what a side has kept or has heard, either is
 *   right, and the next event or query shows which.
 *
 * Of each event:
 * - PATH_MIG comes once for each migration, before the next packet: at the program's call (P9), with the peer's bit (P10), or
 *   in ARMED where the retries are used up (P7), and then only if they are: a packet that is not acknowledged was sent
 *   `retryCnt` + 1 times on this path, and so many timeouts have passed since anything was acknowledged.
 * - The same holds of the path after it: retries and timeout are its own (P8).
 */
import {
  AethKind,
  aethKind,
  aethSyndrome,
  bthDestQp,
  bthMigReq,
  bthOpcode,
  bthPkey,
  bthPsn,
  type OpcodeInfo,
  opcodeInfo,
  psnAdd,
  psnDiff,
  rethLength,
} from '@node-roce/wire';

/** A path by the index of its GIDs, which is the same on both sides. */
export interface Path {
  index: number;
  /** Exponent of the local ACK timeout. */
  timeout: number;
}

export type Cause = 'retries' | 'modify' | 'bit';

export interface JudgedSide {
  name: string;
  qpn: number;
  peerQpn: number;
  sqPsn: number;
  rqPsn: number;
  pathMtu: number;
  retryCnt: number;
  path: Path;
}

/** Times of the ACK timeout that the time until it fires may be: one to four (§9.7.6.1.3). */
const MOST_TIMEOUTS = 4;

/** Bytes of the BTH. */
const BTH = 12;

/** SENDs and WRITEs that may be repeated, by their PSNs before the expected one. */
const REPEATED_MOST = 1024;

/** Whether a packet is one that the peer may send now. */
type Timely = 'yes' | 'no' | 'perhaps';

/** The judge of one side. */
export class MigrationOracle {
  readonly causes: Record<Cause, number> = { retries: 0, modify: 0, bit: 0 };
  /** PATH_MIG_ERR events. */
  errors = 0;
  state: 'MIGRATED' | 'REARM' | 'ARMED' = 'MIGRATED';
  /** The peer's MigReq was 1 since this side was in MIGRATED. */
  hasSeenOne = false;
  primary: Path;
  alternate: Path | undefined;
  readonly requests: Requests;
  readonly #side: JudgedSide;
  /** End of the requests that arrived. */
  #asked: number;
  /** Requests that arrived. */
  readonly #arrived: Arrived;
  /** Expected PSNs that there may have been at the last REARM. */
  #rearmed: { least: number; most: number };
  /** Results that packets may have had which were perhaps timely. */
  readonly #possible = new Set<'ARMED' | 'PATH_MIG' | 'PATH_MIG_ERR'>();
  #owed: ('PATH_MIG' | 'PATH_MIG_ERR')[] = [];
  #hasErred = false;

  constructor(side: JudgedSide) {
    this.#side = side;
    this.primary = side.path;
    this.#asked = side.rqPsn;
    this.#arrived = new Arrived(side.rqPsn);
    this.#rearmed = { least: side.rqPsn, most: side.rqPsn };
    this.requests = new Requests(side);
  }

  /** Migrations so far. */
  get migrations(): number {
    const { retries, modify, bit } = this.causes;
    return retries + modify + bit;
  }

  /** The program loads an alternate path and sets REARM. */
  rearm(alternate: Path): void {
    this.alternate = alternate;
    this.state = 'REARM';
    this.#hasErred = false;
    const { least, most } = this.#arrived;
    this.#rearmed = { least, most };
    this.#possible.clear();
  }

  /** A query shows ARMED: where it may be so by what arrived, it is so from here on. */
  isArmed(): void {
    if (this.#possible.has('ARMED') && this.state === 'REARM') this.state = 'ARMED';
  }

  /** The program sets MIGRATED. */
  migrate(now: number): void {
    this.#check(this.state === 'ARMED', now, `MIGRATED was set in ${this.state}`);
    this.#goOver('modify', now);
    this.#owed.push('PATH_MIG');
  }

  sent(packet: Uint8Array, gids: { own: number; peer: number }, now: number): void {
    const { name: _, qpn: __, peerQpn, pathMtu } = this.#side;
    this.settle(now);
    const info = opcodeInfo(bthOpcode(packet, 0))!;
    const psn = bthPsn(packet, 0);
    const bit = this.state === 'MIGRATED' ? 1 : 0;
    this.#check(bthMigReq(packet, 0) === bit, now, `MigReq is not ${bit} in ${this.state}, PSN ${psn}`);
    const { index } = this.primary;
    this.#check(
      gids.own === index && gids.peer === index,
      now,
      `sent from GID ${gids.own} to ${gids.peer}, and the primary path is ${index}`,
    );
    this.#check(bthDestQp(packet, 0) === peerQpn, now, `sent to queue pair ${bthDestQp(packet, 0)}`);
    this.#check(bthPkey(packet, 0) === 0xffff, now, `P_Key ${bthPkey(packet, 0).toString(16)}`);
    if (info.isRequest) {
      const fault = this.requests.sent(packet, info, psn, pathMtu, now);
      this.#check(fault === undefined, now, fault!);
    } else {
      this.#check(psnDiff(psn, this.#asked) < 0, now, `answers PSN ${psn}, which nobody asked for`);
      const { aeth, atomicAckEth } = info.offsets;
      const isNak = !info.isReadResponse && atomicAckEth < 0 && isNakOf(packet, aeth);
      this.#arrived.answered(isNak ? psn : psnAdd(psn, 1));
    }
  }

  arrived(packet: Uint8Array, gids: { own: number; peer: number }, now: number): void {
    this.#check(gids.own === gids.peer, now, `arrived from GID ${gids.peer} at ${gids.own}`);
    const info = opcodeInfo(bthOpcode(packet, 0))!;
    const psn = bthPsn(packet, 0);
    const timely = this.#timely(info, psn);
    if (!this.#takes(bthMigReq(packet, 0) === 1, gids.own, timely, now)) return;
    if (info.isRequest) {
      const end = psnAdd(psn, spanOf(packet, info, this.#side.pathMtu));
      if (psnDiff(end, this.#asked) > 0) this.#asked = end;
      this.#arrived.add(psn, end);
    } else {
      this.requests.answered(packet, info, psn, now);
    }
  }

  /** Whether the peer may send a packet now. */
  #timely({ isRequest, isSend, isWrite }: OpcodeInfo, psn: number): Timely {
    if (!isRequest) return this.requests.isOut(psn);
    const { least, most } = this.#arrived;
    if (psnDiff(psn, most) > 0) return 'no';
    if (psnDiff(psn, least) >= 0) return least === most ? 'yes' : 'perhaps';
    if (!isSend && !isWrite) return 'perhaps';
    const isRecent = this.state === 'MIGRATED' || psnDiff(psn, this.#rearmed.most) >= 0;
    return isRecent && psnDiff(most, psn) <= REPEATED_MOST ? 'yes' : 'perhaps';
  }

  /** Whether a packet is taken, as far as that is known, and the effect of its MigReq. */
  #takes(isOne: boolean, path: number, timely: Timely, now: number): boolean {
    const isPrimary = path === this.primary.index;
    const isByAlternate = isOne && path === this.alternate?.index;
    const isWrong = isOne && this.state === 'ARMED';
    if (timely === 'perhaps') {
      if (isByAlternate) this.#possible.add('PATH_MIG');
      else if (isWrong) this.#possible.add('PATH_MIG_ERR');
      else if (!isOne && isPrimary && this.hasSeenOne) this.#possible.add('ARMED');
    }
    if (timely !== 'yes') return (isPrimary && !isWrong) || (isByAlternate && timely === 'perhaps');
    if (isByAlternate) {
      this.#goOver('bit', now);
      this.#owed.push('PATH_MIG');
      this.hasSeenOne = true;
      return true;
    }
    if (isWrong) {
      if (!this.#hasErred) this.#owed.push('PATH_MIG_ERR');
      this.#hasErred = true;
      return false;
    }
    if (!isPrimary) return false;
    if (isOne) this.hasSeenOne = true;
    else if (this.state === 'REARM' && this.hasSeenOne) this.state = 'ARMED';
    return true;
  }

  event(type: string, now: number): void {
    if (type !== 'PATH_MIG' && type !== 'PATH_MIG_ERR') return;
    if (type === 'PATH_MIG_ERR') this.errors++;
    const owed = this.#owed.shift();
    if (owed === undefined && this.#possible.has(type)) {
      if (type === 'PATH_MIG') this.#goOver('bit', now);
      else this.#hasErred = true;
      return;
    }
    if (owed !== undefined || type !== 'PATH_MIG') {
      this.#check(owed === type, now, `${type}, where ${owed ?? 'nothing'} was due`);
      return;
    }
    this.#check(this.state === 'ARMED', now, `PATH_MIG in ${this.state}`);
    this.usedUp(now);
    this.#goOver('retries', now);
  }

  /** The connection migrates or ends: the retries of the primary path have to be used up. */
  usedUp(now: number): void {
    const { retryCnt } = this.#side;
    const { tries, naks, heard, acknowledged } = this.requests;
    this.#check(tries > retryCnt, now, `gives its path up after ${tries} tries of ${retryCnt + 1}`);
    const timeout = 4.096 * 2 ** this.primary.timeout;
    const [least, most] = [retryCnt + 1 - naks, (retryCnt + 1) * MOST_TIMEOUTS];
    const [long, short] = [acknowledged, heard].map((since) => (now - since) / timeout);
    this.#check(
      long >= least && short <= most,
      now,
      `gives its path up after ${short} to ${long} timeouts, and ${least} to ${most} are right`,
    );
  }

  /** Every event that was due has come. */
  settle(now: number): void {
    this.#check(this.#owed.length === 0, now, `${this.#owed[0]} did not come`);
  }

  #goOver(cause: Cause, now: number): void {
    this.causes[cause]++;
    this.primary = this.alternate!;
    this.alternate = undefined;
    this.state = 'MIGRATED';
    this.hasSeenOne = false;
    this.#possible.clear();
    this.requests.anew(now);
  }

  #check(holds: boolean, now: number, fault: string): void {
    if (!holds) throw new Error(`${this.#side.name} at ${now} µs: ${fault}`);
  }
}

/**
 * The requests of a side: which PSNs are out, and how often they were tried on this path. A requester may keep answers that come before an
 * earlier one, or not: what is acknowledged for certain are answers in order, and requests that have completed.
 */
class Requests {
  /** NAKs since anything was acknowledged: each takes a retry. */
  naks = 0;
  /** When anything was acknowledged for certain, or asked for after a time of rest, or the path changed. */
  acknowledged = 0;
  /** The same, or when any answer came to outstanding requests. */
  heard = 0;
  #next: number;
  /** The oldest PSN that can be out. */
  #oldest: number;
  /** READs and atomics out, by the PSNs that are still to be answered: an ACK behind them does not stand for their answers. */
  readonly #reads: { psn: number; end: number }[] = [];
  /** Ends of the messages that have not completed. */
  readonly #ends: number[] = [];
  /** Packets out. */
  readonly #bytes = new Map<number, Uint8Array>();
  /** PSNs of packets that were sent on this path and can be out, once for each time. */
  #sent: { psn: number; end: number }[] = [];

  constructor({ sqPsn }: JudgedSide) {
    this.#next = this.#oldest = sqPsn;
  }

  /** The path changed: its retries are all there. */
  anew(now: number): void {
    this.#sent = [];
    this.#progress(now);
  }

  /** Whether a response is to a packet that is out. */
  isOut(psn: number): Timely {
    if (psnDiff(psn, this.#next) >= 0 || psnDiff(psn, this.#oldest) < 0) return 'no';
    return psn === psnAdd(this.#next, -1) ? 'yes' : 'perhaps';
  }

  /** How often the packet out that was tried most was sent on this path. */
  get tries(): number {
    const covering = (psn: number) =>
      this.#sent.filter((sent) => psnDiff(psn, sent.psn) >= 0 && psnDiff(psn, sent.end) < 0).length;
    return Math.max(0, ...this.#sent.map(({ psn }) => covering(psn)));
  }

  /** @returns what is wrong with it */
  sent(packet: Uint8Array, info: OpcodeInfo, psn: number, pathMtu: number, now: number): string | undefined {
    const end = psnAdd(psn, spanOf(packet, info, pathMtu));
    if (psnDiff(psn, this.#next) > 0) return `PSN ${psn} follows ${this.#next}: some are missing`;
    if (psnDiff(psn, this.#oldest) < 0)
      return `PSN ${psn} again, and ${this.#oldest} is the oldest that is out`;
    if (this.#oldest === this.#next) this.#progress(now);
    if (psn === this.#next) {
      if (info.isReadRequest || info.isAtomic) this.#reads.push({ psn, end });
      if (info.last) this.#ends.push(end);
      this.#next = end;
      this.#bytes.set(psn, packet);
    } else if (psnDiff(end, this.#next) > 0) {
      return `PSN ${psn} asks for more than before`;
    } else if (!info.isReadRequest && !isSame(this.#bytes.get(psn), packet)) {
      return `PSN ${psn} is another packet than before`;
    }
    this.#sent.push({ psn, end });
    return undefined;
  }

  /** The oldest message completed. */
  completed(now: number): void {
    this.#acknowledge(this.#ends.shift()!, now);
  }

  answered(packet: Uint8Array, { offsets, isReadResponse }: OpcodeInfo, psn: number, now: number): void {
    if (psnDiff(psn, this.#oldest) < 0 || psnDiff(psn, this.#next) >= 0) return;
    this.heard = now;
    const isAcknowledge = offsets.aeth >= 0 && offsets.atomicAckEth < 0 && !isReadResponse;
    const isNak = isAcknowledge && isNakOf(packet, offsets.aeth);
    const [read] = this.#reads;
    if (!isAcknowledge && read?.psn === psn) read.psn = psnAdd(psn, 1);
    const acked = isNak ? psn : psnAdd(psn, 1);
    const isBehind = read !== undefined && psnDiff(acked, read.psn) > 0;
    this.#acknowledge(isBehind ? read.psn : acked, now);
    if (isNak) this.naks++;
  }

  #acknowledge(end: number, now: number): void {
    const reads = this.#reads;
    while (reads.length > 0 && (reads[0].psn === reads[0].end || psnDiff(end, reads[0].end) >= 0))
      reads.shift();
    if (psnDiff(end, this.#oldest) <= 0) return;
    for (; this.#oldest !== end; this.#oldest = psnAdd(this.#oldest, 1)) this.#bytes.delete(this.#oldest);
    this.#sent = this.#sent.filter((sent) => psnDiff(sent.end, end) > 0);
    this.#progress(now);
  }

  #progress(now: number): void {
    this.naks = 0;
    this.acknowledged = this.heard = now;
  }
}

/** The requests that arrived: the expected PSN of a side that keeps none of those that came early, and of one that keeps all. */
class Arrived {
  least: number;
  most: number;
  readonly #early = new Map<number, number>();

  constructor(psn: number) {
    this.least = this.most = psn;
  }

  add(psn: number, end: number): void {
    if (psn === this.least) this.least = end;
    if (psnDiff(psn, this.most) > 0) this.#early.set(psn, end);
    else if (psnDiff(end, this.most) > 0) this.most = end;
    for (let next = this.#early.get(this.most); next !== undefined; next = this.#early.get(this.most)) {
      this.#early.delete(this.most);
      this.most = next;
    }
  }

  /** The side has answered all before this PSN, or a READ up to there: all before its request. */
  answered(end: number): void {
    if (psnDiff(end, this.least) > 0) this.least = end;
  }
}

function isNakOf(packet: Uint8Array, aeth: number): boolean {
  return aethKind(aethSyndrome(packet, aeth)) !== AethKind.ACK;
}

function spanOf(packet: Uint8Array, { isReadRequest, offsets }: OpcodeInfo, pathMtu: number): number {
  return isReadRequest ? Math.max(1, Math.ceil(rethLength(packet, offsets.reth) / pathMtu)) : 1;
}

/** The same opcode and bytes behind the BTH: MigReq and AckReq may differ. */
function isSame(a: Uint8Array | undefined, b: Uint8Array): boolean {
  return a?.[0] === b[0] && Buffer.compare(a.subarray(BTH), b.subarray(BTH)) === 0;
}
