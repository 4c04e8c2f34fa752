/** Adapter of packages/cm. */
import { type CmEvent, Connections, type Timing } from '@node-roce/cm';
import type { CmState } from '@node-roce/sim';
import {
  GIDS,
  GUIDS,
  other,
  SERVICE_TIMEOUT,
  type Side,
  type SideEvent,
  type SideName,
  TIMING,
} from './sides.ts';

const ROUTE = { sgidIndex: 0, trafficClass: 0, hopLimit: 64, flowLabel: 0 };
/** States of packages/cm with the names of the tables. */
const STATES: Record<string, CmState> = { MRA_REQ_RCVD: 'REP_WAIT', MRA_REP_RCVD: 'RTU_WAIT' };

/** The connection manager of packages/cm as a side. */
export class ProductSide implements Side {
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
    } else if (type !== 'path-offered' && type !== 'path-response') {
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
