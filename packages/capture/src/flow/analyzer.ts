/** RoCE packets in, connections, messages and findings out; memory does not grow with the capture. */
import type { IcmpError as IcmpPacket } from '../read/icmp.ts';
import { type Addresses, IcrcVerdict, type RocePacket } from '../read/packet.ts';
import type { PauseFrame } from '../read/pause.ts';
import type { Analysis, CaptureSummary, Message } from './analysis.ts';
import { ConnectionBuilder } from './connections.ts';
import { findingsOf } from './findings/collect.ts';
import type { Capture } from './findings/rule.ts';
import { subjectsOf } from './findings/subjects.ts';
import { IcmpErrors } from './icmp.ts';
import { overviewOf } from './overview.ts';
import { CmExchanges } from './pair/cm-exchanges.ts';
import { Directions } from './pair/directions.ts';
import { gidPairs } from './pair/gid-pairs.ts';
import { OpenConnections } from './pair/open-connections.ts';
import { DirectionPairer } from './pair/pairing.ts';
import { Clock } from './record/clock.ts';
import { CutLength } from './record/cut-length.ts';
import { PauseCounts } from './record/pauses.ts';
import type { ConnectionState, Direction } from './track/direction.ts';
import { lastFailure } from './track/last-failure.ts';
import { LastHeard } from './track/last-heard.ts';
import { PacketTracker, type PacketVerdict } from './track/packet-tracker.ts';
import { RightIcrcs } from './track/right-icrcs.ts';
import { verdictsOf } from './verdict/index.ts';

/** The two queue pairs of a message; −1 where the capture does not name one. */
export interface MessageQps {
  requester: number;
  responder: number;
  /** Numbers of their addresses in the reader's table. */
  requesterAddress: number;
  responderAddress: number;
}

export interface FlowOptions {
  /** Called for each message at its end; of one connection and direction in the order of PSNs. */
  readonly onMessage?: ((message: Message, qps: MessageQps) => void) | undefined;
  /** Called for each packet. The verdict is one object, used again. */
  readonly onPacket?: ((packet: RocePacket, verdict: PacketVerdict) => void) | undefined;
}

/**
 * ```ts
 * const analyzer = new FlowAnalyzer({ onMessage: (message) => console.log(message.operation) });
 * const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
 * for (const record of records) reader.frame(record);
 * const analysis = analyzer.finish(reader.summary(), reader.addresses);
 * ```
 * or, of a file, `analyzeCapture`.
 */
export class FlowAnalyzer {
  readonly #options: FlowOptions;
  readonly #clock = new Clock();
  readonly #pauses = new PauseCounts();
  readonly #exchanges = new CmExchanges();
  readonly #icmp = new IcmpErrors();
  readonly #right = new RightIcrcs();
  readonly #heard = new LastHeard();
  readonly #cut = new CutLength();
  readonly #builder = new ConnectionBuilder();
  readonly #connections = new OpenConnections(
    (direction) => this.#pairer.settle(direction),
    (direction, message) => this.#emit(direction, message),
  );
  readonly #pairer = new DirectionPairer((direction, other, pairing, reason) =>
    this.#connections.join(direction, other, pairing, reason),
  );
  readonly #directions = new Directions(this.#pairer, this.#connections, this.#exchanges, this.#right);
  readonly #packets = new PacketTracker({
    clock: this.#clock,
    pauses: this.#pauses,
    pairer: this.#pairer,
    heard: this.#heard,
    right: this.#right,
    messageEnded: (direction, message) => this.#connections.messageEnded(direction, message),
  });
  #unconnected = 0;

  constructor(options: FlowOptions = {}) {
    this.#options = options;
  }

  /** Takes the next packet of the capture; nothing of it is kept. */
  add(packet: RocePacket): void {
    this.#clock.note(packet.time);
    this.#packets.reset();
    const direction = this.#directions.of(packet);
    if (direction === undefined) this.#unconnected++;
    else this.#packets.take(direction, packet);
    if (packet.icrc !== IcrcVerdict.BAD) this.#heard.hear(packet);
    if (packet.icrc === IcrcVerdict.NONE) this.#cut.note(packet);
    this.#options.onPacket?.(packet, this.#packets.verdict);
  }

  /** Takes the next pause frame; nothing of it is kept. */
  addPause(pause: PauseFrame): void {
    this.#pauses.add(pause);
  }

  /** Takes the next ICMP error about a RoCE packet; nothing of it is kept. */
  addIcmp(error: IcmpPacket): void {
    this.#icmp.take(error);
  }

  /**
   * Returns the finished analysis.
   * @param summary of the reader
   * @param addresses what the numbers in packets stand for: the reader's
   */
  finish(summary: CaptureSummary, addresses: Addresses): Analysis {
    this.#settleAll(summary.duration);
    if (this.#cut.length > 0) summary.cutLength = this.#cut.length;
    const states = this.#connections.settled;
    const connections = states.map((connection) => this.#builder.build(connection, addresses));
    const pauses = this.#pauses.senders((mac) => this.#addressesOf(mac, addresses));
    const exchanges = this.#exchanges.results(addresses);
    const addressOf = (index: number) => addresses.text(index);
    const capture: Capture = {
      summary,
      connections,
      exchanges,
      gaps: this.#exchanges.gaps(addresses),
      pauses,
      icmp: this.#icmp.all(addresses),
      clock: this.#clock,
      tooMany: this.#directions.tooMany,
      wrongCm: this.#right.wrongCm(addresses),
      lone: this.#connections.all.flatMap(({ first, second }) =>
        second === undefined && first.counts.cnps > 0 ? [first] : [],
      ),
      gidPairs: gidPairs(states, addressOf),
      addressOf,
      heardAt: (index) => this.#heard.of(index),
      hidesNaks: this.#cut.hidesNaks,
    };
    const subjects = subjectsOf(states, capture);
    const verdicts = verdictsOf({ capture, states, connections, subjects });
    const findings = findingsOf(capture, subjects.flat(), verdicts.findings);
    return {
      verdict: verdicts.finish(findings),
      summary,
      overview: overviewOf(connections),
      findings,
      connections,
      exchanges,
      pauses,
      unconnected: this.#unconnected,
    };
  }

  /** The capture is at its end: directions find their partners now or never, and what is outstanding has failed or not. */
  #settleAll(captureEnd: number): void {
    const { all } = this.#connections;
    for (const { first, second } of all) {
      if (second === undefined && !first.ended.isOver) this.#pairer.settle(first);
    }
    for (const { first, second } of all) {
      for (const direction of [first, second]) {
        if (direction?.requester === undefined) continue;
        const last = lastFailure(direction, captureEnd);
        direction.ended.failure = last;
        // Outstanding requests have failed only if the capture shows that the requester stopped.
        if (last?.isShown === false) direction.requester.messages.suspicion = last.failure;
        direction.requester.finish(last?.isShown === true ? last.failure : undefined);
      }
      for (const direction of [first, second]) direction?.record.recoveries.close();
    }
    for (const connection of all) {
      if (this.#isConnection(connection)) this.#connections.settle(connection);
      else this.#unconnected += connection.first.counts.packets;
    }
  }

  /**
   * Whether packets of one direction show a connection. Two kinds do not: CNPs alone; and packets with wrong ICRCs, one only or between
   * addresses that have right ones as well, as their queue pair numbers are damaged.
   */
  #isConnection({ id, first: { counts, path, key }, second }: ConnectionState): boolean {
    if (id > 0 || second !== undefined) return true;
    if (counts.packets === counts.cnps) return false;
    return path.trial === undefined || (counts.packets > 1 && !this.#right.has(key));
  }

  /** Addresses whose packets had this source MAC address, by the first packet of each direction. */
  #addressesOf(mac: number, addresses: Addresses): string[] {
    const found = new Set<string>();
    for (const { first, second } of this.#connections.all) {
      for (const direction of [first, second])
        if (direction?.key.mac === mac && found.size < 10) found.add(addresses.text(direction.key.source));
    }
    return [...found];
  }

  #emit({ key, search }: Direction, message: Message): void {
    this.#builder.keep(message);
    this.#options.onMessage?.(message, {
      requester: search.sourceQp,
      responder: key.destQp,
      requesterAddress: key.source,
      responderAddress: key.destination,
    });
  }
}
