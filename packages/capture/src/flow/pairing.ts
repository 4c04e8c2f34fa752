/**
 * Which two directions are one connection (docs/capture.md, "How directions are paired").
 *
 * The connection manager's messages say it. Without them: responses carry the PSNs of the requests that they
 * answer, and their kind: so each is held against what was sent in the opposite direction between the same two addresses.
 * Who fits time after time, while nobody else does, is it. UDP source ports that follow from both QPNs decide
 * between several.
 */
import { sourcePortForConnection } from '@node-roce/wire';
import type { Pairing } from './analysis.ts';
import { Candidates } from './candidates.ts';
import type { CmConnection, CmEnd } from './cm.ts';
import type { Half } from './half.ts';
import type { Evidence, KeptResponse } from './kept-response.ts';
import { applyResponse } from './responses.ts';

/** Responses that have to fit; more where the directions have different UDP source ports. */
const ENOUGH = 2;
const ENOUGH_ALONE = 6;
/** Certain pairs whose ports follow from the QPNs, until those whose ports do not are no pairs. */
const PORTS_TELL = 4;
/** Where several fit, the best of them by so many responses is likely. */
const LEAD = 3;
/** One response in so many may contradict: a capture misses packets, and may show an answer before its request. */
const CONTRADICTIONS = 8;
/** Responses kept until it is known whose they are. */
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
  readonly #candidates = new Candidates();
  /** Directions that ever were, by the two addresses. */
  readonly #entered = new Map<number, number>();
  /** Ends of connections by address and QPN, from the connection manager. */
  readonly #cm = new Map<string, CmPeer>();
  /** Certain pairs whose ports follow from the QPNs, and those whose ports do not. */
  #derived = 0;
  #other = 0;
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
    this.#entered.set(key, (this.#entered.get(key) ?? 0) + 1);
    this.#candidates.enter(half);
    this.#byCm(half);
    if (half.peer === undefined && half.sourceQp >= 0) this.#byDatagramNumbers(half);
  }

  /** A request in a direction without partner. */
  sent(half: Half, psn: number): void {
    this.#candidates.sent(half, psn);
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
    if (half.kept.length > MOST_KEPT) half.kept.shift();
    if (this.#cm.has(endKey({ address: half.destination, qpn: half.destQp, psn: 0 }))) return;
    const evidence = this.#evidenceOf(half);
    for (const [other, found] of evidence) {
      if (other.peer === undefined) weigh(found, answer(other, response));
    }
    for (const other of this.#candidates.withPsn(half, response.psn)) {
      const verdict = evidence.has(other) || !this.#isPossible(half, other) ? 0 : answer(other, response);
      if (verdict === 0) continue;
      const found = { fits: 0, misfits: 0 };
      weigh(found, verdict);
      evidence.set(other, found);
      other.suspects ??= new Set();
      other.suspects.add(half);
    }
    this.#decide(half, false);
  }

  /** The last chance of a direction to find its partner: before its messages are handed out, and at the end. */
  settle(half: Half): void {
    if (half.peer === undefined) this.#decide(half, true);
    if (half.peer === undefined) this.#byElimination(half);
  }

  #evidenceOf(half: Half): Map<Half, Evidence> {
    half.evidence ??= new Map();
    return half.evidence;
  }

  /** Whether the other direction is of the same service, and nothing names other queue pairs. */
  #isPossible(half: Half, other: Half): boolean {
    const sameService = half.transport === other.transport || !half.transport || !other.transport;
    return other !== half && sameService && !this.#isForeign(half, other);
  }

  /** The connection manager or the datagrams name other queue pairs. */
  #isForeign(half: Half, other: Half): boolean {
    if (half.sourceQp >= 0 && half.sourceQp !== other.destQp) return true;
    return other.sourceQp >= 0 && other.sourceQp !== half.destQp;
  }

  /** @param now or never: several that fit are weighed against each other */
  #decide(half: Half, now: boolean): void {
    let best: Half | undefined;
    let most = 0;
    let second = 0;
    let fitting = 0;
    for (const other of this.#fitting(half)) {
      fitting++;
      const { fits } = evidenceBetween(half, other);
      // A guess is no elimination: one that was paired as likely may still be the one.
      if (other.peer !== undefined) {
        if (fits > second) second = fits;
      } else if (isDerivedPort(half, other)) {
        this.#pair(
          half,
          other,
          'certain',
          `${count(fits)} PSNs of its requests, and the UDP ports follow from both QPNs`,
        );
        return;
      } else if (fits > most) {
        [best, most, second] = [other, fits, Math.max(most, second)];
      } else if (fits > second) {
        second = fits;
      }
    }
    if (best === undefined) return;
    const enough = hasCommonPort(half, best) ? ENOUGH : ENOUGH_ALONE;
    if (fitting === 1 && (most >= enough || now || this.#isOnly(half, best))) {
      this.#pair(
        half,
        best,
        most >= enough || this.#isOnly(half, best) ? 'certain' : 'likely',
        `${count(most)} PSNs of its requests, and of no other queue pair's between the two addresses`,
      );
    } else if (now && most - second >= LEAD) {
      const reason = `${count(most)} PSNs of its requests; those of ${fitting - 1} other queue pairs between the two addresses fit too, less often`;
      this.#pair(half, best, 'likely', reason);
    }
  }

  /** Directions that the responses of both fit, or have fitted before they were paired as likely. */
  *#fitting(half: Half): Generator<Half> {
    const seen = new Set([...(half.evidence?.keys() ?? []), ...(half.suspects ?? [])]);
    for (const other of seen) {
      if (other.peer !== undefined && other.link.pairing !== 'likely') continue;
      if (!this.#isPossible(half, other)) continue;
      const { fits, misfits } = evidenceBetween(half, other);
      if (this.#portsTell && !isDerivedPort(half, other)) continue;
      if (fits > 0 && misfits * CONTRADICTIONS <= fits) yield other;
    }
  }

  /** In this capture all ports follow from QPNs, but for a few. */
  get #portsTell(): boolean {
    return this.#derived >= PORTS_TELL && this.#other * 4 <= this.#derived;
  }

  /** There is no other direction between the two addresses, and was none. */
  #isOnly(half: Half, other: Half): boolean {
    const entered = (h: Half) => this.#entered.get(addressKey(h.source, h.destination)) ?? 0;
    return entered(half) === 1 && entered(other) === 1;
  }

  /** PSNs say nothing (UC, or no responses in the capture): ports, or that there is no other. */
  #byElimination(half: Half): void {
    const fits = (other: Half) => this.#isPossible(half, other) && !contradicts(half, other);
    const byPort = [...this.#candidates.withPort(half)].filter(
      (other) => isDerivedPort(half, other) && fits(other),
    );
    if (byPort.length === 1) {
      const reason = 'both UDP source ports are the one that follows from the two QPNs';
      this.#pair(half, byPort[0]!, 'likely', reason);
      return;
    }
    const [only] = this.#single.get(addressKey(half.destination, half.source)) ?? [];
    if (only !== undefined && this.#isOnly(half, only) && fits(only)) {
      this.#pair(half, only, 'likely', 'the only queue pairs between the two addresses');
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
      this.#candidates.leave(one);
      if (pairing !== 'likely') {
        one.evidence = undefined;
        one.suspects = undefined;
      }
    }
    if (pairing === 'certain' && isDerivedPort(half, other)) this.#derived++;
    else if (pairing === 'certain') this.#other++;
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

const answer = (other: Half, response: KeptResponse): number => other.requester?.answersTo(response) ?? 0;

function weigh(evidence: Evidence, verdict: number): void {
  if (verdict > 0) evidence.fits++;
  else if (verdict < 0) evidence.misfits++;
}

/** A response in one can't be of the other's requests. */
function contradicts(half: Half, other: Half): boolean {
  if (evidenceBetween(half, other).misfits > 0) return true;
  const isNone = (of: Half) => (response: KeptResponse) => answer(of, response) < 0;
  return half.kept.some(isNone(other)) || other.kept.some(isNone(half));
}

/** What the responses of each say of the other's requests, together. */
function evidenceBetween(half: Half, other: Half): Evidence {
  const [own, theirs] = [half.evidence?.get(other), other.evidence?.get(half)];
  return {
    fits: (own?.fits ?? 0) + (theirs?.fits ?? 0),
    misfits: (own?.misfits ?? 0) + (theirs?.misfits ?? 0),
  };
}

const count = (responses: number): string =>
  responses === 1 ? '1 response carries' : `${responses} responses carry`;
