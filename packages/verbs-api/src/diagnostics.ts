/**
 * Publishes an engine's packets, states and retransmissions on node:diagnostics_channel (docs/diagnostics.md). Whether anybody listens is
 * looked at once a turn of the engine and once a control call; while nobody does, a packet costs the test of a number.
 */
import { type Channel, channel } from 'node:diagnostics_channel';
import type { Link } from '@node-roce/link';
import {
  Icrc,
  type PeerTable,
  type QpState,
  type RetransmitCause,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { BTH_BYTES, bthDestQp, bthOpcode, bthPsn, type OpcodeName, opcodeInfo } from '@node-roce/wire';

/** A packet that was received, whatever became of it, or given to the link. */
export interface PacketInfo {
  /** Received or sent. */
  direction: 'in' | 'out';
  /** Milliseconds since 1970, with a fraction: when the engine handled it. */
  time: number;
  /** Queue pair of this side: the one it was sent by, or is for. */
  qpn: number;
  /** GID of the other side, 16 bytes: where it goes, or comes from. */
  peer: Uint8Array;
  /** A key of wire's `Opcode`; undefined for unknown ones. */
  opcode: OpcodeName | undefined;
  /** 24 bits. */
  psn: number;
  /** BTH and extension headers; of a received packet with an unknown opcode, the first 12 bytes. */
  header: Uint8Array;
  /** Bytes of payload and pad. */
  payloadLength: number;
  /** DSCP << 2 | ECN. */
  trafficClass: number;
  /** Received: whether the ICRC was right. Sent: `ok`, or not sent, for the errno in `errno`. */
  verdict: 'ok' | 'bad-icrc' | 'icrc-out-of-window' | 'not-sent';
  /** Of a packet that was not sent (errno(3)). */
  errno?: number;
}

/** A queue pair went to another state. */
export interface StateChange {
  /** Milliseconds since 1970, with a fraction. */
  time: number;
  /** The queue pair. */
  qpn: number;
  /** The state before. */
  from: QpState;
  /** Undefined where it was destroyed. */
  to: QpState | undefined;
}

/** A request packet is retransmitted; of a READ, the request. */
export interface Retransmission {
  /** Milliseconds since 1970, with a fraction. */
  time: number;
  /** The queue pair that sends it. */
  qpn: number;
  /** 24 bits. */
  psn: number;
  /** The cause of the retransmission. */
  cause: RetransmitCause;
}

export type Diagnostic =
  | { channel: 'packet'; message: PacketInfo }
  | { channel: 'state'; message: StateChange }
  | { channel: 'retransmission'; message: Retransmission };

export const CHANNELS: Readonly<Record<Diagnostic['channel'], Channel>> = {
  packet: channel('node-roce:packet'),
  state: channel('node-roce:state'),
  retransmission: channel('node-roce:retransmission'),
};

/** Bits of the channels that have subscribers. */
export const Listening = { PACKET: 1, STATE: 2, RETRANSMISSION: 4 } as const;

/** The bits of this thread's channels. */
export function listening(): number {
  return (
    (CHANNELS.packet.hasSubscribers ? Listening.PACKET : 0) |
    (CHANNELS.state.hasSubscribers ? Listening.STATE : 0) |
    (CHANNELS.retransmission.hasSubscribers ? Listening.RETRANSMISSION : 0)
  );
}

const VERDICTS = {
  [Icrc.OK]: 'ok',
  [Icrc.BAD]: 'bad-icrc',
  [Icrc.OUT_OF_WINDOW]: 'icrc-out-of-window',
} as const;

const wallClock = (): number => performance.timeOrigin + performance.now();

/** Collects while the engine is at work, and publishes when it is not: subscribers may call the engine. */
export class Diagnostics {
  /** `Listening` bits, as of the last look. */
  wanted = 0;
  readonly #look: () => number;
  readonly #tell: (told: Diagnostic[]) => void;
  readonly #peers = new Map<number, Uint8Array>();
  #collected: Diagnostic[] = [];

  /**
   * @param look whether anybody listens: `Listening` bits
   * @param tell called with the collected messages, in order
   */
  constructor(look: () => number, tell: (told: Diagnostic[]) => void) {
    this.#look = look;
    this.#tell = tell;
  }

  /** Looks whether anybody listens: before a turn, or a control call. */
  look(): void {
    this.wanted = this.#look();
  }

  /** The link's peers, by which packets that leave are named. */
  peersOf(link: Link): PeerTable {
    return {
      add: (dgid, sgidIndex, hopLimit) => {
        const peer = link.add(dgid, sgidIndex, hopLimit);
        this.#peers.set(peer, dgid.slice());
        return peer;
      },
      remove: (peer) => {
        this.#peers.delete(peer);
        link.remove(peer);
      },
      ...(link.join ? { join: (group, sgidIndex) => link.join!(group, sgidIndex) } : {}),
      ...(link.leave ? { leave: (local) => link.leave!(local) } : {}),
    };
  }

  received({ slab, slots, sources, count }: RxBatch): void {
    const time = wallClock();
    for (let i = 0, w = 0; i < count; i++, w += RX_SLOT_WORDS) {
      const at = slots[w + Rx.OFFSET];
      const length = slots[w + Rx.LENGTH];
      const whole = length >= BTH_BYTES;
      const row = whole ? opcodeInfo(bthOpcode(slab, at)) : undefined;
      const headerLength = Math.min(length, row?.headerLength ?? BTH_BYTES);
      this.#packet({
        direction: 'in',
        time,
        qpn: whole ? bthDestQp(slab, at) : 0,
        peer: sources.slice(i * 16, i * 16 + 16),
        opcode: row?.key,
        psn: whole ? bthPsn(slab, at) : 0,
        header: slab.slice(at, at + headerLength),
        payloadLength: length - headerLength,
        trafficClass: slots[w + Rx.TRAFFIC_CLASS],
        verdict: VERDICTS[slots[w + Rx.VERDICT] as 0 | 1 | 2],
      });
    }
  }

  /** Slots `from` … `to` − 1, which the link has looked at. */
  sent({ headers, slots }: TxBatch, from: number, to: number): void {
    const time = wallClock();
    for (let i = from; i < to; i++) {
      const w = i * TX_SLOT_WORDS;
      const at = slots[w + Tx.HEADER_OFFSET];
      const errno = slots[w + Tx.STATUS];
      this.#packet({
        direction: 'out',
        time,
        qpn: slots[w + Tx.QPN] & 0xff_ffff,
        peer: this.#peers.get(slots[w + Tx.PEER]) ?? new Uint8Array(16),
        opcode: opcodeInfo(bthOpcode(headers, at))?.key,
        psn: bthPsn(headers, at),
        header: headers.slice(at, at + slots[w + Tx.HEADER_LENGTH]),
        payloadLength: slots[w + Tx.PAYLOAD_LENGTH] + slots[w + Tx.PAD],
        trafficClass: slots[w + Tx.TRAFFIC_CLASS],
        ...(errno === 0 ? { verdict: 'ok' } : { verdict: 'not-sent', errno }),
      });
    }
  }

  #packet(message: PacketInfo): void {
    this.#collected.push({ channel: 'packet', message });
  }

  readonly onStateChange = (qpn: number, from: QpState, to: QpState | undefined): void => {
    if ((this.wanted & Listening.STATE) === 0) return;
    this.#collected.push({ channel: 'state', message: { time: wallClock(), qpn, from, to } });
  };

  readonly onRetransmit = (qpn: number, psn: number, cause: RetransmitCause): void => {
    if ((this.wanted & Listening.RETRANSMISSION) === 0) return;
    this.#collected.push({ channel: 'retransmission', message: { time: wallClock(), qpn, psn, cause } });
  };

  /** Publishes the collected messages. Never from inside of the engine. */
  flush(): void {
    if (this.#collected.length === 0) return;
    const told = this.#collected;
    this.#collected = [];
    this.#tell(told);
  }
}
