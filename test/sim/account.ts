/**
 * The counts that two devices must have, derived from nothing but the packets that were seen to leave and to arrive, and from when receives were posted. One queue pair on each side; A requests, B answers. The way back loses nothing, so that
 * what A takes from an answer follows from the answer alone.
 */
import type { TracedPacket } from '@node-roce/sim';
import { QP_COUNTER_NAMES } from '@node-roce/transport';
import {
  AethKind,
  aethKind,
  aethSyndrome,
  bthOpcode,
  bthPsn,
  gidEquals,
  NakCode,
  type OpcodeInfo,
  opcodeInfo,
  psnAdd,
  psnDiff,
  rethLength,
} from '@node-roce/wire';

export interface Facts {
  trace: readonly TracedPacket[];
  gidA: Uint8Array;
  /** First PSN of A. */
  psn: number;
  pathMtu: number;
  /** Receives that B posted: how many, and how much of the trace there was by then. */
  posted: readonly { at: number; count: number }[];
}

export type Counts = Record<string, number>;

/** All zero, except the given ones. */
export function counts(told: Counts = {}): Counts {
  const zeros = Object.fromEntries(QP_COUNTER_NAMES.map((name) => [name, 0]));
  return { ...zeros, ...told };
}

/** A packet as the account reads it. */
interface Seen {
  row: OpcodeInfo;
  psn: number;
  /** PSNs that it takes. */
  span: number;
  syndrome: number;
}

function read({ bytes }: TracedPacket, pathMtu: number): Seen {
  const row = opcodeInfo(bthOpcode(bytes, 0))!;
  const { reth, aeth } = row.offsets;
  const span = row.isReadRequest ? Math.max(1, Math.ceil(rethLength(bytes, reth) / pathMtu)) : 1;
  return { row, psn: bthPsn(bytes, 0), span, syndrome: aeth < 0 ? 0 : aethSyndrome(bytes, aeth) };
}

function isRnrNak({ row, syndrome }: Seen): boolean {
  return row.isResponse && row.offsets.aeth >= 0 && aethKind(syndrome) === AethKind.RNR_NAK;
}

/** The requester, as far as packets show. */
class RequesterAccount {
  readonly counts = counts();
  stale = 0;
  arrived = 0;
  corrupt = 0;
  #next: number;
  #unacked: number;
  /** The PSN that it was sent back to, until it has sent something. */
  #backTo = -1;

  constructor(psn: number) {
    this.#next = this.#unacked = psn;
  }

  sent({ psn, span }: Seen): void {
    this.counts.sentPackets++;
    this.#backTo = -1;
    const next = psnAdd(psn, span);
    if (psnDiff(next, this.#next) > 0) this.#next = next;
    else this.counts.retransmittedPackets++;
  }

  answered({ row, psn, syndrome }: Seen): void {
    this.counts.receivedPackets++;
    if (psnDiff(psn, this.#next) >= 0 || psnDiff(psn, this.#unacked) < 0) {
      this.stale++;
      return;
    }
    const kind = row.isResponse && row.offsets.aeth >= 0 ? aethKind(syndrome) : AethKind.ACK;
    this.#unacked = kind === AethKind.ACK ? psnAdd(psn, 1) : psn;
    if (kind === AethKind.RNR_NAK) {
      this.counts.receivedRnrErr++;
      this.#backTo = psn;
    } else if (syndrome === NakCode.PSN_SEQUENCE_ERROR && this.#backTo !== psn) {
      this.counts.receivedSeqErr++;
      this.#backTo = psn;
    }
  }
}

/** The responder of RC, as far as packets show. */
class ResponderAccount {
  readonly counts = counts();
  arrived = 0;
  corrupt = 0;
  receives = 0;
  /** Requests that found no receive. */
  rnrNaksDue = 0;
  #expected: number;
  #receiving = false;

  constructor(psn: number) {
    this.#expected = psn;
  }

  asked({ row, psn, span }: Seen): void {
    const { counts } = this;
    counts.receivedPackets++;
    const ahead = psnDiff(psn, this.#expected);
    if (ahead > 0) counts.outOfSeqRequest++;
    if (ahead < 0) counts.duplicateRequest++;
    if (ahead !== 0) return;
    const takes = (row.isSend && row.first) || (row.isWrite && row.hasImmediate);
    if (takes && this.receives === 0) {
      this.rnrNaksDue++;
      return;
    }
    if (takes) this.receives--;
    this.#expected = psnAdd(psn, span);
    this.#receiving = row.isSend || row.hasImmediate;
    if (row.isWrite && row.first) counts.writeRequests++;
    if (row.isReadRequest) counts.readRequests++;
    if (row.isAtomic) counts.atomicRequests++;
    if (!row.last) return;
    counts.receivedMessages++;
    if (this.#receiving) counts.completedReceives++;
  }
}

/** The receiver of UC: a message goes on or is lost. */
class UnreliableAccount {
  readonly counts = counts();
  arrived = 0;
  corrupt = 0;
  receives = 0;
  #expected = -1;
  #inside: 'none' | 'send' | 'write' = 'none';

  asked({ row, psn }: Seen): void {
    const { counts } = this;
    counts.receivedPackets++;
    const kind = row.isSend ? 'send' : 'write';
    const follows = !row.first && this.#inside === kind && psn === this.#expected;
    if (!follows && this.#inside !== 'none') this.#lose();
    if (!row.first && !follows) {
      counts.droppedPackets++;
      return;
    }
    this.#expected = psnAdd(psn, 1);
    const takes = (row.isSend && row.first) || (row.isWrite && row.hasImmediate);
    if (takes && this.receives === 0) {
      counts.outOfBuffer++;
      if (this.#inside !== 'none') this.#lose();
      return;
    }
    if (row.isWrite && row.first) counts.writeRequests++;
    this.#inside = row.last ? 'none' : kind;
    if (!row.last) return;
    counts.receivedMessages++;
    if (!row.isSend && !row.hasImmediate) return;
    counts.completedReceives++;
    this.receives--;
  }

  #lose(): void {
    this.counts.droppedMessages++;
    this.#inside = 'none';
  }
}

export interface Account {
  a: Counts;
  b: Counts;
}

/** Counts of both adapters that follow from the packets seen; all others are zero. */
export function accountOf(facts: Facts, service: 'RC' | 'UC'): Account {
  const { trace, gidA, psn, pathMtu, posted } = facts;
  const a = new RequesterAccount(psn);
  const b = service === 'RC' ? new ResponderAccount(psn) : new UnreliableAccount();
  const waiting = [...posted];
  /** Times at which something reached A, and at which it repeated something because time had passed. */
  const reached = new Set<number>();
  const repeated = { probe: new Set<number>(), timeout: new Set<number>() };
  for (const [i, packet] of trace.entries()) {
    while (waiting.length > 0 && waiting[0].at <= i) b.receives += waiting.shift()!.count;
    const fromA = gidEquals(packet.source, gidA);
    if (packet.event === 'sent') {
      if (fromA) a.sent(read(packet, pathMtu));
      else {
        b.counts.sentPackets++;
        // Copies of a request that arrive together draw one NAK: it is counted when it leaves.
        if (b instanceof ResponderAccount && isRnrNak(read(packet, pathMtu)) && b.rnrNaksDue > 0) {
          b.counts.sentRnrErr++;
        }
      }
      const cause = packet.retransmission;
      if (fromA && (cause === 'probe' || cause === 'timeout')) repeated[cause].add(packet.time);
      continue;
    }
    const side = fromA ? b : a;
    side.arrived++;
    if (!fromA) reached.add(packet.time);
    if (packet.corrupt) side.corrupt++;
    else if (fromA) b.asked(read(packet, pathMtu));
    else a.answered(read(packet, pathMtu));
  }
  // A timer goes off by itself: what else is repeated then follows upon answers.
  const [probes, timeouts] = [repeated.probe, repeated.timeout].map(
    (times) => [...times].filter((time) => !reached.has(time)).length,
  );
  const { receivedSeqErr } = a.counts;
  const retries = receivedSeqErr + timeouts;
  Object.assign(a.counts, { probes, timeouts, retries, sequenceNakRetries: receivedSeqErr });
  return { a: adapterCounts(a, a.stale), b: adapterCounts(b, 0) };
}

function adapterCounts(
  side: { counts: Counts; arrived: number; corrupt: number },
  staleResponses: number,
): Counts {
  return adapterOf(side.counts, {
    receivedPackets: side.arrived,
    icrcErrors: side.corrupt,
    staleResponses,
  });
}

/** The counters of an adapter with this one queue pair; `told` belongs to the adapter alone. */
export function adapterOf(qp: Counts, told: Counts = {}): Counts {
  const own = { icrcErrors: 0, icrcOutOfWindow: 0, malformed: 0, unknownQp: 0, wrongState: 0, bugs: 0 };
  return {
    ...qp,
    ...own,
    wrongSource: 0,
    badPkey: 0,
    staleResponses: 0,
    acceptedPackets: qp.receivedPackets,
    ...told,
  };
}
