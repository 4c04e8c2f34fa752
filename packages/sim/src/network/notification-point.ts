/**
 * A host whose adapter answers congestion marks as network adapters do: for packets that arrive marked "congestion
 * experienced" (RFC 3168 §5) it sends CNPs to their sender, one in a while (IBTA annex A17). The engine sends none.
 */
import { BTH_BYTES, BthFlags, ECN_CE, ECN_MASK, Opcode, opcodeInfo, writeBth } from '@node-roce/wire';
import { decodePacket } from '../model/packet.ts';
import type { SimHost } from './network.ts';
import type { SimPacket } from './wire.ts';

/** DSCP 48, as ConnectX sends it. */
const CNP_TRAFFIC_CLASS = 0xc0;
/** The fifth byte of the BTH: FECN, BECN. */
const BECN = 0x40;

/** Between CNPs for one queue pair, µs. */
const INTERVAL = 50;

/** Sends CNPs for packets with an ECN mark (IBTA annex A17.9). */
export class NotificationPoint implements SimHost {
  readonly #host: SimHost;
  readonly #peerQpn: (destQpn: number) => number | undefined;
  readonly #lastSent = new Map<number, number>();
  #waiting: SimPacket[] = [];

  /** @param peerQpn the queue pair at the other end of one of ours */
  constructor(host: SimHost, peerQpn: (destQpn: number) => number | undefined) {
    this.#host = host;
    this.#peerQpn = peerQpn;
  }

  get gid(): Uint8Array {
    return this.#host.gid;
  }

  get groups(): readonly Uint8Array[] {
    return this.#host.groups ?? [];
  }

  receive(packets: SimPacket[], now: number): void {
    for (const packet of packets) this.#look(packet, now);
    this.#host.receive(packets, now);
  }

  #look({ bytes, source, trafficClass, corrupt }: SimPacket, now: number): void {
    if (corrupt || (trafficClass & ECN_MASK) !== ECN_CE) return;
    const decoded = decodePacket(bytes);
    if (!decoded.ok) return;
    const qpn = this.#peerQpn(decoded.packet.destQpn);
    if (qpn === undefined || now - (this.#lastSent.get(qpn) ?? Number.NEGATIVE_INFINITY) < INTERVAL) return;
    this.#lastSent.set(qpn, now);
    this.#waiting.push(this.#cnp(source, qpn));
  }

  #cnp(destination: Uint8Array, qpn: number): SimPacket {
    // The BTH and 16 reserved bytes.
    const bytes = new Uint8Array(opcodeInfo(Opcode.CNP)?.headerLength ?? BTH_BYTES + 16);
    writeBth(bytes, 0, Opcode.CNP, BthFlags.MIG_REQ, 0xffff, qpn, 0);
    bytes[4] |= BECN;
    return {
      bytes,
      source: this.gid,
      destination,
      trafficClass: CNP_TRAFFIC_CLASS,
      sourcePort: 0,
      corrupt: false,
    };
  }

  advance(now: number): void {
    this.#host.advance(now);
  }

  transmit(now: number): SimPacket[] {
    const waiting = this.#waiting;
    this.#waiting = [];
    return [...waiting, ...this.#host.transmit(now)];
  }

  nextDeadline(): number {
    return this.#host.nextDeadline();
  }
}
