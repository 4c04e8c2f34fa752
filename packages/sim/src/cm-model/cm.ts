/**
 * A connection manager by the specification's state tables (IBTA vol 1 ch. 12), to judge others: slow, obvious, one
 * program's calls and one MAD at a time. Time comes in as µs, randomness as a function; what it sends is taken with
 * `take`, what it reports is in `events`, what no table foresees is in `complaints`.
 *
 * Linux's behaviour (drivers/infiniband/core/cm.c, 6.1) decides where the specification leaves a choice: DREQs for
 * unknown ids are answered, REPs and RTUs for unknown ids are not.
 */
import { ABOUT, drepOf, mraOf, REASON, rejOf } from './answers.ts';
import {
  activeConnection,
  awaitingAnswer,
  type CmAwaiting,
  type CmConnection,
  exponentUs,
  passiveConnection,
} from './connection.ts';
import type { CmComplaint, CmEvent, CmModelOptions } from './events.ts';
import type { CmFields } from './layouts.ts';
import { type CmMessage, type CmMessageOf, decodeCm, encodeCm } from './mad.ts';
import { SidrModel } from './sidr.ts';
import {
  type CmCall,
  type CmEventKind,
  type CmInput,
  type CmState,
  type CmTarget,
  ON_CALL,
  ON_INPUT,
  ON_TIMEOUT,
  ROLE_OF,
} from './states.ts';

const AR_UNSUPPORTED = 2;

/** The connection manager of one adapter: calls, `receive` and `advance`. */
export class CmModel {
  readonly caGuid: bigint;
  readonly connections = new Map<number, CmConnection>();
  readonly sidr: SidrModel;
  events: CmEvent[] = [];
  complaints: CmComplaint[] = [];
  readonly #random: () => number;
  readonly #tid: (localId: number) => bigint;
  readonly #listens = new Set<bigint>();
  #out: { to: Uint8Array; bytes: Uint8Array }[] = [];
  #handles = 0;

  constructor({ caGuid, random, tid }: CmModelOptions) {
    this.caGuid = caGuid;
    this.#random = random;
    this.#tid = tid ?? ((localId) => (BigInt(random() >>> 0) << 32n) | BigInt(localId));
    this.sidr = new SidrModel(random, this.#send, this.#listens);
  }

  // Calls of the program. Those of a connection return false where its state does not allow them.

  listen(serviceId: bigint): void {
    this.#listens.add(serviceId);
  }

  unlisten(serviceId: bigint): void {
    this.#listens.delete(serviceId);
  }

  /** Sends a REQ; the ids are the model's. @returns the handle */
  connect(
    to: Uint8Array,
    fields: Partial<CmFields<'REQ'>> & {
      qpn: number;
      maxCmRetries: number;
      remoteResponseTimeout: number;
      localResponseTimeout: number;
      primaryAckTimeout: number;
    },
    now: number,
  ): number {
    const localId = this.#freshId();
    const tid = this.#tid(localId);
    const connection = activeConnection(++this.#handles, { ...fields, localId }, tid, to);
    this.connections.set(connection.handle, connection);
    const bytes = encodeCm('REQ', tid, { ...fields, localId, caGuid: this.caGuid });
    this.#sendUntilAnswered(connection, bytes, now);
    return connection.handle;
  }

  accept(handle: number, fields: Partial<CmFields<'REP'>> & { qpn: number }, now: number): boolean {
    return this.#call(handle, 'accept', fields, now);
  }

  ready(handle: number, now: number): boolean {
    return this.#call(handle, 'ready', {}, now);
  }

  reject(handle: number, now: number, reason: number = REASON.CONSUMER, privateData?: Uint8Array): boolean {
    return this.#call(handle, 'reject', { reason, ...(privateData && { privateData }) }, now);
  }

  mra(handle: number, serviceTimeout: number, now: number): boolean {
    return this.#call(handle, 'mra', { serviceTimeout }, now);
  }

  disconnect(handle: number, now: number): boolean {
    return this.#call(handle, 'disconnect', {}, now);
  }

  /** Ends a connection as its state asks for, in order; nothing of it is reported any more. */
  destroy(handle: number, now: number): void {
    const connection = this.connections.get(handle);
    if (connection === undefined) return;
    connection.destroyed = true;
    if (!this.disconnect(handle, now)) this.reject(handle, now);
  }

  /** Proposes an alternate path (§12.8): sends LAP. */
  loadAlternatePath(handle: number, fields: Partial<CmFields<'LAP'>>, now: number): boolean {
    const connection = this.connections.get(handle);
    if (connection?.state !== 'ESTABLISHED' || connection.lap) return false;
    const { localId, remoteId, remoteQpn: qpn } = connection;
    const bytes = encodeCm('LAP', this.#tid(localId), { ...fields, localId, remoteId, qpn });
    connection.lap = awaitingAnswer(connection, bytes, now);
    this.#send(connection.peer, bytes);
    return true;
  }

  /** The first packet of the connection has arrived on its queue pair. */
  dataArrived(handle: number, now: number): void {
    const connection = this.connections.get(handle);
    if (connection) this.#input(connection, 'DATA', undefined, now);
  }

  state(handle: number): CmState | 'NONE' {
    return this.connections.get(handle)?.state ?? 'NONE';
  }

  // The loop.

  /** The MADs to send since the last call. */
  take(): { to: Uint8Array; bytes: Uint8Array }[] {
    const out = this.#out;
    this.#out = [];
    return out;
  }

  /** µs; infinite if no timer runs. */
  nextDeadline(): number {
    let next = this.sidr.nextDeadline();
    for (const { state, awaiting, lap, timewaitEnds } of this.connections.values()) {
      if (state === 'TIMEWAIT') next = Math.min(next, timewaitEnds);
      else next = Math.min(next, awaiting?.at ?? Infinity, lap?.at ?? Infinity);
    }
    return next;
  }

  advance(now: number): void {
    this.sidr.advance(now);
    for (const connection of [...this.connections.values()]) this.#advance(connection, now);
  }

  #advance(connection: CmConnection, now: number): void {
    const { state, awaiting, lap } = connection;
    if (state === 'TIMEWAIT') {
      if (now >= connection.timewaitEnds) this.#enter(connection, 'IDLE', now);
      return;
    }
    if (lap && now >= lap.at && !this.#again(connection, lap, now)) connection.lap = undefined;
    if (!awaiting || now < awaiting.at || this.#again(connection, awaiting, now)) return;
    const row = ON_TIMEOUT[state];
    if (!row) throw new Error(`${state} waits for nothing`);
    if (row.send)
      this.#send(
        connection.peer,
        rejOf(connection, this.caGuid, { rejected: ABOUT.OTHER, reason: REASON.TIMEOUT }),
      );
    this.#report(connection, row.event, now, { timedOut: true });
    this.#enter(connection, row.to, now);
  }

  /** Retransmits an unanswered message; false if that was the last time. */
  #again(connection: CmConnection, waiting: CmAwaiting, now: number): boolean {
    if (waiting.retriesLeft === 0) return false;
    waiting.retriesLeft--;
    waiting.at = now + waiting.interval;
    this.#send(connection.peer, waiting.bytes);
    return true;
  }

  /** Takes a MAD from `source`, a GID: answers go there. */
  receive(mad: Uint8Array, source: Uint8Array, now: number): void {
    const message = decodeCm(mad);
    if (typeof message === 'string') {
      this.complaints.push({ state: 'NONE', input: 'MAD', why: message });
      return;
    }
    if (message.name === 'SIDR_REQ' || message.name === 'SIDR_REP') {
      this.sidr.receive(message, source, now);
      return;
    }
    if (message.name === 'REQ') {
      this.#receiveReq(message, source, now);
      return;
    }
    const connection = this.#connectionOf(message);
    if (connection === undefined) {
      this.#receiveUnknown(message, source);
      return;
    }
    if (message.name === 'LAP') {
      this.#answerLap(connection, message);
    } else if (message.name === 'APR') {
      connection.lap = undefined;
    } else {
      const input =
        message.name !== 'MRA' ? message.name : message.mraed === ABOUT.REP ? 'MRA_REP' : 'MRA_REQ';
      this.#input(connection, input, message, now);
    }
  }

  /** §12.9.8.3: a REQ may be a copy, come from a queue pair that counts as connected, or ask for nobody. */
  #receiveReq(req: CmMessageOf<'REQ'>, source: Uint8Array, now: number): void {
    const same = this.#find(
      (c) => c.remoteId === req.localId && c.remoteGuid === req.caGuid && c.role === 'passive',
    );
    if (same) {
      this.#input(same, 'REQ', req, now);
      return;
    }
    const refuse = (reason: number) =>
      this.#send(source, encodeCm('REJ', req.tid, { remoteId: req.localId, rejected: ABOUT.REQ, reason }));
    const old = this.#live(req.caGuid, req.qpn);
    if (old) {
      refuse(REASON.STALE);
      this.#endStale(old, now);
      return;
    }
    if (!this.#listens.has(req.serviceId)) {
      refuse(REASON.INVALID_SERVICE_ID);
      return;
    }
    // Of a path that is not one of the port's: the port has the default partition alone (Linux: cm_init_av_by_path).
    if ((req.pkey & 0x7fff) !== 0x7fff) {
      refuse(REASON.INVALID_GID);
      return;
    }
    const connection = passiveConnection(++this.#handles, this.#freshId(), req, source);
    this.connections.set(connection.handle, connection);
    this.#report(connection, 'request', now, { message: req });
  }

  #receiveUnknown(message: CmMessage, source: Uint8Array): void {
    if (message.name === 'DREQ') {
      const { localId, remoteId } = message;
      this.#send(source, encodeCm('DREP', message.tid, { localId: remoteId, remoteId: localId }));
    }
    this.complaints.push({ state: 'NONE', input: message.name, why: 'unknown ids' });
  }

  #answerLap(connection: CmConnection, lap: CmMessageOf<'LAP'>): void {
    const { localId, remoteId } = connection;
    if (connection.state !== 'ESTABLISHED') return;
    this.#send(connection.peer, encodeCm('APR', lap.tid, { localId, remoteId, status: AR_UNSUPPORTED }));
  }

  /** Applies the table's row to a message or event. */
  #input(connection: CmConnection, input: CmInput, message: CmMessage | undefined, now: number): void {
    const { state } = connection;
    const cell = ON_INPUT[state][input];
    const role = ROLE_OF[input];
    if (!cell || (role && role !== connection.role)) {
      this.complaints.push({ state, input, why: 'not in the table' });
      return;
    }
    if (message?.name === 'DREQ') {
      if (message.qpn !== connection.localQpn) {
        this.complaints.push({ state, input, why: `names QP ${message.qpn}` });
        return;
      }
      connection.dreqTid = message.tid;
    }
    if (message?.name === 'REP' && cell.to) {
      if (!this.#learn(connection, message, now)) return;
    }
    if (cell.answer) this.#answer(connection, cell.answer);
    const reason = message?.name === 'REJ' ? message.reason : undefined;
    if (cell.event) this.#report(connection, cell.event, now, { message, reason });
    // The peer holds our queue pair for connected: it rests (§12.9.8.3.1). Before REP, a listener has named none.
    const mustRest = reason === REASON.STALE && connection.localQpn !== 0;
    if (cell.to) this.#enter(connection, mustRest ? 'TIMEWAIT' : cell.to, now);
    if (message?.name === 'MRA') this.#waitLonger(connection, message.serviceTimeout, now);
    if (connection.destroyed) this.disconnect(connection.handle, now);
  }

  /** Takes the peer's ids from the REP; false if its queue pair counts as connected elsewhere. */
  #learn(connection: CmConnection, rep: CmMessageOf<'REP'>, now: number): boolean {
    const old = this.#live(rep.caGuid, rep.qpn);
    connection.remoteId = rep.localId;
    if (old) {
      this.#send(
        connection.peer,
        rejOf(connection, this.caGuid, { rejected: ABOUT.REP, reason: REASON.STALE }),
      );
      this.#endStale(old, now);
      this.#report(connection, 'rejected', now, { reason: REASON.STALE });
      this.#enter(connection, 'TIMEWAIT', now);
      return false;
    }
    connection.remoteGuid = rep.caGuid;
    connection.remoteQpn = rep.qpn;
    return true;
  }

  #answer(connection: CmConnection, answer: 'RTU' | 'DREP' | 'MRA' | 'REJ_STALE'): void {
    if (answer === 'RTU' && connection.rtu) this.#send(connection.peer, connection.rtu);
    if (answer === 'MRA')
      this.#send(connection.peer, mraOf(connection, connection.role === 'passive' ? ABOUT.REQ : ABOUT.REP));
    if (answer === 'DREP') this.#send(connection.peer, drepOf(connection));
    if (answer === 'REJ_STALE')
      this.#send(
        connection.peer,
        rejOf(connection, this.caGuid, { rejected: ABOUT.OTHER, reason: REASON.STALE }),
      );
  }

  /** MRA stops the clock for the time that it names, and leaves the retries (§12.9.8.6). */
  #waitLonger(connection: CmConnection, serviceTimeout: number, now: number): void {
    if (connection.awaiting && connection.state !== 'DREQ_SENT') {
      connection.awaiting.at = now + exponentUs(serviceTimeout) + connection.packetLifetime;
    }
  }

  /** The peer has forgotten this connection: it made a new one with the same queue pair (§12.9.8.3.1). */
  #endStale(old: CmConnection, now: number): void {
    const cell = ON_CALL[old.state].disconnect;
    if (cell?.send === 'DREQ') {
      this.#report(old, 'disconnected', now, { reason: REASON.STALE });
      this.disconnect(old.handle, now);
    }
  }

  #call(
    handle: number,
    call: CmCall,
    fields: Partial<CmFields<'REP'>> & { reason?: number; serviceTimeout?: number },
    now: number,
  ): boolean {
    const connection = this.connections.get(handle);
    const cell = connection && ON_CALL[connection.state][call];
    if (!connection || !cell) return false;
    const { localId, remoteId, tid, peer } = connection;
    const ids = { localId, remoteId };
    connection.awaiting = undefined;
    switch (cell.send) {
      case 'MRA':
        connection.mra = fields.serviceTimeout ?? 0;
        this.#send(connection.peer, mraOf(connection, cell.message ?? 0));
        break;
      case 'REJ':
        this.#send(
          peer,
          rejOf(connection, this.caGuid, {
            rejected: cell.message ?? 0,
            reason: cell.reason ?? fields.reason ?? 0,
            privateData: fields.privateData,
          }),
        );
        break;
      case 'RTU':
        connection.rtu = encodeCm('RTU', tid, ids);
        this.#send(peer, connection.rtu);
        this.#report(connection, 'established', now, {});
        break;
      case 'REP':
        connection.localQpn = fields.qpn ?? 0;
        this.#sendUntilAnswered(
          connection,
          encodeCm('REP', tid, { ...fields, ...ids, caGuid: this.caGuid }),
          now,
        );
        break;
      case 'DREQ':
        this.#sendUntilAnswered(
          connection,
          encodeCm('DREQ', this.#tid(localId), { ...ids, qpn: connection.remoteQpn }),
          now,
        );
        break;
      case 'DREP':
        this.#send(connection.peer, drepOf(connection));
    }
    this.#enter(connection, cell.to, now, connection.awaiting);
    return true;
  }

  /** Messages of the old state are sent no more; `keep` is the new state's own. */
  #enter(connection: CmConnection, to: CmTarget, now: number, keep?: CmAwaiting): void {
    const isPaused = to === 'REP_WAIT' || to === 'RTU_WAIT';
    if (!isPaused) connection.awaiting = keep;
    if (to !== 'ESTABLISHED') connection.lap = undefined;
    if (to === 'IDLE') {
      this.connections.delete(connection.handle);
      this.#report(connection, 'gone', now, {});
      return;
    }
    if (to === 'TIMEWAIT') connection.timewaitEnds = now + connection.timewait;
    connection.state = to;
  }

  #sendUntilAnswered(connection: CmConnection, bytes: Uint8Array, now: number): void {
    connection.awaiting = awaitingAnswer(connection, bytes, now);
    this.#send(connection.peer, bytes);
  }

  /** By both ids; by ours alone while the peer's is not known; a REJ for a timeout by CA GUID and the peer's. */
  #connectionOf(message: Exclude<CmMessage, { name: 'REQ' | 'SIDR_REQ' | 'SIDR_REP' }>) {
    const { localId, remoteId } = message;
    if (message.name === 'REJ' && message.reason === REASON.TIMEOUT && remoteId === 0) {
      const guid = new DataView(message.ari.buffer, message.ari.byteOffset).getBigUint64(0);
      return this.#find((c) => c.remoteGuid === guid && c.remoteId === localId);
    }
    const knowsPeer = (c: CmConnection) =>
      c.remoteId === 0 ? /^(REP|MRA|REJ)$/.test(message.name) : c.remoteId === localId;
    return this.#find((c) => c.localId === remoteId && knowsPeer(c));
  }

  #live(guid: bigint, qpn: number): CmConnection | undefined {
    return this.#find((c) => c.remoteGuid === guid && c.remoteQpn === qpn && c.state !== 'TIMEWAIT');
  }

  #find(is: (connection: CmConnection) => boolean): CmConnection | undefined {
    for (const connection of this.connections.values()) if (is(connection)) return connection;
    return undefined;
  }

  #freshId(): number {
    for (;;) {
      const id = this.#random() >>> 0;
      if (id !== 0 && !this.#find(({ localId }) => localId === id)) return id;
    }
  }

  #report({ handle, destroyed }: CmConnection, kind: CmEventKind, at: number, more: Partial<CmEvent>): void {
    if (!destroyed) this.events.push({ kind, handle, at, ...more });
  }

  readonly #send = (to: Uint8Array, bytes: Uint8Array): void => {
    this.#out.push({ to, bytes });
  };
}
