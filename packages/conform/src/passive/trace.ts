/** The packets of one connection, given to the passive rules. */
import { Transport } from '@node-roce/wire';
import { Flow } from './flow.ts';
import type { TracePacket } from './packet.ts';
import { RequesterRules } from './requester.ts';
import { ResponderRules } from './responder.ts';
import type { PassiveId } from './rules.ts';
import type { Tally } from './tally.ts';

/** The two hosts of a connection, by the order in which the capture names them. */
export type Side = 'a' | 'b';
const otherOf = (side: Side): Side => (side === 'a' ? 'b' : 'a');

export interface TraceOptions {
  pathMtu: number | undefined;
  /** The side at which the capture was made, if it shows all that this side sends and receives. */
  at: Side | undefined;
  tally: (side: Side, id: PassiveId) => Tally;
}

/** The requests of one side, and the answers to them. */
class Dialogue {
  readonly #side: Side;
  readonly #options: TraceOptions;
  #flow!: Flow;
  #requester!: RequesterRules;
  #responder!: ResponderRules;
  /** A READ of an unknown number of PSNs was sent: nothing behind it can be judged. */
  #isBlind = false;

  constructor(side: Side, options: TraceOptions) {
    this.#side = side;
    this.#options = options;
    this.#begin();
  }

  #begin(): void {
    const { pathMtu, at, tally } = this.#options;
    const side = this.#side;
    const other = otherOf(side);
    this.#isBlind = false;
    this.#flow = new Flow(pathMtu);
    this.#requester = new RequesterRules(this.#flow, (id) => tally(side, id), at === side);
    this.#responder = new ResponderRules(this.#flow, (id) => tally(other, id), at === other);
  }

  request(packet: TracePacket): void {
    if (this.#flow.isElsewhere(packet.psn)) {
      this.finish(packet.time);
      this.#begin();
    }
    const at = this.#flow.positionOf(packet.psn);
    const span = this.#flow.spanOf(packet);
    if (span === undefined) this.#isBlind = true;
    // Before the first packet seen nothing is known.
    if (span === undefined || this.#isBlind || at < 0) return;
    this.#requester.request(packet, at, span);
    this.#responder.request(packet, at, span);
    this.#flow.request(packet, at, span);
  }

  response(packet: TracePacket): void {
    if (!this.#flow.hasBegun || this.#isBlind) return;
    const at = this.#flow.positionOf(packet.psn);
    if (at < 0) return;
    this.#requester.response(packet, at);
    this.#responder.response(packet, at);
    this.#flow.response(packet, at);
  }

  finish(time: number): void {
    this.#requester.finish();
    this.#responder.finish(time);
  }
}

/** The packets of one reliable connection. */
export class Trace {
  readonly #options: TraceOptions;
  readonly #dialogues: Record<Side, Dialogue>;
  /** Marked packets of a side, less the CNPs that answer them. */
  readonly #marked: Record<Side, number> = { a: 0, b: 0 };
  readonly #cnp: Record<Side, number> = { a: Number.NaN, b: Number.NaN };
  /** Least time between two CNPs of a side, ns. */
  readonly pace: Record<Side, number> = { a: Number.POSITIVE_INFINITY, b: Number.POSITIVE_INFINITY };
  #time = 0;

  constructor(options: TraceOptions) {
    this.#options = options;
    this.#dialogues = { a: new Dialogue('a', options), b: new Dialogue('b', options) };
  }

  /** Takes a packet whose ICRC is not wrong. */
  add(from: Side, packet: TracePacket): void {
    this.#time = packet.time;
    const { info } = packet;
    if (info.transport === Transport.CNP) this.#notified(from, packet);
    if (packet.isMarked) this.#marked[from]++;
    if (info.transport !== Transport.RC) return;
    if (info.isRequest) this.#dialogues[from].request(packet);
    else if (info.isResponse) this.#dialogues[otherOf(from)].response(packet);
  }

  #notified(from: Side, { frame, time, becn, isCnpFilled }: TracePacket): void {
    const { at, tally } = this.#options;
    const found = tally(from, 'TRC-21');
    found.occasions++;
    if (!becn) found.wrong('a CNP without BECN', frame, true);
    if (isCnpFilled) found.wrong('a CNP whose reserved bytes are not 0', frame, true);
    // A switch behind the capture may have marked it.
    if (!this.#marked[otherOf(from)])
      found.wrong('a CNP without a marked packet before it', frame, at === from);
    const since = time - this.#cnp[from];
    if (since < this.pace[from]) this.pace[from] = since;
    this.#cnp[from] = time;
    this.#marked[otherOf(from)]--;
  }

  /** @param after ns behind the last packet in which nothing came */
  finish(after = 0): void {
    for (const dialogue of Object.values(this.#dialogues)) dialogue.finish(this.#time + after);
  }
}
