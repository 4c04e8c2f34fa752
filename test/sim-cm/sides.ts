/** The two connection managers behind one face: packages/cm, and the model of the state tables. */
import { type CmEvent, Connections, type Timing } from '@node-roce/cm';
import { CmModel, type CmState, type CmEvent as ModelEvent } from '@node-roce/sim';

export type SideName = 'A' | 'B';
export type Kind = 'product' | 'model';

/** Exponents and counts: short, so that a run ends soon. */
export const TIMING = { responseTimeout: 13, packetLifetime: 12, maxRetries: 7 } as const;
/** Of an MRA; 0.27 s. */
const SERVICE_TIMEOUT = 16;
/** The code that packages/cm writes into its REQ for these times. */
const ACK_TIMEOUT = 15;

const GIDS: Record<SideName, Uint8Array> = {
  A: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1),
  B: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2),
};
const GUIDS: Record<SideName, bigint> = { A: 0xa00000000000000an, B: 0xb00000000000000bn };
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

const ROUTE = { sgidIndex: 0, trafficClass: 0, hopLimit: 64, flowLabel: 0 };
/** States of packages/cm with the names of the tables. */
const STATES: Record<string, CmState> = { MRA_REQ_RCVD: 'REP_WAIT', MRA_REP_RCVD: 'RTU_WAIT' };

/** Adapter of packages/cm. */
class ProductSide implements Side {
  readonly kind = 'product';
  readonly events: SideEvent[] = [];
  readonly cm: Connections;
  readonly #route;
  #out: Uint8Array[] = [];
  #listener = 0;

  constructor(name: SideName, random: () => number) {
    this.#route = { ...ROUTE, gid: GIDS[other(name)] };
    this.cm = new Connections({
      random,
      caGuid: GUIDS[name],
      gids: [{ gid: GIDS[name] }],
      send: (mad) => this.#out.push(mad),
      event: (event) => this.#translate(event),
    });
  }

  #translate(event: CmEvent): void {
    const { id, type } = event;
    if (type === 'request') {
      const { localCommId: remoteId, localCaGuid: remoteGuid, localQpn: remoteQpn } = event.request;
      this.events.push({ kind: 'request', id, remoteId, remoteGuid, remoteQpn });
    } else if (type === 'rejected') {
      this.events.push({ kind: 'rejected', id, reason: event.reject.reason });
    } else if (type === 'disconnected') {
      const cause = event.cause === 'peer-closed' ? 'peer' : event.cause;
      const asks = cause === 'peer' && this.state(id) === 'DREQ_RCVD';
      this.events.push(asks ? { kind: 'closing', id } : { kind: 'disconnected', id, cause });
    } else if (type === 'datagram-request') {
      this.events.push({ kind: 'question', id, requestId: event.request.requestId });
    } else if (type === 'datagram-response') {
      this.events.push({ kind: 'answer', id, status: event.reply.status, qpn: event.reply.qpn });
    } else if (type === 'timewait-exit') {
      this.events.push({ kind: 'gone', id });
    } else if (type === 'unreachable' && this.#asked.has(id)) {
      this.events.push({ kind: 'unanswered', id });
    } else {
      this.events.push({ kind: type, id });
    }
  }

  readonly #asked = new Set<number>();

  listen(serviceId: bigint, backlog: number): void {
    this.#listener = this.cm.listen(serviceId, backlog);
  }

  unlisten(now: number): void {
    this.cm.unlisten(this.#listener, now);
  }

  connect(serviceId: bigint, qpn: number, now: number): number {
    const timing: Timing = { ...TIMING, serviceTimeout: SERVICE_TIMEOUT };
    const init = { startingPsn: qpn, responderResources: 1, initiatorDepth: 1, pathMtu: 1024, ...timing };
    return this.cm.connect({ serviceId, route: this.#route, qpn, ...init }, now);
  }

  accept(id: number, qpn: number, now: number): boolean {
    const init = { qpn, startingPsn: qpn, responderResources: 1, initiatorDepth: 1 };
    return this.#tries(() => this.cm.accept(id, init, now));
  }

  ready(id: number): boolean {
    return this.#tries(() => this.cm.ready(id));
  }

  reject(id: number, now: number): boolean {
    return this.#tries(() => this.cm.reject(id, {}, now));
  }

  delay(): boolean {
    return false;
  }

  disconnect(id: number, now: number): boolean {
    return this.#tries(() => this.cm.disconnect(id, now));
  }

  destroy(id: number, now: number): void {
    this.cm.destroy(id, now);
  }

  data(qpn: number): void {
    this.cm.heard(qpn);
  }

  loadAlternatePath(): boolean {
    return false;
  }

  ask(serviceId: bigint, now: number): number {
    const id = this.cm.resolve({ serviceId, route: this.#route, ...TIMING }, now);
    this.#asked.add(id);
    return id;
  }

  answer(id: number, qpn: number): boolean {
    return this.#tries(() => this.cm.answer(id, { qpn, qkey: 7 }));
  }

  communicationId(id: number): number {
    return id;
  }

  state(id: number): CmState | 'NONE' {
    const state = this.cm.stateOf(id);
    return state === undefined ? 'NONE' : (STATES[state] ?? (state as CmState));
  }

  receive(mad: Uint8Array, now: number): void {
    this.cm.receive(mad, 0, this.#route, now);
  }

  advance(now: number): void {
    this.cm.advance(now);
  }

  nextDeadline(): number {
    return this.cm.nextDeadline();
  }

  take(): Uint8Array[] {
    return this.#out.splice(0);
  }

  holds(): string {
    const held = Object.entries(this.cm.size).filter(([, count]) => count > 0);
    return held.map(([what, count]) => `${count} ${what}`).join(', ');
  }

  complaints(): string[] {
    const { malformed } = this.cm.counters;
    return malformed > 0 ? [`${malformed} malformed`] : [];
  }

  overflowed(): number {
    return this.cm.counters.overflowed;
  }

  /** False where the call came too late for the state; anything else is a fault of the harness. */
  #tries(call: () => void): boolean {
    try {
      call();
      return true;
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_ROCE_CM_STATE') throw error;
      return false;
    }
  }
}

/** Adapter of the model. */
class ModelSide implements Side {
  readonly kind = 'model';
  readonly events: SideEvent[] = [];
  readonly cm: CmModel;
  readonly #peer: Uint8Array;
  readonly #name: SideName;
  readonly #ids = new Map<number, number>();
  #listens = 0n;

  constructor(name: SideName, random: () => number) {
    this.#name = name;
    this.#peer = GIDS[other(name)];
    this.cm = new CmModel({ caGuid: GUIDS[name], random });
  }

  #translate(event: ModelEvent): void {
    const { kind, handle: id, message, reason = 0 } = event;
    if (kind === 'request' && message?.name === 'REQ') {
      const { localId: remoteId, caGuid: remoteGuid, qpn: remoteQpn } = message;
      this.communicationId(id);
      this.events.push({ kind, id, remoteId, remoteGuid, remoteQpn });
    } else if (kind === 'reply') {
      this.events.push({ kind: 'response', id });
    } else if (kind === 'rejected') {
      this.events.push({ kind, id, reason });
    } else if (kind === 'disconnecting') {
      this.events.push({ kind: 'closing', id });
    } else if (kind === 'disconnected') {
      this.events.push({ kind, id, cause: event.timedOut ? 'timeout' : reason === 10 ? 'stale' : 'peer' });
    } else if (kind !== 'request') {
      this.events.push({ kind, id });
    }
  }

  /** The model keeps what it reports until somebody looks. */
  #report(): void {
    for (const event of this.cm.events.splice(0)) this.#translate(event);
    for (const { handle, message } of this.cm.sidr.requests.splice(0))
      this.events.push({ kind: 'question', id: -handle, requestId: message.requestId });
    for (const { requestId: id, message } of this.cm.sidr.answers.splice(0)) {
      if (message) this.events.push({ kind: 'answer', id, status: message.status, qpn: message.qpn });
      else this.events.push({ kind: 'unanswered', id });
    }
  }

  #after<T>(value: T): T {
    this.#report();
    return value;
  }

  listen(serviceId: bigint): void {
    this.#listens = serviceId;
    this.cm.listen(serviceId);
  }

  unlisten(): void {
    this.cm.unlisten(this.#listens);
  }

  connect(serviceId: bigint, qpn: number, now: number): number {
    const id = this.cm.connect(
      this.#peer,
      {
        serviceId,
        qpn,
        startingPsn: qpn,
        responderResources: 1,
        initiatorDepth: 1,
        remoteResponseTimeout: TIMING.responseTimeout,
        localResponseTimeout: TIMING.responseTimeout,
        maxCmRetries: TIMING.maxRetries,
        retryCount: 7,
        rnrRetryCount: 7,
        pkey: 0xffff,
        pathMtu: 3,
        primaryLocalLid: 0xffff,
        primaryRemoteLid: 0xffff,
        primaryLocalGid: GIDS[this.#name],
        primaryRemoteGid: this.#peer,
        primaryHopLimit: 64,
        primaryAckTimeout: ACK_TIMEOUT,
      },
      now,
    );
    this.communicationId(id);
    return id;
  }

  accept(id: number, qpn: number, now: number): boolean {
    const fields = { startingPsn: qpn, responderResources: 1, initiatorDepth: 1, targetAckDelay: 15 };
    return this.#after(this.cm.accept(id, { qpn, ...fields, rnrRetryCount: 7 }, now));
  }

  ready(id: number, now: number): boolean {
    return this.#after(this.cm.ready(id, now));
  }

  reject(id: number, now: number): boolean {
    return this.#after(this.cm.reject(id, now));
  }

  delay(id: number, now: number): boolean {
    return this.#after(this.cm.mra(id, SERVICE_TIMEOUT, now));
  }

  disconnect(id: number, now: number): boolean {
    return this.#after(this.cm.disconnect(id, now));
  }

  destroy(id: number, now: number): void {
    if (this.cm.sidr.pending.has(-id)) this.cm.sidr.answer(-id, { status: 2 });
    else if (this.cm.sidr.asked.has(id)) this.cm.sidr.cancel(id);
    else this.cm.destroy(id, now);
    this.#report();
  }

  data(qpn: number, now: number): void {
    for (const { handle, localQpn, role } of [...this.cm.connections.values()])
      if (localQpn === qpn && role === 'passive') this.cm.dataArrived(handle, now);
    this.#report();
  }

  loadAlternatePath(id: number, now: number): boolean {
    return this.cm.loadAlternatePath(id, {}, now);
  }

  ask(serviceId: bigint, now: number): number {
    const { responseTimeout: timeout, maxRetries: retries } = TIMING;
    return this.cm.sidr.ask(this.#peer, { serviceId, pkey: 0xffff }, { timeout, retries }, now);
  }

  answer(id: number, qpn: number): boolean {
    return this.cm.sidr.answer(-id, { qpn, qkey: 7 });
  }

  communicationId(id: number): number {
    const known = this.#ids.get(id) ?? this.cm.connections.get(id)?.localId ?? 0;
    this.#ids.set(id, known);
    return known;
  }

  state(id: number): CmState | 'NONE' {
    return this.cm.state(id);
  }

  receive(mad: Uint8Array, now: number): void {
    this.cm.receive(mad, this.#peer, now);
    this.#report();
  }

  advance(now: number): void {
    this.cm.advance(now);
    this.#report();
  }

  nextDeadline(): number {
    return this.cm.nextDeadline();
  }

  take(): Uint8Array[] {
    return this.cm.take().map(({ bytes }) => bytes);
  }

  holds(): string {
    const { connections, sidr } = this.cm;
    const states = [...connections.values()].map(({ state }) => state);
    if (sidr.asked.size + sidr.pending.size > 0) states.push('SIDR' as CmState);
    return states.join(', ');
  }

  overflowed(): number {
    return 0;
  }

  complaints(): string[] {
    const inStates = this.cm.complaints.filter(({ state, input }) => state !== 'NONE' || input === 'MAD');
    return inStates.map(({ state, input, why }) => `${input} in ${state}: ${why}`);
  }
}

export const makeSide = (kind: Kind, name: SideName, random: () => number): Side =>
  kind === 'product' ? new ProductSide(name, random) : new ModelSide(name, random);
