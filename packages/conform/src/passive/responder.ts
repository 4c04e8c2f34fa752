/** The passive rules about a responder. */
import { AethKind, aethKind, NakCode, psnDiff } from '@node-roce/wire';
import type { Awaited, Flow } from './flow.ts';
import type { TracePacket } from './packet.ts';
import type { PassiveId } from './rules.ts';
import type { Tally } from './tally.ts';

/** ns: two packets that a host receives and sends may stand in a capture in either order for so long. */
const DISORDER = 1e6;
/** ns in which a responder has to send a NAK. */
const NAK_IS_DUE = 30e6;

/** Judges one side's answers to the other side's requests. */
export class ResponderRules {
  readonly #flow: Flow;
  readonly #tally: (id: PassiveId) => Tally;
  /** Whether the capture shows all that the responder sends and receives. */
  readonly #isHere: boolean;
  /** The first position that the responder has not received; not known before its first ACK. */
  #expected = Number.POSITIVE_INFINITY;
  /** Since when a packet behind the expected one waits for a NAK. */
  #gap: { frame: number; time: number } | undefined;
  /** The latest sequence NAK: there is no second one before the packet came. */
  #nak: { at: number; copies: number } | undefined;
  /** After an RNR NAK, or one that ends the connection, gaps are dropped in silence. */
  #isSilent = false;
  #highestAck = -1;
  /** MSN less the messages acknowledged, since a gap before which messages were not counted. */
  #msn: { offset: number; gaps: number } | undefined;
  /** Answers to packets not seen yet. */
  #ahead: { at: number; frame: number; time: number }[] = [];
  #lastResponse: number | undefined;

  constructor(flow: Flow, tally: (id: PassiveId) => Tally, isHere: boolean) {
    this.#flow = flow;
    this.#tally = tally;
    this.#isHere = isHere;
  }

  /** Before the flow takes it. */
  request({ frame, time }: TracePacket, at: number, span: number): void {
    this.#settle(time);
    this.#ahead = this.#ahead.filter((each) => each.at < at || each.at >= at + span);
    if (at <= this.#expected) {
      if (at === this.#expected) this.#received(at + span, time);
      return;
    }
    if (!this.#isSilent && this.#nak?.at !== this.#expected) this.#gap ??= { frame, time };
  }

  #received(next: number, time: number): void {
    this.#due(time);
    this.#isSilent = false;
    this.#gap = undefined;
    this.#expected = next;
  }

  /** A NAK that should have come by now. */
  #due(time: number): void {
    if (this.#gap === undefined || time - this.#gap.time < NAK_IS_DUE) return;
    const tally = this.#tally('TRC-14');
    tally.occasions++;
    tally.wrong('no NAK for a gap', this.#gap.frame, this.#isHere);
    this.#gap = undefined;
  }

  /** Answers to packets that did not come. */
  #settle(time: number): void {
    const late = this.#ahead.filter((each) => time - each.time > DISORDER);
    if (late.length === 0) return;
    this.#ahead = this.#ahead.filter((each) => !late.includes(each));
    for (const { frame } of late)
      this.#tally('TRC-11').wrong('an answer to a packet that was not sent', frame, this.#isHere);
  }

  /** Before the flow takes it. */
  response(packet: TracePacket, at: number): void {
    this.#settle(packet.time);
    this.#tally('TRC-11').occasions++;
    if (at >= this.#flow.next) {
      this.#ahead.push({ at, frame: packet.frame, time: packet.time });
      return;
    }
    if (packet.info.key !== 'RC_ACKNOWLEDGE') {
      this.#answer(packet, at);
      return;
    }
    const kind = aethKind(packet.syndrome);
    this.#covers(packet, kind === AethKind.ACK ? at : at - 1);
    if (kind === AethKind.ACK) this.#acknowledged(packet, at);
    else if (packet.syndrome === NakCode.PSN_SEQUENCE_ERROR) this.#sequence(packet, at);
    else this.#isSilent = true;
  }

  /** Everything up to a position has been received. */
  #covers({ frame }: TracePacket, up: number): void {
    const tally = this.#tally('TRC-12');
    tally.occasions++;
    for (const hole of this.#flow.holes) {
      if (hole > up) continue;
      tally.wrong('acknowledged a packet that is missing', frame, this.#isHere);
      break;
    }
    if (this.#expected !== Number.POSITIVE_INFINITY && up + 1 <= this.#expected) return;
    this.#expected = up + 1;
    this.#gap = undefined;
  }

  #acknowledged({ frame, msn }: TracePacket, at: number): void {
    const back = this.#tally('TRC-13');
    back.occasions++;
    if (at < this.#highestAck) back.wrong('an ACK before an earlier one', frame, this.#isHere);
    this.#highestAck = Math.max(this.#highestAck, at);
    this.#overtakes(frame, at);
    this.#counts(frame, msn, at);
  }

  #overtakes(frame: number, at: number): void {
    const tally = this.#tally('TRC-17');
    const [oldest] = this.#flow.awaited;
    if (this.#flow.answered.length > 0 || oldest !== undefined) tally.occasions++;
    if (oldest !== undefined && oldest.at < at)
      tally.wrong('an ACK before the READ responses in front of it', frame, this.#isHere);
  }

  #counts(frame: number, msn: number, at: number): void {
    const sent = this.#flow.sent.get(at);
    if (sent === undefined || sent.message < 0) return;
    // The ACK of a repetition may have the count of what came behind it, such as a READ whose responses are still to come.
    if (sent.copies > 1 && at < this.#flow.next - 1) return;
    const { first, last } = sent.packet.info;
    const messages = sent.message + (last ? 1 : 0) - (first ? 0 : 1);
    const offset = psnDiff(msn, messages);
    const tally = this.#tally('TRC-15');
    const { gaps } = sent;
    if (this.#msn?.gaps === gaps) {
      tally.occasions++;
      // Modulo 2^24.
      if (psnDiff(offset, this.#msn.offset) !== 0)
        tally.wrong('an MSN that is not the number of messages', frame, true);
    }
    this.#msn = { offset, gaps };
  }

  #sequence({ frame }: TracePacket, at: number): void {
    const tally = this.#tally('TRC-14');
    tally.occasions++;
    const copies = this.#flow.sent.get(at)?.copies ?? 0;
    const is = this.#isHere;
    if (at <= this.#highestAck) tally.wrong('a NAK for a packet that was acknowledged', frame, is);
    else if (this.#nak?.at === at && this.#nak.copies === copies)
      tally.wrong('a second NAK for the same gap', frame, is);
    this.#nak = { at, copies };
    this.#gap = undefined;
  }

  #answer(packet: TracePacket, at: number): void {
    const { info, frame } = packet;
    const asked = this.#flow.awaitedAt(at);
    if (asked === undefined || !info.isReadResponse) return;
    if (!asked.packet.info.isReadRequest) return;
    const tally = this.#tally('TRC-16');
    tally.occasions++;
    const wrong = this.#wrongResponse(packet, at, asked);
    if (wrong !== undefined) tally.wrong(wrong, frame, true);
    // The first request that the capture has may be a repetition, which asks for the rest; some responders begin that with MIDDLE.
    if (at === asked.at && !info.first)
      tally.wrong('responses that begin without FIRST', frame, this.#isHere);
    const isNext = this.#lastResponse === undefined || at === this.#lastResponse + 1 || asked.starts.has(at);
    if (!isNext) tally.wrong('a READ response left out', frame, this.#isHere);
    this.#lastResponse = at;
  }

  #wrongResponse(
    { info, length }: TracePacket,
    at: number,
    { packet, at: start, span, starts }: Awaited,
  ): string | undefined {
    const total = packet.reth?.length ?? 0;
    const isLast = at === start + span - 1;
    const { pathMtu = total } = this.#flow;
    const wanted = isLast ? total - (span - 1) * pathMtu : pathMtu;
    if (length !== wanted) return 'a READ response of another length than the rest, or the path MTU';
    if (info.last !== isLast) return isLast ? 'a last response that is not LAST' : 'a LAST before the end';
    if (info.first && !starts.has(at)) return 'a FIRST in the middle';
    return undefined;
  }

  /** After the last packet. */
  finish(time: number): void {
    this.#settle(time);
    this.#due(time);
  }
}
