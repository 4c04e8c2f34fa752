/**
 * The model with habits of real adapters (ConnectX, from captures and firmware notes): what a peer of them has to live with, and none of
 * it breaks the protocol.
 */
import { ModelEndpoint, type ModelEndpointOptions, type SimPacket } from '@node-roce/sim';
import {
  AethKind,
  aethKind,
  BTH_BYTES,
  BthFlags,
  bthDestQp,
  bthOpcode,
  bthPsn,
  Opcode,
  opcodeInfo,
  psnDiff,
  writeBth,
} from '@node-roce/wire';

/**
 * `early`: its first timeouts are a few µs, far below the configured one, and more than `retry_cnt` (adaptive retransmission).
 * `merged`: one ACK for several. `zero`: each AETH has a credit count of zero. `cnp`: a CNP with each NAK.
 */
export type Habit = 'early' | 'merged' | 'zero' | 'cnp';

/** The first of its own timeouts, µs; it doubles up to so many times. */
const EARLY_TIMEOUT = 4;
const EARLY_TRIES = 10;
/** Requests that it repeats at once. */
const EARLY_MOST = 16;
/** An ACK waits for others so long, µs, or for so many. */
const MERGE_TIME = 8;
const MERGE_MOST = 4;
const BECN = 0x40;

const isAck = ({ bytes }: SimPacket) => bthOpcode(bytes, 0) === Opcode.RC_ACKNOWLEDGE;
const kindOf = ({ bytes }: SimPacket) => aethKind(bytes[BTH_BYTES]);

/** A model whose packets show one habit. */
export class NicEndpoint extends ModelEndpoint {
  readonly #habit: Habit;
  /** Times that the habit showed. */
  shown = 0;
  /** Requests that are not answered. */
  #sent: SimPacket[] = [];
  #tries = 0;
  #due = Number.POSITIVE_INFINITY;
  /** ACKs that wait for another. */
  #held: SimPacket[] = [];

  constructor(options: ModelEndpointOptions, habit: Habit) {
    super(options);
    this.#habit = habit;
  }

  override receive(packets: SimPacket[], now: number): void {
    super.receive(packets, now);
    for (const packet of packets) {
      const info = opcodeInfo(bthOpcode(packet.bytes, 0));
      if (packet.corrupt || !info?.isResponse) continue;
      const psn = bthPsn(packet.bytes, 0);
      const left = this.#sent.filter((sent) => psnDiff(bthPsn(sent.bytes, 0), psn) > 0);
      if (left.length < this.#sent.length) this.#tries = 0;
      this.#sent = left;
    }
  }

  override transmit(now: number): SimPacket[] {
    const packets = super.transmit(now);
    if (this.#habit === 'early') return this.#repeatEarly(packets, now);
    if (this.#habit === 'merged') return this.#merge(packets, now);
    if (this.#habit === 'zero') return packets.map((packet) => this.#withoutCredits(packet));
    return packets.flatMap((packet) => this.#withNotification(packet));
  }

  override nextDeadline(): number {
    return Math.min(super.nextDeadline(), this.#due);
  }

  #repeatEarly(packets: SimPacket[], now: number): SimPacket[] {
    const requests = packets.filter(({ bytes }) => opcodeInfo(bthOpcode(bytes, 0))?.isRequest);
    const repeats = now >= this.#due ? this.#sent.slice(0, EARLY_MOST) : [];
    this.shown += repeats.length;
    if (now >= this.#due) this.#tries++;
    this.#sent.push(...requests);
    const mayRepeat = this.#sent.length > 0 && this.#tries < EARLY_TRIES;
    if (!mayRepeat) this.#due = Number.POSITIVE_INFINITY;
    else if (now >= this.#due || this.#due === Number.POSITIVE_INFINITY) {
      this.#due = now + EARLY_TIMEOUT * 2 ** this.#tries;
    }
    return [...repeats, ...packets];
  }

  #merge(packets: SimPacket[], now: number): SimPacket[] {
    const out: SimPacket[] = [];
    const release = () => {
      const last = this.#held.at(-1);
      if (last === undefined) return;
      this.shown += this.#held.length - 1;
      out.push(last);
      this.#held = [];
      this.#due = Number.POSITIVE_INFINITY;
    };
    for (const packet of packets) {
      const isPlain = isAck(packet) && kindOf(packet) === AethKind.ACK;
      // Requests may pass it, answers may not.
      if (!isPlain && opcodeInfo(bthOpcode(packet.bytes, 0))?.isResponse) release();
      if (!isPlain) {
        out.push(packet);
        continue;
      }
      this.#held.push(packet);
      if (this.#held.length === 1) this.#due = now + MERGE_TIME;
      if (this.#held.length >= MERGE_MOST) release();
    }
    if (now >= this.#due) release();
    return out;
  }

  #withoutCredits(packet: SimPacket): SimPacket {
    const at = opcodeInfo(bthOpcode(packet.bytes, 0))?.offsets.aeth ?? -1;
    if (at < 0 || aethKind(packet.bytes[at]) !== AethKind.ACK) return packet;
    const bytes = packet.bytes.slice();
    bytes[at] = 0;
    this.shown++;
    return { ...packet, bytes };
  }

  #withNotification(packet: SimPacket): SimPacket[] {
    if (!isAck(packet) || kindOf(packet) === AethKind.ACK) return [packet];
    const bytes = new Uint8Array(BTH_BYTES + 16);
    writeBth(bytes, 0, Opcode.CNP, BthFlags.MIG_REQ, 0xffff, bthDestQp(packet.bytes, 0), 0);
    bytes[4] |= BECN;
    this.shown++;
    return [packet, { ...packet, bytes, trafficClass: 0xc0 }];
  }
}
