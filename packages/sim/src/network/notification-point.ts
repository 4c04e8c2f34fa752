/**
 * A host whose adapter answers congestion marks as network adapters do: for packets that arrive marked "congestion
 * experienced" (RFC 3168 §5) it sends CNPs to their sender, one in a while (IBTA annex A17). For peers that send none.
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

/** The CNPs of an adapter: for a queue pair one at once, then one at the first mark after each interval (IBTA annex A17.9). */
export class Notifications {
  readonly #gid: Uint8Array;
  readonly #peerQpn: (destQpn: number) => number | undefined;
  readonly #lastSent = new Map<number, number>();
  #waiting: SimPacket[] = [];

  /** @param peerQpn the queue pair at the other end of one of ours */
  constructor(gid: Uint8Array, peerQpn: (destQpn: number) => number | undefined) {
    this.#gid = gid;
    this.#peerQpn = peerQpn;
  }

  receive({ bytes, source, trafficClass, corrupt }: SimPacket, now: number): void {
    if (corrupt || (trafficClass & ECN_MASK) !== ECN_CE) return;
    const decoded = decodePacket(bytes);
    if (!decoded.ok) return;
    const qpn = this.#peerQpn(decoded.packet.destQpn);
    if (qpn === undefined || now - (this.#lastSent.get(qpn) ?? Number.NEGATIVE_INFINITY) < INTERVAL) return;
    this.#lastSent.set(qpn, now);
    this.#waiting.push(this.#cnp(source, qpn));
  }

  /** Takes the CNPs that wait to be sent. */
  take(): SimPacket[] {
    return this.#waiting.splice(0);
  }

  #cnp(destination: Uint8Array, qpn: number): SimPacket {
    // The BTH and 16 reserved bytes.
    const bytes = new Uint8Array(opcodeInfo(Opcode.CNP)?.headerLength ?? BTH_BYTES + 16);
    writeBth(bytes, 0, Opcode.CNP, BthFlags.MIG_REQ, 0xffff, qpn, 0);
    bytes[4] |= BECN;
    return {
      bytes,
      source: this.#gid,
      destination,
      trafficClass: CNP_TRAFFIC_CLASS,
      sourcePort: 0,
      corrupt: false,
    };
  }
}

/** A host with a notification point before it. */
export class NotificationPoint implements SimHost {
  readonly #host: SimHost;
  readonly #notifications: Notifications;

  /** @param peerQpn the queue pair at the other end of one of the host's */
  constructor(host: SimHost, peerQpn: (destQpn: number) => number | undefined) {
    this.#host = host;
    this.#notifications = new Notifications(host.gid, peerQpn);
  }

  get gid(): Uint8Array {
    return this.#host.gid;
  }

  get groups(): readonly Uint8Array[] {
    return this.#host.groups ?? [];
  }

  receive(packets: SimPacket[], now: number): void {
    for (const packet of packets) this.#notifications.receive(packet, now);
    this.#host.receive(packets, now);
  }

  advance(now: number): void {
    this.#host.advance(now);
  }

  transmit(now: number): SimPacket[] {
    return [...this.#notifications.take(), ...this.#host.transmit(now)];
  }

  nextDeadline(): number {
    return this.#host.nextDeadline();
  }
}
