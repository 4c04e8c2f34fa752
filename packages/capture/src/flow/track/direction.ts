/**
 * One direction of a connection: packets from one address to one queue pair of another. A BTH names only
 * the destination queue pair, so the sender's is known when the opposite direction is found (`pairing.ts`).
 */
import { LinkType } from '@node-roce/pcap';
import type { RocePacket } from '../../read/packet.ts';
import { macAt } from '../../read/pause.ts';
import type { Tunnel } from '../../read/tunnel.ts';
import type { DirectionCounts, Pairing, Transport } from '../facts.ts';
import { PartnerSearch } from '../pair/partner-search.ts';
import { type Budgets, DirectionRecord } from '../record/direction-record.ts';
import { newCauses, newGoBackCauses, newGrades } from '../record/recoveries.ts';
import { SentAnswers } from './answers.ts';
import { Identifications } from './identification.ts';
import type { LastFailure } from './last-failure.ts';
import { newMessageCounts, type UnnumberedMessage } from './messages.ts';
import { Path } from './path.ts';
import type { RequesterTracker } from './requester-tracker.ts';

/** Both directions as one; until they are found to belong together each direction has its own. */
export interface ConnectionState {
  /** 0 until it is settled: then its messages are handed out, and it can't be joined with another such one. */
  id: number;
  pairing: Pairing;
  pairingReason: string;
  /** Paired on the first response already; and responses that have fitted since. */
  presumed: boolean;
  presumedFits: number;
  /** The direction of the first packet, and the one that was joined to it. */
  first: Direction;
  second: Direction | undefined;
  nextMessage: number;
  pendingMessages: { direction: Direction; message: UnnumberedMessage }[];
}

/** Where so many packets of ten have a duplicate, a mirror shows all of them twice. */
const MIRRORED = 0.9;

/** One direction of a connection, in parts that each have one writer. */
export class Direction {
  readonly key: DirectionKey;
  /** Its first and last packet. */
  readonly span: Span;
  readonly counts = newCounts();
  readonly ids = new Identifications();
  readonly path: Path;
  readonly answers = new SentAnswers();
  readonly record: DirectionRecord;
  readonly search: PartnerSearch<Direction>;
  readonly ended = new DirectionEnd();
  transport: Transport | undefined;
  /** The requests of this direction's sender. */
  requester: RequesterTracker | undefined;
  /** Of the ACKs that repeat another one, some may have been sent to grant credits. */
  grantsCredits = false;
  /** Of its ghost ACKs, those that no later ACK has overtaken. */
  acknowledgedTwice = 0;
  connection!: ConnectionState;
  peer: Direction | undefined;

  constructor(packet: RocePacket, sourceQp: number, budgets: Budgets) {
    this.key = new DirectionKey(packet, sourceQp);
    this.span = new Span(packet);
    this.path = new Path(packet);
    this.search = new PartnerSearch(sourceQp);
    this.record = new DirectionRecord(this.counts, budgets);
  }

  get reliable(): boolean {
    return this.transport === 'RC' || this.transport === 'XRC' || this.transport === 'RD';
  }

  get messageCounts() {
    return this.requester?.messages.counts ?? newMessageCounts();
  }

  /** Requests of this direction were sent, and none of the last ones was answered. */
  get isUnanswered(): boolean {
    return (
      this.ended.failure?.failure === 'retries-exceeded' ||
      // Without the other direction answers may be there that the capture does not show.
      (this.counts.retransmitted > 0 && this.peer?.counts.responses === 0)
    );
  }

  /** Each packet is shown twice, or almost: by a mirror of two ports. */
  get isMirrored(): boolean {
    return this.counts.repeatedFrames >= MIRRORED * this.counts.packets;
  }

  /** The network, or a mirror of a part of the traffic, duplicates packets of either end. */
  get isDoubled(): boolean {
    return [this, this.peer].some(
      (each) => each !== undefined && each.counts.repeatedFrames > 0 && !each.isMirrored,
    );
  }

  /** Which end the packets come from. */
  get from(): 'a' | 'b' {
    const { first } = this.connection;
    return (this === first) === first.span.startsWithRequest ? 'a' : 'b';
  }
}

/** The key of a direction; it never changes. */
class DirectionKey {
  readonly source: number;
  readonly destination: number;
  readonly destQp: number;
  /** Of datagrams, the sender's queue pair; −1 of all others. */
  readonly sourceQp: number;
  /** VLAN and tunnel by number: addresses mean the same host within them only. */
  readonly network: number;
  /** The parts of that. */
  readonly vni: number;
  readonly vlan: number;
  readonly tunnel: Tunnel;
  /** Source MAC address of the first packet, as a number; −1: none. */
  readonly mac: number;

  constructor(packet: RocePacket, sourceQp: number) {
    this.source = packet.source;
    this.destination = packet.destination;
    this.destQp = packet.destQp;
    this.sourceQp = sourceQp;
    this.network = packet.network;
    this.vni = packet.vni;
    this.vlan = packet.vlan;
    this.tunnel = packet.tunnel;
    this.mac = packet.linkType === LinkType.ETHERNET ? macAt(packet.bytes, packet.link + 6) : -1;
  }

  is(source: number, destination: number, destQp: number, sourceQp: number, network: number): boolean {
    return (
      this.destQp === destQp &&
      this.source === source &&
      this.destination === destination &&
      this.sourceQp === sourceQp &&
      this.network === network
    );
  }
}

/** From the first packet to the last one that was noted; the end is never before the begin of the capture's order. */
export class Span {
  /** The first packet was a request: it went from `a`. */
  readonly startsWithRequest: boolean;
  readonly firstFrame: number;
  readonly start: number;
  readonly firstPort: number;
  lastFrame = 0;
  end = 0;
  /** UDP source port of the last packet. */
  lastPort: number;

  constructor({ info, frame, time, sourcePort }: RocePacket) {
    // A CNP goes to the sender of marked packets: the requester, except of READ responses.
    this.startsWithRequest = info.isRequest;
    this.firstFrame = frame;
    this.start = time;
    this.firstPort = sourcePort;
    this.lastPort = sourcePort;
  }

  /** The next packet. */
  note({ frame, time, sourcePort }: RocePacket): void {
    this.lastFrame = frame;
    this.end = time;
    this.lastPort = sourcePort;
  }
}

/** The end of a direction. One that another one follows is over, or the capture is. */
class DirectionEnd {
  #isOver = false;
  #isFollowed = false;
  /** Of the requests that are outstanding at the capture's end; given then. */
  failure: LastFailure | undefined;

  /** Its queue pairs were used again: what comes with these numbers is of another connection. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The other connection has begun. */
  get isFollowed(): boolean {
    return this.#isFollowed;
  }

  over(): void {
    this.#isOver = true;
  }

  followed(): void {
    this.#isFollowed = true;
  }
}

/** The counts of a direction, all 0. */
export const newCounts = (): DirectionCounts => ({
  packets: 0,
  bytes: 0,
  requests: 0,
  responses: 0,
  acks: 0,
  naks: {},
  rnrNaks: 0,
  retransmitted: 0,
  retransmittedBytes: 0,
  retransmitCauses: newCauses(),
  retransmitGrades: newGrades(),
  goBacks: 0,
  goBackCauses: newGoBackCauses(),
  repeatedResponses: 0,
  repeatedFrames: 0,
  late: 0,
  mostOvertaken: 0,
  damagedAccepted: 0,
  gaps: 0,
  missedByCapture: 0,
  ghostAcks: 0,
  icrcBad: 0,
  icrcTaken: 0,
  icrcUnchecked: 0,
  ecnCapable: 0,
  ecnMarked: 0,
  cnps: 0,
});

/** The counts of a direction that the capture has nothing of: one object for all of them. */
export const NO_COUNTS: DirectionCounts = newCounts();
