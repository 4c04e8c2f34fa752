/** Finds the direction of a packet, or begins it: by its key, and by whether its queue pair numbers are used again. */
import { Transport as TransportBits, u24 } from '@node-roce/wire';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';
import type { Transport } from '../facts.ts';
import { Budgets } from '../record/direction-record.ts';
import { Direction } from '../track/direction.ts';
import { DirectionTable } from '../track/direction-table.ts';
import type { RightIcrcs } from '../track/right-icrcs.ts';
import { type CmConnection, CmReader } from './cm.ts';
import type { CmExchanges } from './cm-exchanges.ts';
import type { OpenConnections } from './open-connections.ts';
import type { DirectionPairer } from './pairing.ts';

const QP1 = 1;
/**
 * After so long without a packet, ns, queue pair numbers may be those of another connection; and after so long nothing is retransmitted
 * any more: the timer of `timeout` 21 takes 8.6 s, that of an adapter up to four times as long (IBTA vol 1 §9.7.6.1.3).
 */
const REUSE_PAUSE = 5e9;
const LONGEST_TIMER = 35e9;
/** Directions that are followed, each with about 10 kB; packets of others are counted as of no connection. */
const MAX_DIRECTIONS = 20_000;

/** The directions of a capture; each is entered once with the pairer and as a connection. */
export class Directions {
  readonly #table = new DirectionTable();
  readonly #cm = new CmReader();
  readonly #budgets = new Budgets();
  readonly #pairer: DirectionPairer;
  readonly #connections: OpenConnections;
  readonly #exchanges: CmExchanges;
  readonly #right: RightIcrcs;
  #count = 0;
  #tooMany = 0;

  constructor(
    pairer: DirectionPairer,
    connections: OpenConnections,
    exchanges: CmExchanges,
    right: RightIcrcs,
  ) {
    this.#pairer = pairer;
    this.#connections = connections;
    this.#exchanges = exchanges;
    this.#right = right;
  }

  /** Packets of directions past those that are followed. */
  get tooMany(): number {
    return this.#tooMany;
  }

  /** The direction of a packet; undefined: it is of no connection. */
  of(packet: RocePacket): Direction | undefined {
    const { info } = packet;
    let sourceQp = -1;
    if (info.transport === TransportBits.UD) {
      if (packet.destQp === QP1) {
        this.#takeManagement(packet);
        return undefined;
      }
      const deth = packet.bth + info.offsets.deth;
      sourceQp = deth + 8 <= packet.end ? u24(packet.bytes, deth + 5) : -1;
    }
    const found = this.#table.find(
      packet.source,
      packet.destination,
      packet.destQp,
      sourceQp,
      packet.network,
    );
    // Neither its queue pair nor its PSN can be believed, unless no ICRC of its sender is ever right.
    const isBad = packet.icrc === IcrcVerdict.BAD;
    if (isBad && (found !== undefined || this.#right.has(packet) || !isPlausible(packet))) return found;
    const isReused = found !== undefined && isReuse(found, packet);
    if (found !== undefined && !found.ended.isOver && !isReused) return found;
    if (this.#count === MAX_DIRECTIONS) {
      this.#tooMany++;
      return undefined;
    }
    return this.#begin(packet, sourceQp, found, isReused);
  }

  /** The first packet of a direction. @param found the one that had its key until now */
  #begin(packet: RocePacket, sourceQp: number, found: Direction | undefined, isReused: boolean): Direction {
    this.#count++;
    const direction = new Direction(packet, sourceQp, this.#budgets);
    if (packet.icrc !== IcrcVerdict.BAD) this.#right.note(packet);
    if (packet.info.transport !== TransportBits.CNP)
      direction.transport = packet.info.transportName as Transport;
    this.#connections.open(direction);
    if (found === undefined) {
      this.#table.add(direction);
    } else {
      this.#table.replace(found, direction);
      if (isReused) this.#end(found);
      follow(found, direction, isReused);
    }
    this.#pairer.enter(direction);
    return direction;
  }

  /** A packet to queue pair 1. */
  #takeManagement(packet: RocePacket): void {
    if (packet.icrc !== IcrcVerdict.BAD) this.#right.note(packet);
    else if (this.#right.has(packet)) return;
    else this.#right.tryCm(packet);
    this.#exchanges.take(packet);
    const connection = this.#cm.take(packet);
    if (connection === undefined) return;
    this.#endBefore(connection);
    this.#pairer.known(connection);
  }

  /** The connection manager gives queue pair numbers to a new connection: one that had them before is over. */
  #endBefore(connection: CmConnection): void {
    const { active, passive, networks, exchange, requested } = connection;
    for (const [from, to, network] of [
      [active, passive, networks[0]],
      [passive, active, networks[1]],
    ] as const) {
      const found = this.#table.find(from.address, to.address, to.qpn, -1, network);
      // REQ and REP may come again, and the file may have packets of the connection before the REP.
      if (found === undefined || found.ended.isOver || found.span.start >= requested) continue;
      if (found.search.cm?.exchange !== exchange) this.#end(found);
    }
  }

  /** The connection of this direction is over. */
  #end(direction: Direction): void {
    for (const one of [direction, direction.peer]) {
      if (one === undefined) continue;
      one.ended.over();
      this.#pairer.leave(one);
    }
  }
}

/**
 * `next` has the queue pairs of a direction that is over: the first packet of another connection, or the first against that one.
 * @param isPresumed after a pause and with a PSN that does not go on; else the connection manager's messages show it
 */
function follow(direction: Direction, next: Direction, isPresumed: boolean): void {
  if (direction.ended.isFollowed) return;
  for (const one of [direction, direction.peer]) one?.ended.followed();
  const event = isPresumed ? 'reuse-presumed' : 'reused';
  const { firstFrame, start } = next.span;
  next.record.events.add(event, firstFrame, start, start - lastTimeOf(direction));
}

/** The reserved bits of a BTH are 0: other traffic on the port hardly ever looks so (IBTA vol 1 §9.2). */
const isPlausible = ({ bytes, bth, pkey }: RocePacket): boolean =>
  (bytes[bth + 1] & 0x0f) === 0 &&
  (bytes[bth + 4] & 0x3f) === 0 &&
  (bytes[bth + 8] & 0x7f) === 0 &&
  pkey !== 0;

const lastTimeOf = ({ span: { end }, peer }: Direction): number => Math.max(end, peer?.span.end ?? end);

/** Whether a packet begins another connection than the one that has had its queue pairs: after a pause, with a PSN that does not go on. */
function isReuse(direction: Direction, { info, psn, time }: RocePacket): boolean {
  const { requester } = direction;
  if (direction.ended.isOver || !info.isRequest || !info.first || requester?.started !== true) return false;
  const pause = time - lastTimeOf(direction);
  if (pause < REUSE_PAUSE || direction.transport === 'UD') return false;
  const timer = Math.max(LONGEST_TIMER, 4 * requester.classifier.timer.ackTimeout);
  const unacked = direction.reliable ? requester.unacked : requester.next;
  return !requester.mayGoOn(psn, unacked, pause > timer || !direction.reliable);
}
