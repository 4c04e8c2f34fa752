/** The passive rules about a requester. */
import {
  AethKind,
  aethKind,
  aethValue,
  CREDIT_UNLIMITED,
  creditsOf,
  PATH_MTUS,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import type { Flow, Sent } from './flow.ts';
import type { TracePacket } from './packet.ts';
import type { PassiveId } from './rules.ts';
import type { Tally } from './tally.ts';

/** An RNR NAK that the requester has to wait for. */
interface RnrWait {
  at: number;
  /** ns. */
  until: number;
  copies: number;
}

/** Judges one side's requests. */
export class RequesterRules {
  readonly #flow: Flow;
  readonly #tally: (id: PassiveId) => Tally;
  /** Whether the capture shows all that the requester sends and receives. */
  readonly #isHere: boolean;
  #wait: RnrWait | undefined;
  /** Messages that may have begun, by the credits so far. */
  #limit = Number.POSITIVE_INFINITY;
  /** Gaps in front of new requests: the positions, and the frame behind. */
  readonly #gaps: { at: number; frame: number }[] = [];

  constructor(flow: Flow, tally: (id: PassiveId) => Tally, isHere: boolean) {
    this.#flow = flow;
    this.#tally = tally;
    this.#isHere = isHere;
  }

  /** Before the flow takes it. */
  request(packet: TracePacket, at: number, span: number): void {
    const flow = this.#flow;
    const known = flow.sent.get(at);
    if (at >= flow.next) this.#inOrder(packet, at);
    else this.#wentBack(packet, at, span);
    if (known !== undefined || flow.awaitedAt(at) !== undefined) this.#isSame(packet, at, known);
    else this.#isWhole(packet, at);
    this.#waited(packet, at);
    if (at >= flow.next) this.#hasCredit(packet);
  }

  #inOrder({ frame }: TracePacket, at: number): void {
    const { next, position, behindRead, unacknowledged } = this.#flow;
    const tally = this.#tally('TRC-01');
    tally.occasions++;
    if (at > next) this.#gaps.push({ at: next, frame });
    // A requester that had gone back and goes on with new requests.
    if (position < next && behindRead !== next && unacknowledged < next)
      this.#tally('TRC-02').wrong('left out a packet that is not acknowledged', frame, this.#isCertain);
  }

  #wentBack({ frame }: TracePacket, at: number, span: number): void {
    const { position, behindRead, next, unacknowledged } = this.#flow;
    if (at === position || at === behindRead) return;
    // A requester may repeat its last packet at any time, to ask for an ACK that was lost.
    if (at > unacknowledged && at + span === next) return;
    const tally = this.#tally('TRC-02');
    tally.occasions++;
    if (at <= unacknowledged) return;
    const text =
      at < position
        ? 'went back to a packet behind the first one that is not acknowledged'
        : 'left out a packet that is not acknowledged';
    tally.wrong(text, frame, this.#isCertain);
  }

  #isSame(packet: TracePacket, at: number, known: Sent | undefined): void {
    const tally = this.#tally('TRC-03');
    const { frame, info, reth } = packet;
    tally.occasions++;
    const read = this.#flow.awaitedAt(at);
    if (read?.packet.info.isReadRequest) {
      if (!info.isReadRequest) tally.wrong('another request in the place of a READ', frame, true);
      else if (!this.#asksForAPart(packet, at, read))
        tally.wrong('a READ again that asks for something else', frame, true);
      return;
    }
    if (known === undefined) return;
    const before = known.packet;
    if (info.opcode !== before.info.opcode) tally.wrong('a packet again with another opcode', frame, true);
    else if (packet.length !== before.length) tally.wrong('a packet again with another length', frame, true);
    else if (packet.atomic !== before.atomic) tally.wrong('an atomic again with other operands', frame, true);
    else if (
      reth?.va !== before.reth?.va ||
      reth?.rkey !== before.reth?.rkey ||
      reth?.length !== before.reth?.length
    )
      tally.wrong('a request again with another RETH', frame, true);
  }

  /** The rest of the READ, or some of its responses. */
  #asksForAPart({ reth }: TracePacket, at: number, read: Sent): boolean {
    const whole = read.packet.reth;
    if (reth === undefined || whole === undefined) return true;
    const { pathMtu = 0 } = this.#flow;
    const done = (at - read.at) * pathMtu;
    const rest = whole.length - done;
    const isPart = reth.length === rest || (reth.length < rest && reth.length % pathMtu === 0);
    return reth.rkey === whole.rkey && reth.va === whole.va + BigInt(done) && isPart;
  }

  #isWhole({ frame, info, length, reth }: TracePacket, at: number): void {
    const tally = this.#tally('TRC-04');
    tally.occasions++;
    const wrong = (text: string) => tally.wrong(text, frame, true);
    const { pathMtu } = this.#flow;
    if (info.isSend || info.isWrite) {
      if (!info.last && !PATH_MTUS.includes(length as never))
        wrong('a FIRST or MIDDLE that is no path MTU long');
      else if (pathMtu !== undefined && length > pathMtu) wrong('a packet longer than the path MTU');
      else if (info.last && !info.first && length === 0) wrong('a LAST of 0 bytes');
      if (info.isWrite && info.first && info.last && reth?.length !== length)
        wrong('a WRITE ONLY of another length than its RETH has');
    }
    const before = this.#flow.sent.get(at - 1);
    if (before === undefined) return;
    const { info: last } = before.packet;
    if (last.last && !info.first) wrong('a MIDDLE or LAST without a FIRST');
    else if (!last.last && info.first) wrong('a message inside another');
    else if (!last.last && last.isSend !== info.isSend) wrong('a message that goes on as another kind');
    else if (!last.last && !last.first && !info.last && before.packet.length !== length)
      wrong('a message cut at two lengths');
    if (info.isWrite && info.last && !info.first) this.#hasLength(at, length, wrong);
  }

  /** The whole length of a WRITE, where all its packets were seen. */
  #hasLength(at: number, length: number, wrong: (text: string) => void): void {
    let total = length;
    for (let before = at - 1; ; before--) {
      const sent = this.#flow.sent.get(before);
      if (sent === undefined || !sent.packet.info.isWrite) return;
      total += sent.packet.length;
      if (!sent.packet.info.first) continue;
      if (sent.packet.reth?.length !== total) wrong('a WRITE of another length than its RETH has');
      return;
    }
  }

  #waited({ time, frame }: TracePacket, at: number): void {
    const wait = this.#wait;
    if (wait === undefined || at !== wait.at) return;
    this.#wait = undefined;
    const tally = this.#tally('TRC-05');
    tally.occasions++;
    if (time >= wait.until) return;
    // A repetition by the ACK timer may have crossed the NAK, and the NAK may have been lost behind the capture.
    tally.wrong('retransmitted before the time of the RNR NAK', frame, this.#isHere && wait.copies === 1);
  }

  #hasCredit({ frame, info }: TracePacket): void {
    const flow = this.#flow;
    if (!info.first || !(info.isSend || info.hasImmediate) || this.#limit === Number.POSITIVE_INFINITY)
      return;
    const tally = this.#tally('TRC-06');
    tally.occasions++;
    if (flow.messages > this.#limit) tally.wrong('SENDs without credit', frame, this.#isCertain);
  }

  /** Before the flow takes it. */
  response({ info, syndrome, time }: TracePacket, at: number): void {
    if (syndrome < 0) return;
    const sent = this.#flow.sent.get(at);
    const kind = aethKind(syndrome);
    if (kind === AethKind.RNR_NAK && info.key === 'RC_ACKNOWLEDGE' && sent !== undefined) {
      const until = time + rnrTimerMicroseconds(aethValue(syndrome)) * 1000;
      this.#wait = { at, until, copies: sent.copies };
    }
    if (kind !== AethKind.ACK || sent === undefined || sent.message < 0 || this.#flow.gaps > 0) return;
    const code = aethValue(syndrome);
    const done = sent.message + (sent.packet.info.last ? 1 : 0) - (sent.packet.info.first ? 0 : 1);
    const limit = code === CREDIT_UNLIMITED ? Number.POSITIVE_INFINITY : done + creditsOf(code);
    this.#limit = this.#limit === Number.POSITIVE_INFINITY ? limit : Math.max(this.#limit, limit);
  }

  /** After the last packet. */
  finish(): void {
    const isCertain = this.#isHere && !this.#flow.isIncomplete;
    for (const { frame } of this.#gaps) this.#tally('TRC-01').wrong('left out PSNs', frame, isCertain);
  }

  get #isCertain(): boolean {
    return this.#isHere && !this.#flow.isIncomplete;
  }
}
