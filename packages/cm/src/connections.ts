import { RoceError } from '@node-roce/transport';
import { Arrivals } from './arrivals.ts';
import { Budget } from './budget.ts';
import {
  Connection,
  initiatorInterval,
  listenerInterval,
  type Surroundings,
  withDefaults,
} from './connection.ts';
import { DatagramServices } from './datagram-services.ts';
import { Directory } from './directory.ts';
import { ackTimeoutCode, askedMicroseconds, DEFAULT_TIMING } from './intervals.ts';
import { Listeners } from './listeners.ts';
import { requestOf } from './messages.ts';
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
import { Timers } from './timers.ts';
import { serviceOf } from './transport.ts';
import { requestEvent, type WaitingRequest } from './waiting.ts';

/** Connections at a time, and as many in TIMEWAIT. */
const MAX_CONNECTIONS = 65_536;
/** QPNs that are kept back at most: an eighth of all. */
const MAX_KEPT_QPNS = 1 << 20;
/** Answers to messages of nobody's: 1000 a second, 64 at once. */
const STRAY_ANSWERS = { perSecond: 1000, burst: 64 };

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
  readonly #maxConnections: number;
  readonly #directory: Directory;
  readonly #timers = new Timers<Connection>();
  readonly #listeners = new Listeners();
  readonly #services: DatagramServices;
  readonly #arrivals: Arrivals;
  readonly #numbers: Numbers;
  readonly #qpns: KeptNumbers;
  readonly #strays = new Budget(STRAY_ANSWERS.perSecond, STRAY_ANSWERS.burst);
  readonly #around: Surroundings;

  constructor(host: CmHost) {
    const { counters } = this;
    this.#host = host;
    this.#maxConnections = host.maxConnections ?? MAX_CONNECTIONS;
    this.#directory = new Directory(this.#maxConnections, (id, request) => this.#connectionOf(id, request));
    this.#qpns = new KeptNumbers(MAX_KEPT_QPNS / (host.numbers?.modulus ?? 1));
    this.#numbers = new Numbers(host.random, host.numbers);
    const shared = {
      send: (mad: Uint8Array, route: Route) => {
        counters.sent++;
        host.send(mad, route);
      },
      draw: (now: number) => this.#drawId(now),
      stray: (now: number) => this.#stray(now),
      listeners: this.#listeners,
      counters,
    };
    this.#around = {
      caGuid: host.caGuid,
      send: shared.send,
      event: (event) => host.event(event),
      setTimer: (connection, deadline) => this.#timers.set(connection, deadline),
      retried: () => counters.retried++,
      unexpected: () => counters.unexpected++,
      introduce: (connection, now) => this.#introduce(connection, now),
      settled: (connection) => this.#listeners.release(connection),
      rests: (connection, now) => this.#directory.rest(connection)?.due(now),
      closed: (connection, now) => this.#forget(connection, now),
    };
    this.#services = new DatagramServices({
      ...shared,
      transactionId: (id) => this.#numbers.transactionId(id),
      event: (event) => host.event(event),
    });
    this.#arrivals = new Arrivals({ ...shared, host, directory: this.#directory, services: this.#services });
  }

  // ------------------------------------------------------------------ the loop

  /** Takes in a MAD at `at`, as queue pair 1 got it; anything may stand there. */
  receive(bytes: Uint8Array, at: number, from: Route, now: number): void {
    this.#arrivals.receive(bytes, at, from, now);
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
    this.#directory.takeWaiting(listener);
    for (const connection of this.#directory.connections)
      if (connection.listener === listener && connection.state === 'REQ_RCVD') connection.abandon(now);
    this.#services.unlisten(listener);
  }

  /** Opens a connection: sends REQ. Returns its id; `response`, `rejected` or `unreachable` follows. */
  connect(init: ConnectInit, now: number): number {
    const timing = withDefaults(init);
    this.#checkRoom();
    const id = this.#drawId(now);
    const ackTimeout = ackTimeoutCode(init.ackDelay ?? 15, timing.packetLifetime);
    const transactionId = this.#numbers.transactionId(id);
    const connection = new Connection(
      this.#around,
      {
        id,
        transactionId,
        ownTransactionId: transactionId,
        route: init.route,
        timing,
        ackTimeout,
        interval: initiatorInterval(timing),
        service: init.transport ?? 'RC',
      },
      'CLOSED',
    );
    this.#directory.add(connection);
    try {
      const { caGuid } = this.#host;
      connection.request(requestOf(init, { ...timing, caGuid, gid: this.#gid(init.route), ackTimeout }), now);
    } catch (error) {
      // A value that does not fit its field.
      this.#forget(connection, now);
      throw error;
    }
    this.#directory.addQpn(connection);
    return id;
  }

  /** Accepts a request: sends REP. The queue pair has to be able to receive; `established` follows. */
  accept(id: number, init: AcceptInit, now: number): void {
    const connection = this.#get(id);
    check(connection.accept(init, now), connection);
    this.#directory.addQpn(connection);
  }

  /** After `response`: the queue pair is in RTS; sends RTU. */
  ready(id: number, privateData?: Uint8Array): void {
    const connection = this.#get(id);
    check(connection.ready(privateData), connection);
  }

  /** A queue pair in RTR or RTS has received its first packet, so the peer is ready. */
  heard(qpn: number): void {
    this.#directory.ofLocalQpn(qpn)?.heard();
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
    this.#directory.take(id)?.abandon(now);
  }

  /** Lets go of all ids: peers hear of it once. */
  close(now: number): void {
    this.#directory.takeWaiting();
    for (const connection of this.#directory.connections) connection.abandon(now);
    this.#services.close();
  }

  /** The event of a request that waits for the program; undefined where the request has ended. */
  requestOf(id: number): RequestEvent | DatagramRequestEvent | undefined {
    const waiting = this.#directory.requestOf(id);
    return waiting ? requestEvent(id, waiting) : this.#services.requestOf(id);
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
    check(connection.loadPath(path, this.#gid(path.route), now), connection);
  }

  /** Answers `path-offered` with one of `CmAprStatus`: sends APR. */
  answerPath(id: number, status: number): void {
    const connection = this.#get(id);
    check(connection.answerPath(status), connection);
  }

  /** A queue pair went over to its alternate path: messages of its connection take the path that was loaded last. */
  migrated(qpn: number): void {
    this.#directory.ofLocalQpn(qpn)?.migrated();
  }

  /** Whether a QPN is a connection's, also in TIMEWAIT, or was within twice the time of TIMEWAIT: no other may have it. */
  holds(qpn: number, now: number): boolean {
    return this.#directory.hasQpn(qpn) || this.#qpns.has(qpn, now);
  }

  /** Whether there is nothing that a program began, or that TIMEWAIT keeps. */
  get idle(): boolean {
    return this.#directory.size === 0 && this.#services.size === 0 && this.#listeners.size === 0;
  }

  /** Counts of connections with those in TIMEWAIT, of requests that wait for the program, of keys of tables, and of timers. */
  get size(): CmSize {
    return {
      connections: this.#directory.size,
      pending: this.#listeners.pending,
      keys: this.#directory.keys,
      timers: this.#timers.size + this.#services.size,
    };
  }

  /** Ids and QPNs of connections that have ended, and are not used again yet. */
  get kept(): number {
    return this.#numbers.kept + this.#qpns.size;
  }

  /** The state of an id, for tests and tools. */
  stateOf(id: number): string | undefined {
    return this.#directory.peek(id)?.state;
  }

  // -------------------------------------------------------------------- inside

  /** The local GID of a route. */
  #gid({ sgidIndex }: Route): Uint8Array {
    return this.#host.gids[sgidIndex]?.gid ?? new Uint8Array(16);
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

  /** REP names the peer: another connection with its queue pair is stale. */
  #introduce(connection: Connection, now: number): boolean {
    const { remoteGuid, remoteQpn, route } = connection;
    this.#directory.peek(this.#directory.idOfPeerQp(remoteGuid, remoteQpn, route))?.stale(now);
    return this.#directory.addPeer(connection);
  }

  #forget(connection: Connection, now: number): void {
    this.#timers.set(connection, Number.POSITIVE_INFINITY);
    this.#directory.remove(connection);
    const { localQpn } = connection;
    const hold = 2 * askedMicroseconds(connection.ackTimeout);
    this.#numbers.release(connection.id, now, hold);
    if (localQpn !== 0) this.#qpns.keep(localQpn, now, hold);
  }

  /** Connections and datagram requests share one range of ids. */
  #drawId(now: number): number {
    return this.#numbers.draw(now, (id) => this.#directory.has(id) || this.#services.has(id));
  }

  #checkRoom(): void {
    if (!this.#directory.isFull) return;
    throw new RoceError('ERR_ROCE_LIMIT', `${this.#maxConnections} connections are open`, {
      errno: 'ENOMEM',
    });
  }

  #get(id: number): Connection {
    const connection = this.#directory.take(id);
    if (connection) return connection;
    throw new RoceError('ERR_ROCE_CM_STATE', 'the connection has ended', { errno: 'ENOENT' });
  }

  #stray(now: number): boolean {
    const allowed = this.#strays.take(now);
    if (!allowed) this.counters.suppressed++;
    return allowed;
  }
}

function check(done: boolean, { state }: Connection): void {
  if (done) return;
  throw new RoceError('ERR_ROCE_CM_STATE', `the connection is in state ${state}`, { errno: 'ENOTCONN' });
}
