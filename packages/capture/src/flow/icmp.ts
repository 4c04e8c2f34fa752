/** ICMP errors about RoCE packets, by their contents: routers and hosts that refused packets. */
import type { IcmpError as IcmpPacket } from '../read/icmp.ts';
import type { Addresses } from '../read/packet.ts';

/** Errors that are kept; of later ones only those that are like a kept one count. */
const MAX_ERRORS = 200;

/** The reason of an ICMP error. */
export type IcmpReason =
  | 'packet-too-big'
  | 'port-unreachable'
  | 'unreachable'
  | 'prohibited'
  | 'ttl-exceeded';

const REASONS = {
  'too-big': 'packet-too-big',
  'port-unreachable': 'port-unreachable',
  'host-unreachable': 'unreachable',
  'net-unreachable': 'unreachable',
  prohibited: 'prohibited',
  'ttl-exceeded': 'ttl-exceeded',
  other: undefined,
} as const satisfies Record<string, IcmpReason | undefined>;

/** The same error about packets from one address to another, by one sender. */
export interface IcmpError {
  reason: IcmpReason;
  /** The sender: a router or the host itself. */
  by: string;
  /** Of the packet that it refuses. */
  source: string;
  destination: string;
  /** Of `packet-too-big`; 0: not stated. */
  mtu: number;
  /** The first of them, and how many there are. */
  frame: number;
  count: number;
}

interface Kept {
  reason: IcmpReason;
  by: number;
  source: number;
  destination: number;
  mtu: number;
  frame: number;
  count: number;
}

/** ICMP errors of a capture by their contents; its size is bounded. */
export class IcmpErrors {
  readonly #errors = new Map<string, Kept>();

  all(addresses: Addresses): IcmpError[] {
    return [...this.#errors.values()].map(({ by, source, destination, ...error }) => ({
      ...error,
      by: addresses.text(by),
      source: addresses.text(source),
      destination: addresses.text(destination),
    }));
  }

  /** Takes the next error; nothing of it is kept. */
  take(error: IcmpPacket): void {
    const { source: by, quotedSource: source, quotedDestination: destination, mtu, frame } = error;
    const reason = REASONS[error.meaning];
    if (reason === undefined) return;
    const key = `${reason} ${by} ${source} ${destination} ${mtu}`;
    const known = this.#errors.get(key);
    if (known !== undefined) known.count++;
    else if (this.#errors.size < MAX_ERRORS)
      this.#errors.set(key, { reason, by, source, destination, mtu, frame, count: 1 });
  }
}
