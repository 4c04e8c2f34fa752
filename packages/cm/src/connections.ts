import { RoceError } from '@node-roce/transport';
import {
  CM_LAYOUTS,
  type CmMessage,
  CmRejReason,
  cmNameAt,
  decodeCm,
  encodeCm,
  gidEquals,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  mtuBytesToEnum,
} from '@node-roce/wire';
import { alternatePathResponseTo, disconnectReplyTo, replyRefusal, requestRefusal } from './answers.ts';
import { Budget } from './budget.ts';
import {
  Connection,
  initiatorInterval,
  listenerInterval,
  type Surroundings,
  withDefaults,
} from './connection.ts';
import { DatagramServices } from './datagram-services.ts';
import { ackTimeoutCode, askedMicroseconds, DEFAULT_TIMING } from './intervals.ts';
import { Listeners } from './listeners.ts';
import { KeptNumbers, Numbers } from './numbers.ts';
import {
  type AcceptInit,
  type AlternatePath,
  CmCounters,
  type CmHost,
  type CmSize,
  type ConnectInit,
  type DatagramRequestEvent,
  type RejectInit,
  type RequestEvent,
  type ResolveAnswer,
  type ResolveInit,
  type Route,
} from './parameters.ts';
import { dropFrom, idKey, queuePairKey } from './peer-keys.ts';
import { Timers } from './timers.ts';
import { serviceOf } from './transport.ts';
import { type WaitingRequest, WaitingRequests } from './waiting.ts';

/** Connections at a time, and as many in TIMEWAIT. */
const MAX_CONNECTIONS = 65_536;
/** QPNs that are kept back at most: an eighth of all. */
const MAX_KEPT_QPNS = 1 << 20;
/** Answers to messages of nobody's: 1000 a second, 64 at once. */
const STRAY_ANSWERS = { perSecond: 1000, burst: 64 };

const PERMISSIVE_LID = 0xffff;
const DEFAULT_PKEY = 0xffff;

/**
 * The connection manager of one adapter, without I/O: MADs, time (µs) and randomness are arguments. It has four kinds of
 * methods:
 *
 * - `receive` for each MAD of queue pair 1; `advance` for timers, at the time that `nextDeadline` returns.
 * - For RC, UC and XRC: `listen`, `connect`, `accept`, `ready`, `reject`, `disconnect`, `destroy`; `loadPath`, `answerPath` and
 *   `migrated` for alternate paths.
 * - For UD: `listen`, `resolve`, `answer`.
 * - `counters`, and `size` for tests.
 *
 * MADs leave through `CmHost.send`, and `CmHost.event` reports events; both are called inside of these calls and must
 * not call back. A lost MAD is retransmitted. Calls on an id throw ENOENT where it ended, and ENOTCONN in a state that does not allow them.
 */
export class Connections {
  readonly counters = new CmCounters();
  readonly #host: CmHost;
  readonly #connections = new Map<number, Connection>();
  /** Requests that nobody has looked at: they become connections when the program calls, or their sender gives up. */
  readonly #waiting = new WaitingRequests();
  /**
   * Ids by the peer's CA GUID and comm id: for repeated REQs; and by its CA GUID, QPN and address: for stale connections. The
   * address, because a GUID is no secret: a stranger could else end connections of others, or keep a queue pair from connecting.
   */
  readonly #byRemoteId = new Map<string, number>();
  readonly #byRemoteQpn = new Map<string, number>();
  readonly #byLocalQpn = new Map<number, Connection>();
  /** Connections in TIMEWAIT, in the order in which they came there. Strangers can bring some there, so they take no room of others. */
  readonly #resting = new Set<Connection>();
  readonly #maxConnections: number;
  readonly #timers = new Timers<Connection>();
  readonly #listeners = new Listeners();
  readonly #services: DatagramServices;
  readonly #numbers: Numbers;
  readonly #qpns: KeptNumbers;
  readonly #strays = new Budget(STRAY_ANSWERS.perSecond, STRAY_ANSWERS.burst);
  readonly #around: Surroundings;

  constructor(host: CmHost) {
    this.#host = host;
    this.#maxConnections = host.maxConnections ?? MAX_CONNECTIONS;
    const send = (mad: Uint8Array, route: Route): void => {
      this.counters.sent++;
      host.send(mad, route);
    };
    this.#qpns = new KeptNumbers(MAX_KEPT_QPNS / (host.numbers?.modulus ?? 1));
    this.#numbers = new Numbers(host.random, host.numbers);
    this.#around = {
      caGuid: host.caGuid,
      send,
      event: (event) => host.event(event),
      setTimer: (connection, deadline) => this.#timers.set(connection, deadline),
      retried: () => this.counters.retried++,
      unexpected: () => this.counters.unexpected++,
      introduce: (connection, now) => this.#introduce(connection, now),
      settled: (connection) => this.#listeners.release(connection),
      rests: (connection, now) => this.#rest(connection, now),
      closed: (connection, now) => this.#forget(connection, now),
    };
    this.#services = new DatagramServices({
      draw: (now) => this.#drawId(now),
      transactionId: (id) => this.#numbers.transactionId(id),
      counters: this.counters,
      listeners: this.#listeners,
      send,
      event: (event) => host.event(event),
      stray: (now) => this.#stray(now),
    });
  }

  // ------------------------------------------------------------------ the loop

  /** Takes in a MAD at `at`, as queue pair 1 got it; anything may stand there. */
  receive(bytes: Uint8Array, at: number, from: Route, now: number): void {
    if (this.#isOverflow(bytes, at, from)) {
      this.counters.received++;
      this.counters.overflowed++;
      return;
    }
    const parsed = decodeCm(bytes, at);
    if (!parsed.ok) {
      this.counters.malformed++;
      return;
    }
    this.counters.received++;
    if (parsed.message.name === 'REQ') this.#request(parsed.message, bytes, at, from, now);
    else this.#dispatch(parsed.message, from, now);
  }

  /** Runs the timers that are due. */
  advance(now: number): void {
    for (let due = this.#timers.due(now); due; due = this.#timers.due(now)) due.due(now);
    this.#services.advance(now);
  }

  /** When `advance` has to be called at the latest, µs; Infinity if never. */
  nextDeadline(): number {
    return Math.min(this.#timers.next, this.#services.nextDeadline());
  }

  // ------------------------------------------------------- the program's calls

  /**
   * Takes requests for a service; `backlog` may wait for `accept` or `answer`, more are dropped, and their senders repeat them.
   * Returns the listener's number. EADDRINUSE where the service has one.
   */
  listen(serviceId: bigint, backlog = 128): number {
    const listener = this.#listeners.add(serviceId, backlog);
    try {
      this.#host.claim?.(serviceId);
    } catch (error) {
      this.#listeners.remove(listener);
      throw error;
    }
    return listener;
  }

  /** Requests of it that wait are refused. */
  unlisten(listener: number, now: number): void {
    const service = this.#listeners.remove(listener);
    if (service !== undefined) this.#host.release?.(service);
    for (const id of this.#waiting.ids(listener)) this.#take(id);
    for (const connection of [...this.#connections.values()])
      if (connection.listener === listener && connection.state === 'REQ_RCVD') connection.abandon(now);
    this.#services.unlisten(listener);
  }

  /** Opens a connection: sends REQ. Returns its id; `response`, `rejected` or `unreachable` follows. */
  connect(init: ConnectInit, now: number): number {
    const timing = withDefaults(init);
    this.#checkRoom();
    const id = this.#drawId(now);
    const ackTimeout = ackTimeoutCode(init.ackDelay ?? 15, timing.packetLifetime);
    const { serviceId, route, transport = 'RC', retryCount = 7, rnrRetryCount = 7, qpn, ...rest } = init;
    const transactionId = this.#numbers.transactionId(id);
    const { gid } = this.#host.gids[route.sgidIndex] ?? { gid: new Uint8Array(16) };
    const connection = new Connection(
      this.#around,
      {
        id,
        transactionId,
        ownTransactionId: transactionId,
        route,
        timing,
        ackTimeout,
        interval: initiatorInterval(timing),
        service: transport,
      },
      'CLOSED',
    );
    const fields = {
      serviceId,
      localCaGuid: this.#host.caGuid,
      localQpn: qpn,
      responderResources: rest.responderResources,
      initiatorDepth: rest.initiatorDepth,
      remoteCmResponseTimeout: timing.responseTimeout,
      endToEndFlowControl: rest.endToEndFlowControl ?? false,
      startingPsn: rest.startingPsn,
      localCmResponseTimeout: timing.responseTimeout,
      retryCount,
      pkey: DEFAULT_PKEY,
      pathMtu: mtuBytesToEnum(init.pathMtu),
      rnrRetryCount,
      maxCmRetries: timing.maxRetries,
      srq: rest.srq ?? false,
      primaryLocalLid: PERMISSIVE_LID,
      primaryRemoteLid: PERMISSIVE_LID,
      primaryLocalGid: gid,
      primaryRemoteGid: route.gid,
      primaryFlowLabel: route.flowLabel,
      primaryTrafficClass: route.trafficClass,
      primaryHopLimit: route.hopLimit,
      primaryServiceLevel: init.serviceLevel ?? 0,
      primaryAckTimeout: ackTimeout,
      ...(rest.privateData ? { privateData: rest.privateData } : {}),
    };
    this.#add(connection);
    try {
      connection.request({ name: 'REQ', ...fields }, now);
    } catch (error) {
      // A value that does not fit its field.
      this.#forget(connection, now);
      throw error;
    }
    this.#byLocalQpn.set(qpn, connection);
    return id;
  }

  /** Accepts a request: sends REP. The queue pair has to be able to receive; `established` follows. */
  accept(id: number, init: AcceptInit, now: number): void {
    const connection = this.#get(id);
    check(connection.accept(init, now), connection);
    this.#byLocalQpn.set(init.qpn, connection);
  }

  /** After `response`: the queue pair is in RTS; sends RTU. */
  ready(id: number, privateData?: Uint8Array): void {
    const connection = this.#get(id);
    check(connection.ready(privateData), connection);
  }

  /** A queue pair in RTR or RTS has received its first packet, so the peer is ready. */
  heard(qpn: number): void {
    this.#byLocalQpn.get(qpn)?.heard();
  }

  /** Refuses a request or a response, or takes back `connect` or `accept`. */
  reject(id: number, init: RejectInit, now: number): void {
    const connection = this.#get(id);
    check(connection.reject(init, now), connection);
  }

  /** Ends a connection, or answers the peer who did: sends DREQ or DREP. */
  disconnect(id: number, now: number, privateData?: Uint8Array): void {
    const connection = this.#get(id);
    check(connection.disconnect(privateData, now), connection);
  }

  /** Lets go of an id in any state: the peer hears what it has to, the program nothing more. */
  destroy(id: number, now: number): void {
    if (this.#services.destroy(id)) return;
    this.#take(id)?.abandon(now);
  }

  /** Lets go of all ids: peers hear of it once. */
  close(now: number): void {
    for (const id of this.#waiting.ids()) this.#take(id);
    for (const connection of [...this.#connections.values()]) connection.abandon(now);
    this.#services.close();
  }

  /** The event of a request that waits for the program; undefined where the request has ended. */
  requestOf(id: number): RequestEvent | DatagramRequestEvent | undefined {
    const waiting = this.#waiting.get(id);
    return waiting ? eventOf(id, waiting) : this.#services.requestOf(id);
  }

  /** Asks for the queue pair of a datagram service: sends SIDR_REQ; `datagram-response` or `unreachable` follows. */
  resolve(init: ResolveInit, now: number): number {
    return this.#services.resolve(init, now);
  }

  /** Answers a `datagram-request`. */
  answer(id: number, init: ResolveAnswer): void {
    this.#services.answer(id, init);
  }

  /** Proposes an alternate path to the peer: sends LAP; `path-response` follows. One at a time. */
  loadPath(id: number, path: AlternatePath, now: number): void {
    const connection = this.#get(id);
    const { gid } = this.#host.gids[path.route.sgidIndex] ?? { gid: new Uint8Array(16) };
    check(connection.loadPath(path, gid, now), connection);
  }

  /** Answers `path-offered` with one of `CmAprStatus`: sends APR. */
  answerPath(id: number, status: number): void {
    const connection = this.#get(id);
    check(connection.answerPath(status), connection);
  }

  /** A queue pair went over to its alternate path: messages of its connection take the path that was loaded last. */
  migrated(qpn: number): void {
    this.#byLocalQpn.get(qpn)?.migrated();
  }

  /** Whether a QPN is a connection's, also in TIMEWAIT, or was within twice the time of TIMEWAIT: no other may have it. */
  holds(qpn: number, now: number): boolean {
    return this.#byLocalQpn.has(qpn) || this.#qpns.has(qpn, now);
  }

  /** Whether there is nothing that a program began, or that TIMEWAIT keeps. */
  get idle(): boolean {
    return this.#count === 0 && this.#services.size === 0 && this.#listeners.size === 0;
  }

  /** Counts of connections with those in TIMEWAIT, of requests that wait for the program, of keys of tables, and of timers. */
  get size(): CmSize {
    return {
      connections: this.#count,
      pending: this.#listeners.pending,
      keys: this.#byRemoteId.size + this.#byRemoteQpn.size + this.#byLocalQpn.size,
      timers: this.#timers.size + this.#services.size,
    };
  }

  /** Ids and QPNs of connections that have ended, and are not used again yet. */
  get kept(): number {
    return this.#numbers.kept + this.#qpns.size;
  }

  /** The state of an id, for tests and tools. */
  stateOf(id: number): string | undefined {
    return this.#peek(id)?.state;
  }

  // -------------------------------------------------------------------- inside

  /** Connections, and requests that wait. */
  get #count(): number {
    return this.#connections.size + this.#waiting.size;
  }

  /** Whether there is no room for another connection. */
  get #isFull(): boolean {
    return this.#count - this.#resting.size >= this.#maxConnections;
  }

  #dispatch(message: Exclude<CmMessage, { name: 'REQ' }>, from: Route, now: number): void {
    switch (message.name) {
      case 'REP': {
        const connection = this.#peek(message.remoteCommId);
        if (connection) connection.reply(message, now);
        else this.#answerStray(from, now, replyRefusal(message));
        break;
      }
      case 'RTU':
        this.#find(message)?.readyToUse();
        break;
      case 'MRA':
        this.#findAnswered(message)?.delayed(message, now);
        break;
      case 'REJ':
        this.#findRejected(message)?.rejected(message, now);
        break;
      case 'DREQ': {
        const connection = this.#peek(message.remoteCommId);
        if (connection?.remoteId === message.localCommId) connection.disconnectRequest(message, now);
        else this.#answerStray(from, now, disconnectReplyTo(message));
        break;
      }
      case 'DREP':
        this.#find(message)?.disconnectReply(now);
        break;
      case 'LAP': {
        const connection = this.#find(message);
        if (connection && this.#host.apm) connection.pathOffered(message, this.#offeredRoute(message));
        else this.#answerStray(from, now, alternatePathResponseTo(message, connection !== undefined));
        break;
      }
      case 'APR':
        this.#find(message)?.pathAnswered(message);
        break;
      case 'SIDR_REQ':
        this.#services.request(message, from, now);
        break;
      case 'SIDR_REP':
        this.#services.reply(message, from);
        break;
    }
  }

  /** A new request to a listener whose backlog is full: in a flood, most are such, and parsing them all would cost the others. */
  #isOverflow(bytes: Uint8Array, at: number, from: Route): boolean {
    if (bytes.length < at + MAD_BYTES || cmNameAt(bytes, at) !== 'REQ') return false;
    const fields = at + MAD_HEADER_BYTES;
    const { serviceId, localCaGuid, localCommId, localQpn } = CM_LAYOUTS.REQ;
    if (this.#listeners.find(serviceId.get(bytes, fields))?.full !== true) return false;
    const guid = localCaGuid.get(bytes, fields);
    return (
      !this.#byRemoteId.has(idKey(guid, localCommId.get(bytes, fields))) &&
      !this.#byRemoteQpn.has(queuePairKey(guid, localQpn.get(bytes, fields), from))
    );
  }

  /** @param bytes where the message stands, at `at` */
  #request(message: CmMessage<'REQ'>, bytes: Uint8Array, at: number, from: Route, now: number): void {
    const remoteId = idKey(message.localCaGuid, message.localCommId);
    const remoteQpn = queuePairKey(message.localCaGuid, message.localQpn, from);
    const known = this.#peek(this.#byRemoteId.get(remoteId));
    if (known) {
      known.repeatedRequest(message, from);
      return;
    }
    const refuse = (reason: number, additionalInfo?: Uint8Array) =>
      this.#answerStray(from, now, requestRefusal(message, reason, additionalInfo));
    const stale = this.#peek(this.#byRemoteQpn.get(remoteQpn));
    if (stale) {
      refuse(CmRejReason.STALE_CONNECTION);
      stale.stale(now);
      return;
    }
    const { gids } = this.#host;
    const isHere = gids.some(({ gid }) => gidEquals(gid, message.primaryRemoteGid));
    if (!isHere || !isOurPartition(message.pkey)) {
      // Linux has the same reason for a path of a partition that the port is not in (cm_init_av_by_path in cm.c).
      refuse(CmRejReason.INVALID_GID, gids[0]?.gid);
      return;
    }
    if (serviceOf(message, this.#host.xrc ?? false) === undefined) {
      refuse(CmRejReason.INVALID_TRANSPORT_TYPE);
      return;
    }
    const listener = this.#listeners.find(message.serviceId);
    if (listener === undefined) {
      refuse(CmRejReason.INVALID_SERVICE_ID);
      return;
    }
    if (listener.full || this.#isFull) {
      this.counters.overflowed++;
      return;
    }
    const id = this.#drawId(now);
    const waiting = { message, route: from, listener: listener.number };
    this.#waiting.add(id, bytes, at, waiting);
    this.#byRemoteId.set(remoteId, id);
    this.#byRemoteQpn.set(remoteQpn, id);
    listener.hold(id);
    this.#host.event(eventOf(id, waiting));
  }

  /**
   * A connection as it is. That of a request that waits is made anew each time: in its state no message changes it but a REJ, and
   * repeated REQs are answered from it.
   */
  #peek(id: number | undefined): Connection | undefined {
    if (id === undefined) return undefined;
    const connection = this.#connections.get(id);
    if (connection) return connection;
    const waiting = this.#waiting.get(id);
    return waiting && this.#connectionOf(id, waiting);
  }

  /** A connection that is about to change. */
  #take(id: number): Connection | undefined {
    const connection = this.#peek(id);
    if (connection && this.#waiting.has(id)) {
      this.#waiting.delete(id);
      this.#add(connection);
    }
    return connection;
  }

  #connectionOf(id: number, { message, route, listener }: WaitingRequest): Connection {
    const connection = new Connection(
      this.#around,
      {
        id,
        transactionId: message.transactionId,
        ownTransactionId: this.#numbers.transactionId(id),
        route,
        timing: {
          ...DEFAULT_TIMING,
          responseTimeout: message.localCmResponseTimeout,
          maxRetries: message.maxCmRetries,
        },
        ackTimeout: message.primaryAckTimeout,
        interval: listenerInterval(message),
        service: serviceOf(message, true)!,
      },
      'REQ_RCVD',
    );
    connection.remoteId = message.localCommId;
    connection.remoteGuid = message.localCaGuid;
    connection.remoteQpn = message.localQpn;
    connection.listener = listener;
    return connection;
  }

  /** The connection that both ids name. */
  #find({
    localCommId,
    remoteCommId,
  }: {
    localCommId: number;
    remoteCommId: number;
  }): Connection | undefined {
    const connection = this.#peek(remoteCommId);
    if (connection?.remoteId === localCommId) return connection;
    this.counters.unexpected++;
    return undefined;
  }

  /** The path of a LAP from here; undefined where its end is not ours. */
  #offeredRoute(message: CmMessage<'LAP'>): Route | undefined {
    const sgidIndex = this.#host.gids.findIndex(({ gid }) => gidEquals(gid, message.alternateRemoteGid));
    if (sgidIndex < 0) return undefined;
    return {
      sgidIndex,
      gid: message.alternateLocalGid,
      trafficClass: message.alternateTrafficClass,
      hopLimit: message.alternateHopLimit,
      flowLabel: message.alternateFlowLabel,
    };
  }

  /** The same for an answer to REQ, whose sender we did not know by id. */
  #findAnswered(message: CmMessage<'MRA'> | CmMessage<'REJ'>): Connection | undefined {
    const connection = this.#peek(message.remoteCommId);
    if (connection && (connection.remoteId === 0 || connection.remoteId === message.localCommId))
      return connection;
    this.counters.unexpected++;
    return undefined;
  }

  /** A REJ for a timeout may not know our id: the sender's GUID and its own id name the connection (core/cm.c `cm_acquire_rejected_id`). */
  #findRejected(message: CmMessage<'REJ'>): Connection | undefined {
    if (message.reason === CmRejReason.TIMEOUT && message.remoteCommId === 0) {
      const guid = new DataView(
        message.additionalInfo.buffer,
        message.additionalInfo.byteOffset,
      ).getBigUint64(0);
      const id = this.#byRemoteId.get(idKey(guid, message.localCommId));
      if (id === undefined) this.counters.unexpected++;
      return id === undefined ? undefined : this.#take(id);
    }
    // A REJ of a connection that was never made has no id of its sender's.
    const connection = this.#connections.get(message.remoteCommId);
    if (connection && message.localCommId === 0 && connection.remoteId === 0) return connection;
    return this.#findAnswered(message) && this.#take(message.remoteCommId);
  }

  #introduce(connection: Connection, now: number): boolean {
    const id = idKey(connection.remoteGuid, connection.remoteId);
    const qpn = queuePairKey(connection.remoteGuid, connection.remoteQpn, connection.route);
    const old = this.#peek(this.#byRemoteQpn.get(qpn));
    if (old) old.stale(now);
    if (old || this.#byRemoteId.has(id)) return false;
    this.#byRemoteId.set(id, connection.id);
    this.#byRemoteQpn.set(qpn, connection.id);
    return true;
  }

  /** TIMEWAIT of the oldest ends early where too many rest: its id and QPN are kept back all the same, for twice the time. */
  #rest(connection: Connection, now: number): void {
    this.#resting.add(connection);
    if (this.#resting.size <= this.#maxConnections) return;
    const [oldest] = this.#resting;
    oldest.due(now);
  }

  #add(connection: Connection): void {
    this.#connections.set(connection.id, connection);
  }

  #forget(connection: Connection, now: number): void {
    this.#timers.set(connection, Number.POSITIVE_INFINITY);
    this.#connections.delete(connection.id);
    this.#resting.delete(connection);
    const { remoteGuid, remoteId, remoteQpn, localQpn, route } = connection;
    dropFrom(this.#byRemoteId, idKey(remoteGuid, remoteId), connection.id);
    dropFrom(this.#byRemoteQpn, queuePairKey(remoteGuid, remoteQpn, route), connection.id);
    dropFrom(this.#byLocalQpn, localQpn, connection);
    const hold = 2 * askedMicroseconds(connection.ackTimeout);
    this.#numbers.release(connection.id, now, hold);
    if (localQpn !== 0) this.#qpns.keep(localQpn, now, hold);
  }

  /** Connections and datagram requests share one range of ids. */
  #drawId(now: number): number {
    return this.#numbers.draw(
      now,
      (id) => this.#connections.has(id) || this.#waiting.has(id) || this.#services.has(id),
    );
  }

  #checkRoom(): void {
    if (!this.#isFull) return;
    throw new RoceError('ERR_ROCE_LIMIT', `${this.#maxConnections} connections are open`, {
      errno: 'ENOMEM',
    });
  }

  #get(id: number): Connection {
    const connection = this.#take(id);
    if (connection) return connection;
    throw new RoceError('ERR_ROCE_CM_STATE', 'the connection has ended', { errno: 'ENOENT' });
  }

  #stray(now: number): boolean {
    const allowed = this.#strays.take(now);
    if (!allowed) this.counters.suppressed++;
    return allowed;
  }

  #answerStray(to: Route, now: number, answer: Parameters<typeof encodeCm>[0]): void {
    if (!this.#stray(now)) return;
    this.counters.sent++;
    this.#host.send(encodeCm(answer), to);
  }
}

/** Whether a P_Key is of the default partition, the only one of a RoCE port; with full membership or limited. */
function isOurPartition(pkey: number): boolean {
  return (pkey & 0x7fff) === (DEFAULT_PKEY & 0x7fff);
}

function check(done: boolean, { state }: Connection): void {
  if (done) return;
  throw new RoceError('ERR_ROCE_CM_STATE', `the connection is in state ${state}`, { errno: 'ENOTCONN' });
}

function eventOf(id: number, { message, route, listener }: WaitingRequest): RequestEvent {
  const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...request } = message;
  const translated = !gidEquals(route.gid, message.primaryLocalGid);
  return { type: 'request', id, listener, route, request, translated };
}
