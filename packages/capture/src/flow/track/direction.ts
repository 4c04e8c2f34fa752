/**
 * One direction of a connection: packets from one address to one queue pair of another. A BTH names only
 * the destination queue pair, so the sender's is known when the opposite direction is found (`pairing.ts`).
 */
import type { RocePacket } from '../../read/packet.ts';
import type { Pairing, Transport } from '../facts.ts';
import { PartnerSearch } from '../pair/partner-search.ts';
import { type Budgets, DirectionRecord } from '../record/direction-record.ts';
import { SentAnswers } from './answers.ts';
import { newCounts } from './counts.ts';
import { DirectionEnd } from './direction-end.ts';
import { DirectionKey } from './direction-key.ts';
import { Identifications } from './identification.ts';
import { newMessageCounts, type UnnumberedMessage } from './messages.ts';
import { Path } from './path.ts';
import type { RequesterTracker } from './requester-tracker.ts';
import { Span } from './span.ts';

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

  /** Which end the packets come from. */
  get from(): 'a' | 'b' {
    const { first } = this.connection;
    return (this === first) === first.span.startsWithRequest ? 'a' : 'b';
  }
}
