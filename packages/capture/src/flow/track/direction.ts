/**
 * One direction of a connection: packets from one address to one queue pair of another. A BTH names only
 * the destination queue pair, so the sender's is known when the opposite direction is found (`pairing.ts`).
 */
import { LinkType } from '@node-roce/pcap';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';
import { macAt } from '../../read/pause.ts';
import type { Tunnel } from '../../read/tunnel.ts';
import type { DirectionCounts, Pairing, Transport } from '../analysis.ts';
import type { CmConnection } from '../pair/cm.ts';
import type { Evidence, PendingResponse } from '../pair/pending-response.ts';
import { CongestionWatch } from '../record/congestion.ts';
import { DistributionBuilder } from '../record/distribution.ts';
import { EventLog } from '../record/events.ts';
import { Ladder, LadderBudget } from '../record/ladder.ts';
import { LatencyClasses } from '../record/latency-classes.ts';
import { PathFacts } from '../record/path-facts.ts';
import { newGoBackCauses, RecoveryBudget, RecoveryLog } from '../record/recoveries.ts';
import { BinnedSums, LatencySeries, PlotSeries, PointBudget } from '../record/series.ts';
import { TrafficClasses } from '../record/traffic-classes.ts';
import { IcrcTrial } from './icrc-trial.ts';
import { Identifications } from './identification.ts';
import type { LastFailure } from './last-failure.ts';
import { newMessageCounts, type UnnumberedMessage } from './messages.ts';
import { MirroredResponses } from './mirrored-responses.ts';
import type { RequesterTracker } from './requester-tracker.ts';

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
  retransmitCauses: {
    timeout: 0,
    'sequence-nak': 0,
    'implied-nak': 0,
    rnr: 0,
    probe: 0,
    unknown: 0,
  },
  retransmitGrades: { certain: 0, likely: 0, 'not-shown': 0 },
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

/** Bounds that all directions of a capture share. */
export class Budgets {
  readonly ladder = new LadderBudget();
  readonly recoveries = new RecoveryBudget();
  readonly points = new PointBudget();
}

/** One direction of a connection: its packets' counts, events, series, and its requester. */
export class Direction {
  readonly source: number;
  readonly destination: number;
  readonly destQp: number;
  /** VLAN and tunnel by number, part of the key, and the VNI: addresses mean the same host within them only. */
  readonly network: number;
  readonly vni: number;
  readonly vlan: number;
  readonly tunnel: Tunnel;
  /** Source MAC address of the first packet, as a number; −1: none. */
  readonly mac: number;
  /** Of datagrams, the sender's queue pair; −1 of all others. */
  readonly keyQp: number;
  /** Sender's queue pair: of datagrams, or from the connection manager; −1: not known. */
  sourceQp: number;
  transport: Transport | undefined;
  readonly counts = newCounts();
  readonly events = new EventLog();
  readonly ids = new Identifications();
  readonly responses = new MirroredResponses();
  readonly plot: PlotSeries;
  readonly throughput = new BinnedSums();
  /** Payload of retransmissions; undefined without any. */
  again: BinnedSums | undefined;
  readonly latency = new LatencySeries();
  readonly completion = new DistributionBuilder();
  readonly latencyClasses = new LatencyClasses();
  readonly ladder: Ladder;
  readonly recoveries: RecoveryLog;
  readonly congestion = new CongestionWatch();
  readonly traffic = new TrafficClasses();
  facts: PathFacts;
  /** Its packets have wrong ICRCs, all so far: they are taken all the same, and this looks for the reason. */
  trial: IcrcTrial | undefined;
  /** The first packet went from `a`: it was a request. */
  readonly startsWithRequest: boolean;
  readonly firstFrame: number;
  readonly start: number;
  lastFrame = 0;
  end = 0;
  readonly firstPort: number;
  sourcePort: number;
  /** The last two ranges of PSNs that requests were of (`candidates.ts`); −1: none. */
  psnRange = -1;
  psnRangeBefore = -1;
  /** The requests of this direction's sender. */
  requester: RequesterTracker | undefined;
  connection!: ConnectionState;
  peer: Direction | undefined;
  /** Its queue pairs were used again: what comes with these numbers is of another connection. */
  isOver = false;
  /** The other connection has begun. */
  isFollowed = false;
  /** Of the requests that are outstanding at the capture's end; given then. */
  lastFailure: LastFailure | undefined;
  /** The connection, if the connection manager's messages name it. */
  cm: CmConnection | undefined;
  /** Responses that came before it was known whose they are. */
  pendingResponses: PendingResponse[] = [];
  /** Unwrapped PSN of the last response. */
  responsePsn = -1;
  /** Opposite directions, each with how well the responses here fit its requests. */
  evidence: Map<Direction, Evidence> | undefined;
  /** Opposite directions that have such evidence of this one. */
  suspects: Set<Direction> | undefined;

  constructor(packet: RocePacket, sourceQp: number, budgets: Budgets) {
    this.source = packet.source;
    this.destination = packet.destination;
    this.destQp = packet.destQp;
    this.network = packet.network;
    this.vni = packet.vni;
    this.vlan = packet.vlan;
    this.tunnel = packet.tunnel;
    this.mac = packet.linkType === LinkType.ETHERNET ? macAt(packet.bytes, packet.link + 6) : -1;
    this.keyQp = sourceQp;
    this.sourceQp = sourceQp;
    // A CNP goes to the sender of marked packets: the requester, except of READ responses.
    this.startsWithRequest = packet.info.isRequest;
    this.firstFrame = packet.frame;
    this.start = packet.time;
    this.firstPort = packet.sourcePort;
    this.sourcePort = packet.sourcePort;
    this.facts = new PathFacts(packet);
    if (packet.icrc === IcrcVerdict.BAD) this.trial = new IcrcTrial();
    this.plot = new PlotSeries(budgets.points);
    this.ladder = new Ladder(budgets.ladder);
    this.recoveries = new RecoveryLog(this.counts, this.events, budgets.recoveries);
  }

  get reliable(): boolean {
    return this.transport === 'RC' || this.transport === 'XRC' || this.transport === 'RD';
  }

  get messageCounts() {
    return this.requester?.messages.counts ?? newMessageCounts();
  }

  /** Which end the packets come from. */
  get from(): 'a' | 'b' {
    const { first } = this.connection;
    return (this === first) === first.startsWithRequest ? 'a' : 'b';
  }
}
