/**
 * Which two directions are one connection (docs/capture.md, "How directions are paired").
 *
 * The connection manager's messages say it. Without them: responses carry the PSNs of the requests that they
 * answer, so each response to requests not yet known is held against everything that was sent in the opposite
 * direction between the same two addresses. Who fits time after time, and better than all others, is it.
 */
import { sourcePortForConnection } from '@node-roce/wire';
import type { Pairing } from './analysis.ts';
import type { CmConnection, CmEnd } from './cm.ts';
import type { Half } from './half.ts';
import { applyResponse, type KeptResponse } from './responses.ts';

/** A response for a PSN that a requester did not send counts so much against it. */
const MISS = 2;
/** Responses that have to fit, and by how many the best has to lead where several fit. */
const ENOUGH = 2;
const LEAD = 3;
/** Responses kept while it is not known whose they are; then the best is taken. */
const MOST_KEPT = 64;
const MOST_CM = 100_000;

interface CmPeer {
  own: CmEnd;
  other: CmEnd;
  connection: CmConnection;
}

export class Pairer {
  /** Directions without a partner, by the two addresses. */
  readonly #single = new Map<number, Set<Half>>();
  /** Ends of connections by address and QPN, from the connection manager. */
  readonly #cm = new Map<string, CmPeer>();
  readonly #join: (half: Half, other: Half, pairing: Pairing, reason: string) => void;

  constructor(join: (half: Half, other: Half, pairing: Pairing, reason: string) => void) {
    this.#join = join;
  }

  /** A new direction. */
  enter(half: Half): void {
    const key = addressKey(half.source, half.destination);
    const halves = this.#single.get(key);
    if (halves === undefined) this.#single.set(key, new Set([half]));
    else halves.add(half);
    this.#byCm(half);
    if (half.peer === undefined && half.sourceQp >= 0) this.#byDatagramNumbers(half);
  }

  /** What the connection manager says; for directions that were seen before too. */
  known(connection: CmConnection): void {
    const { active, passive } = connection;
    if (this.#cm.size >= MOST_CM) return;
    this.#cm.set(endKey(active), { own: active, other: passive, connection });
    this.#cm.set(endKey(passive), { own: passive, other: active, connection });
    for (const [from, to] of [
      [active, passive],
      [passive, active],
    ] as const) {
      for (const half of this.#single.get(addressKey(from.address, to.address)) ?? []) {
        if (half.destQp === to.qpn) this.#byCm(half);
      }
    }
  }

  /** A response in a direction without partner. */
  response(half: Half, response: KeptResponse): void {
    half.kept.push(response);
    if (this.#cm.has(endKey({ address: half.destination, qpn: half.destQp, psn: 0 }))) return;
    const candidates = this.#candidatesOf(half);
    for (const [other, score] of candidates) {
      if (other.peer !== undefined) candidates.delete(other);
      else candidates.set(other, score + (other.requester!.hasSent(response.psn) ? 1 : -MISS));
    }
    for (const other of this.#opposite(half)) {
      if (candidates.has(other) || other.requester === undefined) continue;
      if (other.requester.hasSent(response.psn)) candidates.set(other, 1);
    }
    this.#decide(half, half.kept.length >= MOST_KEPT);
    if (half.kept.length >= MOST_KEPT) half.kept.shift();
  }

  /** The last chance of a direction to find its partner: before its messages are handed out, and at the end. */
  settle(half: Half): void {
    if (half.peer !== undefined) return;
    if (half.kept.length > 0) this.#decide(half, true);
    if (half.peer !== undefined) return;
    const others = [...this.#opposite(half)];
    for (const other of others) {
      if (other.kept.length > 0 && other.candidates?.has(half)) this.#decide(other, true);
      if (half.peer !== undefined) return;
    }
    this.#byElimination(half, others);
  }

  #candidatesOf(half: Half): Map<Half, number> {
    half.candidates ??= new Map();
    return half.candidates;
  }

  /** Directions without partner that run against this one, of the same service. */
  *#opposite(half: Half): Generator<Half> {
    for (const other of this.#single.get(addressKey(half.destination, half.source)) ?? []) {
      const sameService = half.transport === other.transport || !half.transport || !other.transport;
      if (other !== half && sameService && !this.#isForeign(half, other)) yield other;
    }
  }

  /** The connection manager or the datagrams name other queue pairs. */
  #isForeign(half: Half, other: Half): boolean {
    if (half.sourceQp >= 0 && half.sourceQp !== other.destQp) return true;
    return other.sourceQp >= 0 && other.sourceQp !== half.destQp;
  }

  #decide(half: Half, now: boolean): void {
    let best: Half | undefined;
    let bestScore = 0;
    let second = 0;
    let fitting = 0;
    for (const [other, own] of this.#candidatesOf(half)) {
      const score = own + (other.candidates?.get(half) ?? 0) + (now && hasCommonPort(half, other) ? 0.5 : 0);
      if (other.peer !== undefined || score <= 0) continue;
      fitting++;
      if (score > bestScore) [best, bestScore, second] = [other, score, bestScore];
      else if (score > second) second = score;
    }
    if (best === undefined) return;
    const alone = fitting === 1 && (bestScore >= ENOUGH || this.#isOnly(half, best));
    const ahead = bestScore >= ENOUGH && bestScore - second >= LEAD;
    if (!alone && !ahead && !now) return;
    const certain = fitting === 1 || ahead;
    const responses = half.kept.length === 1 ? '1 response carries' : `${half.kept.length} responses carry`;
    const reason = certain
      ? `${responses} PSNs of its requests, and of no other queue pair's between the two addresses as well`
      : `${responses} PSNs that fit its requests best; those of ${fitting - 1} other queue pairs fit too`;
    this.#pair(half, best, certain ? 'certain' : 'likely', reason);
  }

  /** There are no other directions between the two addresses. */
  #isOnly(half: Half, other: Half): boolean {
    const count = (h: Half) => this.#single.get(addressKey(h.source, h.destination))?.size ?? 0;
    return count(half) === 1 && count(other) === 1;
  }

  /** PSNs say nothing (UC, or no responses in the capture): ports, or that there is no other. */
  #byElimination(half: Half, others: readonly Half[]): void {
    const possible = others.filter((other) => !contradicts(half, other));
    const byPort = possible.filter((other) => isDerivedPort(half, other));
    if (byPort.length === 1) {
      const reason = 'both UDP source ports are the one that follows from the two QPNs';
      this.#pair(half, byPort[0]!, 'likely', reason);
    } else if (possible.length === 1 && this.#isOnly(half, possible[0]!)) {
      this.#pair(half, possible[0]!, 'likely', 'the only queue pairs between the two addresses');
    }
  }

  #byCm(half: Half): void {
    const found = this.#cm.get(endKey({ address: half.destination, qpn: half.destQp, psn: 0 }));
    if (found === undefined || found.other.address !== half.source || half.transport === 'UD') return;
    const { connection } = found;
    half.sourceQp = found.other.qpn;
    half.cm = connection;
    for (const other of this.#single.get(addressKey(half.destination, half.source)) ?? []) {
      if (other.destQp !== found.other.qpn || other.transport === 'UD') continue;
      this.#pair(half, other, 'cm', `the connection manager's REQ and REP (frame ${connection.frame})`);
      return;
    }
    half.link.pairing = 'cm';
    half.link.pairingReason = `the connection manager's REQ and REP (frame ${connection.frame}); one direction only`;
  }

  #byDatagramNumbers(half: Half): void {
    for (const other of this.#single.get(addressKey(half.destination, half.source)) ?? []) {
      if (other.transport !== 'UD' || other.sourceQp !== half.destQp || other.destQp !== half.sourceQp)
        continue;
      this.#pair(half, other, 'certain', 'each datagram names both queue pairs');
      return;
    }
  }

  #pair(half: Half, other: Half, pairing: Pairing, reason: string): void {
    for (const one of [half, other]) {
      this.#single.get(addressKey(one.source, one.destination))?.delete(one);
      one.candidates = undefined;
    }
    this.#join(half, other, pairing, reason);
    for (const one of [half, other]) {
      const { kept } = one;
      one.kept = [];
      for (const response of kept) applyResponse(one, response);
    }
  }
}

const addressKey = (source: number, destination: number): number => source * 0x10000 + destination;
const endKey = ({ address, qpn }: CmEnd): string => `${address} ${qpn}`;

const hasCommonPort = (half: Half, other: Half): boolean =>
  half.sourcePort !== 0 && half.sourcePort === other.sourcePort;

/** rxe, ConnectX and node-roce derive the port from both QPNs where no flow label is set. */
const isDerivedPort = (half: Half, other: Half): boolean =>
  hasCommonPort(half, other) && half.sourcePort === sourcePortForConnection(0, half.destQp, other.destQp);

/** Responses of one were held against the requests of the other and did not fit. */
function contradicts(half: Half, other: Half): boolean {
  const misfit = (a: Half, b: Half) => a.kept.length > 0 && (a.candidates?.get(b) ?? 0) <= 0;
  return misfit(half, other) || misfit(other, half);
}
