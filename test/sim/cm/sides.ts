/** One face for both connection managers: packages/cm, and the model of the state tables. */
import type { CmState } from '@node-roce/sim';

export type SideName = 'A' | 'B';
export type Kind = 'product' | 'model';

/** Exponents and counts: short, so that a run ends soon. */
export const TIMING = { responseTimeout: 13, packetLifetime: 12, maxRetries: 7 } as const;
/** Of an MRA; 0.27 s. */
export const SERVICE_TIMEOUT = 16;
/** The code that packages/cm writes into its REQ for these times. */
export const ACK_TIMEOUT = 15;

export const GIDS: Record<SideName, Uint8Array> = {
  A: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1),
  B: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2),
};
export const GUIDS: Record<SideName, bigint> = { A: 0xa00000000000000an, B: 0xb00000000000000bn };
export const other = (name: SideName): SideName => (name === 'A' ? 'B' : 'A');

/** An event of either. `closing`: the peer's DREQ, which the program answers. */
export type SideEvent =
  | { kind: 'request'; id: number; remoteId: number; remoteGuid: bigint; remoteQpn: number }
  | { kind: 'response' | 'established' | 'unreachable' | 'closing' | 'gone'; id: number }
  | { kind: 'rejected'; id: number; reason: number }
  | { kind: 'disconnected'; id: number; cause: 'timeout' | 'stale' | 'peer' }
  | { kind: 'question'; id: number; requestId: number }
  | { kind: 'answer'; id: number; status: number; qpn: number }
  | { kind: 'unanswered'; id: number };

/** Calls return false where the state does not allow them. `id` is a name of the side's own. */
export interface Side {
  readonly kind: Kind;
  readonly events: SideEvent[];
  /** The model's backlog has no end. */
  listen(serviceId: bigint, backlog: number): void;
  unlisten(now: number): void;
  connect(serviceId: bigint, qpn: number, now: number): number;
  accept(id: number, qpn: number, now: number): boolean;
  ready(id: number, now: number): boolean;
  reject(id: number, now: number): boolean;
  /** Asks the peer for time; packages/cm does so by itself. */
  delay(id: number, now: number): boolean;
  disconnect(id: number, now: number): boolean;
  destroy(id: number, now: number): void;
  /** The first packet has come to a queue pair. */
  data(qpn: number, now: number): void;
  loadAlternatePath(id: number, now: number): boolean;
  ask(serviceId: bigint, now: number): number;
  answer(id: number, qpn: number): boolean;
  /** The communication id on the wire. */
  communicationId(id: number): number;
  state(id: number): CmState | 'NONE';
  receive(mad: Uint8Array, now: number): void;
  advance(now: number): void;
  nextDeadline(): number;
  take(): Uint8Array[];
  /** The connections and questions that it still holds, in words. */
  holds(): string;
  /** Inputs that its tables did not foresee. */
  complaints(): string[];
  /** Requests dropped for a full backlog. */
  overflowed(): number;
}
