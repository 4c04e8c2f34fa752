/**
 * Which two directions are one connection (docs/capture-causes.md, "How directions are paired").
 *
 * The connection manager's messages name both. Without them: responses carry the PSNs of the requests that they
 * answer, and their kind: so each is compared with the requests of the opposite direction between the same two addresses.
 * The direction that fits time after time, while no other one does, is the peer. UDP source ports that follow from both QPNs decide
 * between several.
 */
import { sourcePortForConnection } from '@node-roce/wire';
import type { Pairing } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { applyResponse } from '../track/responses.ts';
import { Candidates } from './candidates.ts';
import type { CmConnection, CmEnd } from './cm.ts';
import type { Evidence, PendingResponse } from './partner-search.ts';

/** Responses that have to fit; more where the directions have different UDP source ports. */
const MIN_EVIDENCE = 2;
const MIN_EVIDENCE_UNPAIRED_PORT = 6;
/** Certain pairs whose ports follow from the QPNs, until those whose ports do not are no pairs. */
const PORTS_TELL = 4;
/** Where several fit, the best of them by so many responses is likely. */
const LEAD = 3;
/** One response in so many may contradict: a capture misses packets, and may show an answer before its request. */
const CONTRADICTIONS = 8;
const MAX_CM = 100_000;

interface CmPeer {
  own: CmEnd;
  other: CmEnd;
  connection: CmConnection;
}

/** Finds the two directions of a connection. Directions and responses come in; `join` is called for each pair. */
export class DirectionPairer {
  /** Directions without a partner, by the two addresses. */
  readonly #single = new Map<number, Set<Direction>>();
  readonly #candidates = new Candidates();
  /** Directions that ever were, by the two addresses. */
  readonly #entered = new Map<number, number>();
  /** Networks that directions between two addresses were seen in. */
  readonly #networks = new Set<number>();
  /** Ends of connections by address and QPN, from the connection manager. */
  readonly #cm = new Map<string, CmPeer>();
  /** Certain pairs whose ports follow from the QPNs, and those whose ports do not. */
  #derived = 0;
  #other = 0;
  readonly #join: (direction: Direction, other: Direction, pairing: Pairing, reason: string) => void;

  constructor(join: (direction: Direction, other: Direction, pairing: Pairing, reason: string) => void) {
    this.#join = join;
  }

  /** A new direction. */
  enter(direction: Direction): void {
    const key = addressKey(direction.key.source, direction.key.destination);
    const directions = this.#single.get(key);
    if (directions === undefined) this.#single.set(key, new Set([direction]));
    else directions.add(direction);
    this.#entered.set(key, (this.#entered.get(key) ?? 0) + 1);
    this.#networks.add(networkKey(direction.key.source, direction.key.destination, direction.key.network));
    this.#candidates.enter(direction);
    this.#byCm(direction);
    if (direction.peer === undefined && direction.search.sourceQp >= 0) this.#byDatagramNumbers(direction);
  }

  /** Its queue pairs are used again: it finds its partner now or never, and is no candidate from here on. */
  leave(direction: Direction): void {
    if (direction.peer === undefined) this.settle(direction);
    const key = addressKey(direction.key.source, direction.key.destination);
    this.#entered.set(key, this.#entered.get(key)! - 1);
    this.#single.get(key)?.delete(direction);
    this.#candidates.leave(direction);
  }

  /** A request in a direction without partner. */
  sent(direction: Direction, psn: number): void {
    this.#candidates.sent(direction, psn);
  }

  /** A connection that the connection manager names; of directions seen before, too. */
  known(connection: CmConnection): void {
    const { active, passive } = connection;
    if (this.#cm.size >= MAX_CM) return;
    this.#cm.set(endKey(active), { own: active, other: passive, connection });
    this.#cm.set(endKey(passive), { own: passive, other: active, connection });
    for (const [from, to] of [
      [active, passive],
      [passive, active],
    ] as const) {
      for (const direction of this.#single.get(addressKey(from.address, to.address)) ?? []) {
        if (direction.key.destQp === to.qpn) this.#byCm(direction);
      }
    }
  }

  /** A response in a direction without partner. */
  response(direction: Direction, response: PendingResponse): void {
    direction.search.wait(response);
    if (this.#cm.has(endKey({ address: direction.key.destination, qpn: direction.key.destQp }))) return;
    const evidence = this.#evidenceOf(direction);
    for (const [other, found] of evidence) {
      if (other.peer === undefined) weigh(found, answer(other, response));
    }
    for (const other of this.#candidates.withPsn(direction, response.psn)) {
      const verdict =
        evidence.has(other) || !this.#isPossible(direction, other) ? 0 : answer(other, response);
      if (verdict === 0) continue;
      const found = { fits: 0, misfits: 0 };
      weigh(found, verdict);
      evidence.set(other, found);
      other.search.suspects ??= new Set();
      other.search.suspects.add(direction);
    }
    this.#decide(direction, false);
    if (direction.peer === undefined) this.#presume(direction, response.psn);
  }

  /** A response to a direction that was presumed to be its partner. */
  confirm(direction: Direction, response: PendingResponse): void {
    const { connection, peer } = direction;
    if (peer === undefined || answer(peer, response) <= 0) return;
    connection.presumedFits++;
    if (connection.presumedFits < MIN_EVIDENCE) return;
    connection.presumed = false;
    connection.pairing = 'certain';
    connection.pairingReason = `${count(connection.presumedFits)} PSNs of its requests, and of no other queue pair's between the two addresses`;
  }

  /** The last chance of a direction to find its partner: before its messages are handed out, and at the end. */
  settle(direction: Direction): void {
    if (direction.peer === undefined) this.#decide(direction, true);
    if (direction.peer === undefined) this.#byElimination(direction);
  }

  #evidenceOf(direction: Direction): Map<Direction, Evidence> {
    direction.search.evidence ??= new Map();
    return direction.search.evidence;
  }

  /** Whether the other direction is of the same service, and nothing names other queue pairs. */
  #isPossible(direction: Direction, other: Direction): boolean {
    const sameService = direction.transport === other.transport || !direction.transport || !other.transport;
    return (
      other !== direction &&
      !other.ended.isOver &&
      sameService &&
      !this.#isForeign(direction, other) &&
      this.#meet(direction, other)
    );
  }

  /**
   * Whether the two may be of one connection by their networks: the same, or each without a direction against it in its own,
   * as where a router's mirror shows packets on arrival only, or where each direction has the VNI or key of its receiver (asymmetric
   * routing, RFC 9135 §4.1). That no other direction is left is not
   * enough for different VNIs: tenants may have the same addresses.
   */
  #meet(direction: Direction, other: Direction): boolean {
    if (direction.key.network === other.key.network) return true;
    return !this.#hasOpposite(direction) && !this.#hasOpposite(other);
  }

  #hasOpposite({ key: { source, destination, network } }: Direction): boolean {
    return this.#networks.has(networkKey(destination, source, network));
  }

  /** The connection manager or the datagrams name other queue pairs. */
  #isForeign(direction: Direction, other: Direction): boolean {
    if (direction.search.sourceQp >= 0 && direction.search.sourceQp !== other.key.destQp) return true;
    return other.search.sourceQp >= 0 && other.search.sourceQp !== direction.key.destQp;
  }

  /** @param now or never: several that fit are weighed against each other */
  #decide(direction: Direction, now: boolean): void {
    let best: Direction | undefined;
    let most = 0;
    let second = 0;
    let fitting = 0;
    for (const other of this.#fitting(direction)) {
      fitting++;
      const { fits } = evidenceBetween(direction, other);
      // A guess is no elimination: one that was paired as likely may still be the one.
      if (other.peer !== undefined) {
        if (fits > second) second = fits;
      } else if (isDerivedPort(direction, other)) {
        this.#pair(
          direction,
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
    const enough = hasCommonPort(direction, best) ? MIN_EVIDENCE : MIN_EVIDENCE_UNPAIRED_PORT;
    if (fitting === 1 && (most >= enough || now || this.#isOnly(direction, best))) {
      this.#pair(
        direction,
        best,
        most >= enough || this.#isOnly(direction, best) ? 'certain' : 'likely',
        `${count(most)} PSNs of its requests, and of no other queue pair's between the two addresses`,
      );
    } else if (now && most - second >= LEAD) {
      const reason = `${count(most)} PSNs of its requests; those of ${fitting - 1} other queue pairs between the two addresses fit too, less often`;
      this.#pair(direction, best, 'likely', reason);
    }
  }

  /** Directions that the responses of both fit, or have fitted before they were paired as likely. */
  *#fitting(direction: Direction): Generator<Direction> {
    const seen = new Set([
      ...(direction.search.evidence?.keys() ?? []),
      ...(direction.search.suspects ?? []),
    ]);
    for (const other of seen) {
      if (other.peer !== undefined && other.connection.pairing !== 'likely') continue;
      if (!this.#isPossible(direction, other)) continue;
      const { fits, misfits } = evidenceBetween(direction, other);
      if (this.#portsTell && !isDerivedPort(direction, other) && !this.#candidates.sharesPort(direction))
        continue;
      if (fits > 0 && misfits * CONTRADICTIONS <= fits) yield other;
    }
  }

  /**
   * The only two directions between two addresses, with PSNs near one another, are presumed to be one connection from the first
   * response on: so a NAK for a packet that the capture has not shown counts.
   */
  #presume(direction: Direction, psn: number): void {
    const opposite = this.#single.get(addressKey(direction.key.destination, direction.key.source));
    if (opposite?.size !== 1) return;
    const [other] = opposite;
    if (!this.#isOnly(direction, other) || !this.#isPossible(direction, other)) return;
    if (other.requester?.isNear(psn) !== true) return;
    this.#pair(
      direction,
      other,
      'likely',
      'the only queue pairs between the two addresses, and PSNs near one another',
    );
    const { connection } = direction;
    connection.presumed = connection.pairing === 'likely';
  }

  /** In this capture all ports follow from QPNs, but for a few. */
  get #portsTell(): boolean {
    return this.#derived >= PORTS_TELL && this.#other * 4 <= this.#derived;
  }

  /** There is no other direction between the two addresses, and was none. */
  #isOnly(direction: Direction, other: Direction): boolean {
    const entered = (h: Direction) => this.#entered.get(addressKey(h.key.source, h.key.destination)) ?? 0;
    return entered(direction) === 1 && entered(other) === 1;
  }

  /** Pairs without PSNs (UC, or no responses in the capture): by ports, or because no other direction is left. */
  #byElimination(direction: Direction): void {
    const fits = (other: Direction) => this.#isPossible(direction, other) && !contradicts(direction, other);
    const byPort = [...this.#candidates.withPort(direction)].filter(
      (other) => isDerivedPort(direction, other) && fits(other),
    );
    if (byPort.length === 1) {
      const reason = 'both UDP source ports are the one that follows from the two QPNs';
      this.#pair(direction, byPort[0], 'likely', reason);
      return;
    }
    const [only] = this.#single.get(addressKey(direction.key.destination, direction.key.source)) ?? [];
    if (
      only !== undefined &&
      this.#isOnly(direction, only) &&
      fits(only) &&
      !haveOtherVnis(direction, only)
    ) {
      this.#pair(direction, only, 'likely', 'the only queue pairs between the two addresses');
    }
  }

  #byCm(direction: Direction): void {
    const found = this.#cm.get(endKey({ address: direction.key.destination, qpn: direction.key.destQp }));
    if (found === undefined || found.other.address !== direction.key.source || direction.transport === 'UD')
      return;
    const { connection } = found;
    direction.search.sourceQp = found.other.qpn;
    direction.search.cm = connection;
    direction.search.cmEnd = found.other;
    for (const other of this.#single.get(addressKey(direction.key.destination, direction.key.source)) ?? []) {
      if (other.key.destQp !== found.other.qpn || other.transport === 'UD') continue;
      if (!this.#meet(direction, other)) continue;
      this.#pair(direction, other, 'cm', `the connection manager's REQ and REP (frame ${connection.frame})`);
      return;
    }
    direction.connection.pairing = 'cm';
    direction.connection.pairingReason = `the connection manager's REQ and REP (frame ${connection.frame}); one direction only`;
  }

  #byDatagramNumbers(direction: Direction): void {
    for (const other of this.#single.get(addressKey(direction.key.destination, direction.key.source)) ?? []) {
      if (
        other.transport !== 'UD' ||
        other.search.sourceQp !== direction.key.destQp ||
        other.key.destQp !== direction.search.sourceQp ||
        !this.#meet(direction, other)
      )
        continue;
      this.#pair(direction, other, 'certain', 'each datagram names both queue pairs');
      return;
    }
  }

  #pair(direction: Direction, other: Direction, pairing: Pairing, reason: string): void {
    for (const one of [direction, other]) {
      this.#single.get(addressKey(one.key.source, one.key.destination))?.delete(one);
      this.#candidates.leave(one);
      if (pairing !== 'likely') one.search.forget();
    }
    if (pairing === 'certain' && isDerivedPort(direction, other)) this.#derived++;
    else if (pairing === 'certain') this.#other++;
    this.#join(direction, other, pairing, reason);
    for (const one of [direction, other]) {
      for (const response of one.search.takeWaiting()) applyResponse(one, response);
    }
  }
}

const addressKey = (source: number, destination: number): number => source * 0x10000 + destination;
/** 16, 16 and 12 bits. */
const networkKey = (source: number, destination: number, network: number): number =>
  addressKey(source, destination) * 0x1000 + network;
const endKey = ({ address, qpn }: Pick<CmEnd, 'address' | 'qpn'>): string => `${address} ${qpn}`;

const haveOtherVnis = (direction: Direction, other: Direction): boolean =>
  direction.key.vni >= 0 && other.key.vni >= 0 && direction.key.vni !== other.key.vni;

const hasCommonPort = (direction: Direction, other: Direction): boolean =>
  direction.span.lastPort !== 0 && direction.span.lastPort === other.span.lastPort;

/** rxe, ConnectX and node-roce derive the port from both QPNs where no flow label is set. */
const isDerivedPort = (direction: Direction, other: Direction): boolean =>
  hasCommonPort(direction, other) &&
  direction.span.lastPort === sourcePortForConnection(0, direction.key.destQp, other.key.destQp);

const answer = (other: Direction, response: PendingResponse): number =>
  other.requester?.answersTo(response) ?? 0;

function weigh(evidence: Evidence, verdict: number): void {
  if (verdict > 0) evidence.fits++;
  else if (verdict < 0) evidence.misfits++;
}

/** A response in one can't be of the other's requests. */
function contradicts(direction: Direction, other: Direction): boolean {
  if (evidenceBetween(direction, other).misfits > 0) return true;
  const isNone = (of: Direction) => (response: PendingResponse) => answer(of, response) < 0;
  return direction.search.waiting.some(isNone(other)) || other.search.waiting.some(isNone(direction));
}

/** The evidence of each one's responses about the other's requests, together. */
function evidenceBetween(direction: Direction, other: Direction): Evidence {
  const [own, theirs] = [direction.search.evidence?.get(other), other.search.evidence?.get(direction)];
  return {
    fits: (own?.fits ?? 0) + (theirs?.fits ?? 0),
    misfits: (own?.misfits ?? 0) + (theirs?.misfits ?? 0),
  };
}

const count = (responses: number): string =>
  responses === 1 ? '1 response carries' : `${responses} responses carry`;
