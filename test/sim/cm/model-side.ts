/** Adapter of the model. */
import type { CmState, CmEvent as ModelEvent } from '@node-roce/sim';
import { CmModel } from '@node-roce/sim';
import {
  ACK_TIMEOUT,
  GIDS,
  GUIDS,
  other,
  SERVICE_TIMEOUT,
  type Side,
  type SideEvent,
  type SideName,
  TIMING,
} from './sides.ts';

/** The model as a side. */
export class ModelSide implements Side {
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

  /** The model keeps its events until they are read. */
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
