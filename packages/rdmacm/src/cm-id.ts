import { inspect } from 'node:util';
import type { AlternatePath, CmEvent } from '@node-roce/cm';
import {
  type AddressHandle,
  type Device,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
  RoceError,
  type XrcDomain,
  XrcTarget,
} from '@node-roce/verbs-api';
import { type CmFields, CmSidrStatus, ipCmServiceId, multicastGid, PortSpace } from '@node-roce/wire';
import { parseHeader, type SocketAddress, withHeader } from './addresses.ts';
import { AlternatePaths } from './alternate-paths.ts';
import { Attempt } from './attempt.ts';
import { Endpoint } from './endpoint.ts';
import {
  closedError,
  foreignDomain,
  hostAndPort,
  PortTakenError,
  portTaken,
  rejectedError,
  removalError,
  unreachableError,
  unresolvedError,
} from './errors.ts';
import type { CmEventName } from './events.ts';
import { Groups } from './groups.ts';
import type { CmIdState, ConnectionRequest, DatagramPeer, PeerTerms } from './id-types.ts';
import type { RequestTerms, WaitingRequest } from './incoming.ts';
import { Listening, type Place } from './listening.ts';
import { Negotiation, NO_TERMS, peerTerms } from './negotiation.ts';
import {
  checkAddress,
  checkAlternate,
  checkDestination,
  checkDomain,
  checkGroup,
  checkIdOptions,
  checkJoin,
  checkPlace,
  checkPort,
  checkReason,
  checkWait,
  checkXrcDomain,
} from './options.ts';
import {
  type ConnectionParameters,
  checkDepths,
  checkParameters,
  checkPrivateData,
  type IdOptions,
  type PortSpaceName,
  PRIVATE_DATA,
  withCodes,
} from './parameters.ts';
import { type Destination, Path } from './path.ts';

/** Q_Key of datagram services and groups (Linux `RDMA_UDP_QKEY`). */
export const RDMA_UDP_QKEY = 0x0123_4567;
const MULTICAST_QPN = 0xff_ffff;
/** Ports that are drawn until one is free. */
const MAX_PORT_TRIES = 100;

/** A connection, a listener, or a datagram service's id (`struct rdma_cm_id`). */
export class CmId implements AsyncDisposable {
  /** TCP for connections, UDP for datagram services. */
  readonly portSpace: PortSpaceName;
  /** The program's own value, given at the creation. */
  readonly context: unknown;
  /** The queue pair, once there is one. After closing it, a program may set it to undefined, and make another (rdma_destroy_qp(3)). */
  qp: QueuePair | undefined;
  /** Of a request of XRC: the target that it is accepted with, once there is one. */
  target: XrcTarget | undefined;
  /** Of an id that `getRequest` gave: what the peer asks. */
  request: ConnectionRequest | undefined;
  /** Of a connection that this side began: what the peer's answer states. */
  reply: PeerTerms | undefined;
  /** Of a datagram service, after `connect`: where to send. */
  peer: DatagramPeer | undefined;
  /** The accepting program's private data: 196 bytes (136 of a datagram service), zeros behind what it wrote. */
  replyData: Uint8Array | undefined;
  #state: CmIdState = 'IDLE';
  readonly #options: IdOptions;
  #path: Path;
  #terms: Negotiation;
  #pd: ProtectionDomain | undefined;
  readonly #groups = new Groups();
  readonly #alternates = new AlternatePaths();
  /** Number of the connection. */
  #number: number | undefined;
  /** Of a request: its REQ. */
  #message: RequestTerms | undefined;
  /** Of a request: the place of its listener that it came to, while the program has not answered it. */
  #untaken: Place | undefined;
  /** Of a listener. */
  #listening: Listening<CmId> | undefined;
  readonly #attempt = new Attempt();
  /** Its address is being bound or resolved. */
  #isBinding = false;
  /** The queue pair or target is being created. */
  #isCreating = false;
  /** The queue pair is on its way to RTS. */
  #step: Promise<void> | undefined;
  readonly #ended: Promise<void>;
  #end!: () => void;
  #destroying: Promise<void> | undefined;
  /** Why the device of the id has ended. */
  #removal: { reason: unknown } | undefined;
  /** DEVICE_REMOVAL, the last event of an id, was raised. */
  #isRemoved = false;
  readonly #member = { onRemoval: (reason: unknown) => this.#removed(reason) };
  #begun: Promise<void> | undefined;

  /** rdma_create_id(3). */
  constructor(options: IdOptions = {}) {
    checkIdOptions(options);
    const { portSpace = 'TCP' } = options;
    this.#options = withCodes(options);
    this.portSpace = portSpace;
    this.context = options.context;
    this.#path = new Path(this.#options);
    this.#terms = new Negotiation(this.#options, this.#path);
    this.#ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  /** Where it is on its way. */
  get state(): CmIdState {
    return this.#state;
  }

  /** The device; once the address is resolved or bound. */
  get device(): Device {
    const { device } = this.#path;
    if (!device) throw this.#wrongState('resolveAddr or listen first');
    return device;
  }

  /** Of a listener: the devices of all of its addresses; one, unless it listens at a wildcard. */
  get devices(): readonly Device[] {
    return this.#listening?.devices ?? [];
  }

  /** Our address and port (rdma_get_local_addr(3)). */
  get localAddress(): SocketAddress | undefined {
    return this.#path.local;
  }

  /** The peer's (rdma_get_peer_addr(3)). */
  get remoteAddress(): SocketAddress | undefined {
    return this.#path.remote;
  }

  /** Resolves when the connection ends, or the id is destroyed. */
  get disconnected(): Promise<void> {
    return this.#ended;
  }

  /**
   * Of a `connect` or `accept` that was called: resolves once its message is on its way, rejects where that failed. For a program that
   * gets the outcome as an event. @internal
   */
  get begun(): Promise<void> | undefined {
    return this.#begun;
  }

  get #isXrc(): boolean {
    return this.#options.transport === 'XRC';
  }

  /** The end of the connection on this side. */
  get #ownEnd(): QueuePair | XrcTarget | undefined {
    return this.target ?? this.qp;
  }

  get #datagram(): boolean {
    return this.portSpace === 'UDP' || this.portSpace === 'IPOIB';
  }

  get #endpoint(): Endpoint {
    return Endpoint.of(this.device);
  }

  /**
   * rdma_bind_addr(3): chooses the local address and its device, and the port, which `localAddress` has from then on; for groups, or
   * before `resolveAddr` or `listen`. A wildcard (0.0.0.0, ::) stands for all addresses of this machine; the id has no device then, unless
   * it was created with one.
   *
   * Rejects with EADDRINUSE for a port that another id has at the address; as `openDevice`.
   *
   * @param port 0 draws one that no other id has
   */
  async bindAddr(address: string, port = 0): Promise<void> {
    checkAddress(address);
    checkPort(port);
    if (this.#state !== 'IDLE') throw this.#wrongState('a new id');
    await this.#binds(async () => {
      await this.#path.bind(address, port);
      if (this.#path.device) this.#joins();
      this.#checkAlive();
      this.#state = 'BOUND';
    });
  }

  /** Binds or resolves its address, one call at a time: each takes a device, and the id has one. */
  async #binds(bind: () => Promise<void>): Promise<void> {
    if (this.#isBinding || (this.#state !== 'IDLE' && this.#state !== 'BOUND'))
      throw this.#wrongState('a new id, and one call at a time');
    this.#isBinding = true;
    try {
      await bind();
    } finally {
      this.#isBinding = false;
    }
  }

  /** The id has a device: it hears of the device's end. */
  #joins(): void {
    this.#checkAlive();
    if (this.device.closed) throw closedError('the device is closed');
    this.#endpoint.addMember(this.#member);
  }

  // ---------------------------------------------------------------- initiator

  /**
   * rdma_resolve_addr(3): finds the peer's address, ours that leads there, and its device. The port is that of `bindAddr`, or
   * `sourcePort`, or one that is drawn: no other id has it at our address.
   *
   * Rejects with ERR_ROCE_CM_NO_ADDRESS where a name or a route is missing; as `openDevice` where our address has no RoCE; with
   * the signal's reason.
   */
  async resolveAddr(destination: Destination, options: { signal?: AbortSignal } = {}): Promise<void> {
    checkDestination(destination);
    checkWait(options);
    options.signal?.throwIfAborted();
    await this.#binds(async () => {
      await this.#path.resolve(destination, options.signal);
      this.#joins();
      this.#state = 'ADDR_RESOLVED';
    });
    this.#raise('ADDR_RESOLVED');
  }

  /** rdma_resolve_route(3): the path MTU is that of our port. */
  async resolveRoute(): Promise<void> {
    if (this.#state !== 'ADDR_RESOLVED') throw this.#wrongState('resolveAddr first');
    this.#path.pathMtu = this.device.facts.activeMtu;
    this.#state = 'ROUTE_RESOLVED';
    this.#raise('ROUTE_RESOLVED');
  }

  /**
   * rdma_create_qp(3): the queue pair of this id, ready for receives to be posted. It is the id's: its states follow the
   * connection, and it is closed with the id.
   *
   * Rejects with ERR_ROCE_CM_STATE for an id that has one.
   */
  async createQp(pd: ProtectionDomain, init: Omit<QueuePairInit, 'type'>): Promise<QueuePair> {
    checkDomain(pd);
    if (this.#isXrc && this.request) throw this.#wrongState('createTarget: an initiator asks for a target');
    const { device } = this.#path;
    if (device !== undefined && !pd.isOf(device)) throw foreignDomain('pd');
    const type = this.#datagram ? 'UD' : this.#isXrc ? 'XRC_INI' : 'RC';
    const qp = await this.#createEnd(() => pd.createQp({ ...init, type }));
    this.#pd = pd;
    await this.#prepared(this.#datagram ? qp.activate({ qkey: RDMA_UDP_QKEY }) : qp.toInit());
    return qp;
  }

  /**
   * rdma_create_qp_ex(3) with IBV_QPT_XRC_RECV, for a request of an initiator (`transport: 'XRC'`): a target of the domain, whose states
   * follow the connection. Messages to it come in through the SRQs of the domain. It is closed with the id.
   *
   * Rejects with EINVAL for a domain of another device, and with ERR_ROCE_CM_STATE for a request that has a target.
   */
  async createTarget(domain: XrcDomain, options: { context?: unknown } = {}): Promise<XrcTarget> {
    checkXrcDomain(domain);
    if (!this.#isXrc || this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request of XRC');
    if (!domain.isOf(this.device)) throw foreignDomain('domain');
    const target = await this.#createEnd(() => domain.createTarget(options));
    await this.#prepared(target.toInit());
    return target;
  }

  /** An end of the connection comes to its first state, unless the id was destroyed with it meanwhile. */
  async #prepared(step: Promise<void>): Promise<void> {
    try {
      await step;
    } finally {
      this.#checkAlive();
    }
  }

  /** Creates this side's end of the connection: one at a time, which is the id's from then on. */
  async #createEnd<E extends QueuePair | XrcTarget>(create: () => Promise<E>): Promise<E> {
    if (this.#isCreating || this.#ownEnd) throw this.#wrongState('an id without a queue pair');
    this.#isCreating = true;
    try {
      const end = await create();
      if (this.#isDestroyed) await end.close();
      this.#checkAlive();
      if (end instanceof XrcTarget) this.target = end;
      else this.qp = end;
      return end;
    } finally {
      this.#isCreating = false;
    }
  }

  /**
   * rdma_connect(3): resolves when both sides are ready. With a datagram service, `peer` then has the destination of sends.
   *
   * Rejects with `RefusedError` (ERR_ROCE_CM_REFUSED), ERR_ROCE_CM_UNREACHABLE after all repetitions (about 74 s with
   * Linux's intervals), or the signal's reason; the id is then of no more use.
   */
  async connect(
    parameters: ConnectionParameters = {},
    options: { signal?: AbortSignal } = {},
  ): Promise<void> {
    checkParameters(parameters, this.#datagram ? PRIVATE_DATA.resolve : PRIVATE_DATA.connect);
    checkWait(options);
    if (this.#state !== 'ROUTE_RESOLVED') throw this.#wrongState('resolveRoute first');
    this.#checkDepths(parameters);
    options.signal?.throwIfAborted();
    const { qp } = this;
    if (!qp) throw this.#wrongState('createQp first');
    this.#state = 'CONNECTING';
    const endpoint = this.#endpoint;
    const begin = () =>
      this.#datagram
        ? endpoint.call('cmResolve', this.#question(parameters))
        : endpoint.call('cmConnect', this.#terms.request(this.portSpace, qp, parameters));
    await this.#settled(
      endpoint.open(begin, (id) => this.#attach(id)),
      options.signal,
    );
  }

  #checkDepths(parameters: ConnectionParameters): void {
    if (!this.#datagram) checkDepths(parameters, this.device.facts.limits);
  }

  /** SIDR_REQ. */
  #question({ privateData }: ConnectionParameters) {
    const { local, remote, route } = this.#path;
    const serviceId = ipCmServiceId(PortSpace[this.portSpace], remote!.port);
    const header = withHeader(local!, remote!, privateData);
    return { serviceId, route: route!, privateData: header, ...this.#options.timing };
  }

  // ----------------------------------------------------------------- listener

  /**
   * rdma_bind_addr(3) and rdma_listen(3): takes requests at a port; 0 chooses one, or stands for that of `bindAddr`. Requests beyond
   * `backlog` are not answered, and their senders repeat them.
   *
   * A wildcard (0.0.0.0, ::), or no address and no device, stands for each address that this machine has now. Those whose UDP port another
   * program has are left out, with a process warning (ROCE_LISTEN_ADDRESS).
   *
   * Rejects with EADDRINUSE for a port that another id or another listener of the device has.
   */
  async listen(place: { address?: string; port: number; backlog?: number }): Promise<void> {
    checkPlace(place);
    const { address = this.localAddress?.address, backlog = 128 } = place;
    await this.#binds(async () => {
      await this.#path.bind(address, place.port);
      if (this.#path.device) this.#joins();
      for (let tries = 1; ; tries++) {
        this.#checkAlive();
        try {
          await this.#listenTo(backlog);
          return;
        } catch (error) {
          const isTaken = error instanceof PortTakenError;
          if (!isTaken || tries === MAX_PORT_TRIES || !this.#path.redraw()) throw error;
        }
      }
    });
  }

  /** Listens at its place, or at each one that its address stands for. */
  async #listenTo(backlog: number): Promise<void> {
    const { channel } = this.#options;
    const listening = new Listening<CmId>({
      service: this.#datagram ? undefined : this.#isXrc ? 'XRC' : 'RC',
      makeId: (request, place) => this.#requested(request, place),
      onRequest: channel && ((id) => channel.push({ event: 'CONNECT_REQUEST', id, listenId: this })),
      onRemoval: (reason) => this.#removed(reason),
    });
    try {
      if (this.#path.device) await this.#listenAt(listening, this.#path, backlog);
      else await this.#listenEverywhere(listening, backlog);
      // At once after that, or `destroy` would not find the listener.
      this.#checkAlive();
      this.#listening = listening;
      this.#state = 'LISTEN';
    } catch (error) {
      await listening.close(error);
      throw error;
    }
  }

  async #listenAt(listening: Listening<CmId>, path: Path, backlog: number): Promise<void> {
    const endpoint = Endpoint.of(path.device!);
    const service = ipCmServiceId(PortSpace[this.portSpace], path.local!.port);
    const number = await endpoint.call('cmListen', service, backlog).catch((error: RoceError) => {
      throw error.errno === 'EADDRINUSE' ? portTaken(path.local!, error) : error;
    });
    listening.add(path, endpoint, number, path === this.#path);
  }

  async #listenEverywhere(listening: Listening<CmId>, backlog: number): Promise<void> {
    const failures: RoceError[] = [];
    for (const path of this.#path.everywhere()) {
      try {
        const isOpen = await opened(path, failures);
        this.#checkAlive();
        if (isOpen) await this.#listenAt(listening, path, backlog);
      } catch (error) {
        await path.release();
        throw error;
      }
    }
    const [first] = failures;
    if (!first) return;
    if (listening.isEmpty) throw first;
    const { port } = this.#path.local!;
    const reasons = failures.map(({ message }) => message).join('; ');
    process.emitWarning(`the listener at port ${port} leaves addresses out: ${reasons}`, {
      type: 'RoceWarning',
      code: 'ROCE_LISTEN_ADDRESS',
    });
  }

  /** rdma_get_request(3): the next request, as an id to `accept` or `reject`. */
  async getRequest(options: { signal?: AbortSignal } = {}): Promise<CmId> {
    checkWait(options);
    if (this.#listening && this.#removal) throw this.#removal.reason;
    if (this.#state !== 'LISTEN') throw this.#wrongState('listen first');
    return this.#listening!.next(options.signal);
  }

  /** Requests as they come, until the listener is destroyed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CmId, void> {
    for (;;) {
      try {
        yield await this.getRequest();
      } catch (error) {
        if (this.#state === 'DESTROYED' || (error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
    }
  }

  /**
   * rdma_accept(3): resolves when both sides are ready; of a datagram service, once the answer is sent.
   *
   * Rejects as `connect`.
   */
  async accept(parameters: ConnectionParameters = {}, options: { signal?: AbortSignal } = {}): Promise<void> {
    checkParameters(parameters, this.#datagram ? PRIVATE_DATA.answer : PRIVATE_DATA.accept);
    checkWait(options);
    const end = this.#ownEnd;
    if (this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request');
    this.#checkDepths(parameters);
    if (!end) throw this.#wrongState(this.#isXrc ? 'createTarget first' : 'createQp first');
    options.signal?.throwIfAborted();
    this.#take();
    if (this.#datagram) {
      const { privateData } = parameters;
      const answer = { qpn: end.qpNum, qkey: RDMA_UDP_QKEY, privateData };
      await this.#endpoint.call('cmAnswer', this.#number!, answer);
      this.#checkAlive();
      this.#state = 'CONNECTED';
      return;
    }
    this.#state = 'CONNECTING';
    await this.#settled(this.#reply(end, parameters), options.signal);
  }

  /** Takes the queue pair to RTR, and sends REP. */
  async #reply(end: QueuePair | XrcTarget, parameters: ConnectionParameters): Promise<void> {
    const message = this.#message!;
    const reply = this.#terms.reply(end, this.request!, parameters);
    if (end.type !== 'XRC_TGT') await this.#agreeOnCredits(end, message);
    await end.modify(this.#terms.listenerSteps(end, message).rtr);
    await this.#endpoint.call('cmAccept', this.#number!, reply);
  }

  /**
   * rdma_reject(3): 148 bytes of private data, 136 of a datagram service.
   *
   * @param reason one of `CmRejReason`; default CONSUMER_DEFINED, a refusal without a reason
   */
  async reject(privateData?: Uint8Array, reason?: number): Promise<void> {
    checkPrivateData(privateData, this.#datagram ? PRIVATE_DATA.answer : PRIVATE_DATA.reject);
    checkReason(reason);
    if (this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request');
    this.#take();
    const endpoint = this.#endpoint;
    if (this.#datagram)
      await endpoint.call('cmAnswer', this.#number!, { status: CmSidrStatus.REJECT, privateData });
    else await endpoint.call('cmReject', this.#number!, { privateData, reason });
    this.#disconnect();
  }

  // ---------------------------------------------------------- alternate paths

  /**
   * Loads another path on both sides (LAP and APR, IBTA vol 1 §12.8): to another address of the peer, from another address of ours.
   * Both devices need `experimental: ['apm']`. The queue pairs are then in REARM, and armed by the next packets either way,
   * where packets went either way before; each side's device raises PATH_MIG when the connection migrates.
   *
   * Rejects with `RefusedError` where the peer does not take the path, and with ERR_ROCE_CM_UNREACHABLE where it does not answer.
   *
   * @param place.address the peer's address, numeric
   * @param place.source ours; another one of the device, unless given
   * @param place.ackTimeout code of the local ACK timeout on that path; that of the path in use, unless given
   */
  async loadAlternatePath(place: { address: string; source?: string; ackTimeout?: number }): Promise<void> {
    checkAlternate(place);
    const connected = this.#connection;
    if (!connected) throw this.#wrongState('a connection');
    const route = this.#path.alternate(place.address, place.source);
    const ackTimeout = place.ackTimeout ?? (await connected.end.query()).attr.timeout!;
    await this.#alternates.load(connected, { route, ackTimeout });
  }

  /** The connection, once it is made. */
  get #connection() {
    const [end, number] = [this.#ownEnd, this.#number];
    if (this.#state !== 'CONNECTED' || this.#datagram || !end || number === undefined) return undefined;
    return { endpoint: this.#endpoint, number, end };
  }

  // ------------------------------------------------------------------ its end

  /**
   * rdma_disconnect(3): takes the queue pair to the error state, and resolves when the peer has agreed. Where the connection ends
   * already, by the peer or by an earlier call, it resolves at that end.
   */
  async disconnect(): Promise<void> {
    if (this.#state === 'DISCONNECTING' || this.#state === 'DISCONNECTED') return this.#ended;
    if (this.#state !== 'CONNECTED' || this.#datagram) throw this.#wrongState('a connection');
    this.#state = 'DISCONNECTING';
    await this.#stopQp();
    const ending = this.#endpoint.call('cmDisconnect', this.#number!);
    // Where the connection has ended meanwhile, its event has come, or is on its way.
    await ending.catch((error: RoceError) => {
      if (error.code !== 'ERR_ROCE_CM_STATE') throw error;
    });
    await this.#ended;
  }

  /** Takes the queue pair to the error state: what has arrived stays, what waits is flushed. */
  async #stopQp(): Promise<void> {
    await this.#ownEnd?.modify({ qpState: 'ERR' }).catch(() => {}); // The program may have closed it.
  }

  /**
   * rdma_destroy_id(3), with its queue pair: in any state. The peer hears of it, unless the id is the connected one of an XRC target:
   * as with Linux, only `disconnect` ends the initiator's side then.
   */
  destroy(): Promise<void> {
    this.#destroying ??= this.#destroy();
    return this.#destroying;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }

  async #destroy(): Promise<void> {
    const isConnected = this.#state === 'CONNECTED';
    this.#disconnect();
    this.#state = 'DESTROYED';
    // As in Linux (core/ucma.c `ucma_cleanup_events`): a program hears of an id only while it has that.
    this.#options.channel?.forget(this);
    if (this.#path.device) this.#endpoint.removeMember(this.#member);
    const gone = closedError('the id is destroyed');
    this.#attempt.end({ error: gone });
    await this.#listening?.close(gone);
    if (this.#number !== undefined) {
      this.#endpoint.removeConnection(this.#number);
      await this.#release(this.#number, !isConnected);
    }
    try {
      await this.#groups.leaveAll();
      await this.peer?.ah.destroy();
      await this.#ownEnd?.close();
    } finally {
      await this.#path.release();
    }
  }

  // ------------------------------------------------------------------- groups

  /**
   * rdma_join_multicast(3): takes part in a group with Linux's Q_Key; returns where to send. Linux's rxe knows groups of
   * IPv4 only.
   *
   * The address handle is the id's: it is destroyed when the group is left, or with the id.
   *
   * @param options.sendOnly receives nothing: only sends
   */
  async joinMulticast(group: string, options: { sendOnly?: boolean } = {}): Promise<DatagramPeer> {
    checkGroup(group);
    checkJoin(options);
    const { qp } = this;
    if (!this.#datagram || !qp) throw this.#wrongState('an id of port space UDP with a queue pair');
    const way = this.#path.towards(multicastGid(group));
    const ah = await this.#groups.join(qp, group, options.sendOnly === true, () => this.createAh(way));
    this.#checkAlive();
    this.#raise('MULTICAST_JOIN');
    return { ah, remoteQpn: MULTICAST_QPN, remoteQkey: RDMA_UDP_QKEY };
  }

  /** An address handle in the domain of this id's queue pair: to the sender of a datagram (`device.addressFromWc`). */
  async createAh(init: Parameters<ProtectionDomain['createAh']>[0]): Promise<AddressHandle> {
    if (!this.#pd) throw this.#wrongState('createQp first');
    return this.#pd.createAh(init);
  }

  /** rdma_leave_multicast(3). */
  async leaveMulticast(group: string): Promise<void> {
    checkGroup(group);
    if (!this.#groups.has(group)) throw this.#wrongState(`joinMulticast of ${group} first`);
    await this.#groups.leave(group);
  }

  // ------------------------------------------------------------------- inside

  /** An id for a request that came to this listener. */
  #requested({ number, route, privateData, terms, translated }: WaitingRequest, place: Place): CmId {
    const header = parseHeader(privateData)!;
    const { trafficClass: _own, ...options } = this.#options;
    const id = new CmId(options);
    const to = { address: header.to, port: this.#path.local!.port };
    id.#path = place.path.ofRequest(header.from, to, route);
    id.#terms = new Negotiation(options, id.#path);
    id.#state = 'CONNECT_REQUEST';
    id.#message = terms;
    id.#untaken = place;
    id.request = {
      ...(terms ? peerTerms(terms.localQpn, terms) : NO_TERMS),
      privateData: header.privateData,
      retryCount: terms?.retryCount ?? 0,
      translated,
    };
    id.#attach(number);
    id.#joins();
    return id;
  }

  /** @internal */
  [inspect.custom](): string {
    const { state, portSpace, localAddress: local, remoteAddress: remote, qp } = this;
    const ends = `${local ? `, local: ${hostAndPort(local)}` : ''}${remote ? `, remote: ${hostAndPort(remote)}` : ''}`;
    return `CmId { state: ${state}, portSpace: ${portSpace}${ends}${qp ? `, qpNum: 0x${qp.qpNum.toString(16)}` : ''} }`;
  }

  get #isDestroyed(): boolean {
    return this.#state === 'DESTROYED';
  }

  /** After a wait. @throws ERR_ROCE_CLOSED where `destroy` was called meanwhile; the reason where the device has ended */
  #checkAlive(): void {
    if (this.#isDestroyed) throw closedError('the id is destroyed');
    if (this.#removal) throw this.#removal.reason;
  }

  #wrongState(expected: string): RoceError {
    return new RoceError('ERR_ROCE_CM_STATE', `the id is in state ${this.#state}`, {
      errno: 'EINVAL',
      expected,
    });
  }

  /** The program knows of the request: its listener may go. */
  #take(): void {
    this.#untaken?.forget(this.#number!);
    this.#untaken = undefined;
  }

  /** The connection has a number: its events come from now on. */
  #attach(id: number): void {
    this.#number = id;
    if (this.#state === 'DESTROYED') {
      void this.#endpoint.call('cmDestroy', id).catch(() => {}); // The device may be closed.
      return;
    }
    this.#endpoint.addConnection(id, { onEvent: (event) => this.#onEvent(event) });
  }

  /** The device has ended, with what the id had there: DEVICE_REMOVAL (core/cma.c `cma_process_remove`), after the end of a connection. */
  #removed(reason: unknown): void {
    const state = this.#state;
    if (state === 'DESTROYED') return;
    this.#removal = { reason };
    this.#attempt.end({ error: reason });
    this.#listening?.fail(reason);
    this.#disconnect();
    const isConnection = !this.#datagram && (state === 'CONNECTED' || state === 'DISCONNECTING');
    if (isConnection) this.#raise('DISCONNECTED');
    this.#raise('DEVICE_REMOVAL', { error: removalError(reason) });
    this.#isRemoved = true;
  }

  /** Resolves when the connection is made; gives it up where the signal aborts, or its beginning fails. */
  async #settled(beginning: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    // Where the peer's answer was first, that counts.
    const begun = beginning.catch((error) => this.#attempt.end({ error }));
    this.#begun = beginning;
    try {
      await this.#attempt.wait(signal);
    } catch (error) {
      await begun; // The connection has a number from then on.
      if (this.#number !== undefined && this.#state !== 'DESTROYED') await this.#release(this.#number, true);
      this.#disconnect();
      throw error;
    }
  }

  /** Releases the connection. Of an XRC target, `cmDestroy` sends no DREQ: where `disconnects`, one is sent before. */
  #release(number: number, disconnects: boolean): Promise<unknown> {
    const { call } = this.#endpoint;
    // Before the connection is made, and after its end, it is refused, and `cmDestroy` does what there is to do.
    if (disconnects && this.target) call('cmDisconnect', number).catch(() => {});
    return call('cmDestroy', number).catch(() => {}); // The device may be closed.
  }

  #raise(event: CmEventName, more: { error?: RoceError } = {}): void {
    // A step may end after the device.
    if (this.#state === 'DESTROYED' || this.#isRemoved) return;
    this.#options.channel?.push({ event, id: this, ...more });
  }

  #fail(event: CmEventName, error: RoceError): void {
    this.#raise(event, { error });
    this.#attempt.end({ error });
    this.#disconnect();
  }

  #onEvent(event: CmEvent): void {
    const failed = (error: RoceError) => {
      // Otherwise the attempt has ended before, and its queue pair with it.
      if (this.#state === 'CONNECTING') this.#fail('CONNECT_ERROR', error);
    };
    switch (event.type) {
      case 'response':
        this.#step = this.#responded(event.reply).catch(failed);
        break;
      case 'established':
        // Of an initiator, `#responded` goes on.
        if (this.#message) this.#step = this.#toRts(this.#message).catch(failed);
        break;
      case 'rejected':
        if (this.#untaken && this.#options.channel?.withdraw(this)) {
          // Nobody has heard of it.
          this.destroy().catch(() => {});
          break;
        }
        // Of a connection: the peer gave it up, since our last message has not reached it.
        if (this.#state === 'CONNECTED') void this.#stopQp();
        this.#fail('REJECTED', rejectedError(this.#path.remote!, event.reject));
        break;
      case 'unreachable':
        this.#fail('UNREACHABLE', unreachableError(this.#path.remote!));
        break;
      case 'disconnected':
        void this.#peerLeft();
        break;
      case 'path-offered':
        void this.#offered(event.path);
        break;
      case 'path-response':
        this.#alternates.answered(event.status);
        break;
      case 'timewait-exit':
        this.#raise('TIMEWAIT_EXIT');
        break;
      case 'datagram-response':
        void this.#resolved(event.reply).catch(failed);
        break;
      default:
    }
  }

  /** The peer proposes an alternate path. */
  async #offered(path: AlternatePath): Promise<void> {
    await this.#step; // It knows of the connection; here, the queue pair may be on its way to RTS.
    const connected = this.#connection;
    if (connected) await this.#alternates.offered(connected, path);
  }

  /** Initiator: REP came. */
  async #responded(reply: CmFields<'REP'>): Promise<void> {
    const { qp } = this;
    if (!qp || this.#state !== 'CONNECTING') return;
    await this.#agreeOnCredits(qp, reply);
    const { rtr, rts } = this.#terms.initiatorSteps(qp, reply);
    await qp.modify(rtr);
    await qp.modify(rts);
    this.replyData = reply.privateData;
    this.reply = peerTerms(rtr.destQpNum!, reply);
    await this.#endpoint.call('cmReady', this.#number!);
    this.#connected();
  }

  /** Listener: RTU came, or data. */
  async #toRts(message: RequestTerms): Promise<void> {
    const end = this.#ownEnd;
    if (!end || this.#state !== 'CONNECTING') return;
    await end.modify(this.#terms.listenerSteps(end, message).rts);
    this.#connected();
  }

  async #agreeOnCredits(qp: QueuePair, message: { endToEndFlowControl: boolean }): Promise<void> {
    const credits = this.#terms.credits(message);
    if (credits !== this.device.facts.credits) await this.#endpoint.call('cmSetCredits', qp.qpNum, credits);
  }

  #connected(): void {
    if (this.#state !== 'CONNECTING') return;
    this.#state = 'CONNECTED';
    this.#raise('ESTABLISHED');
    this.#attempt.end({});
  }

  async #resolved(reply: CmFields<'SIDR_REP'>): Promise<void> {
    if (reply.status !== CmSidrStatus.SUCCESS) {
      this.#fail('UNREACHABLE', unresolvedError(this.#path.remote!, reply.status, reply.privateData));
      return;
    }
    this.replyData = reply.privateData;
    const ah = await this.createAh(this.#path.towards(this.#path.route!.gid));
    // `destroy` has not seen it.
    if (this.#isDestroyed) await ah.destroy();
    this.#checkAlive();
    this.peer = { ah, remoteQpn: reply.qpn, remoteQkey: reply.qkey };
    this.#connected();
  }

  /** The peer ends the connection, or is gone: DREP is sent, and the queue pair takes nothing more. */
  async #peerLeft(): Promise<void> {
    // A peer that leaves at once was there all the same: what it sent has arrived.
    await this.#step;
    const endpoint = this.#endpoint;
    const number = this.#number!;
    const began = this.#state === 'DISCONNECTING';
    if (this.#state !== 'DESTROYED') this.#state = 'DISCONNECTING';
    if (!began) {
      await this.#stopQp();
      await endpoint.call('cmDisconnect', number).catch(() => {}); // The peer's answer has ended it, or `destroy`.
    }
    this.#attempt.end({ error: closedError('the peer has disconnected') });
    this.#raise('DISCONNECTED');
    this.#disconnect();
  }

  #disconnect(): void {
    this.#take();
    if (this.#state !== 'DESTROYED' && this.#state !== 'IDLE') this.#state = 'DISCONNECTED';
    this.#alternates.end(closedError('the connection has ended'));
    this.#end();
  }
}

/** Opens the device of a path, or notes why its address can't be listened to. */
async function opened(path: Path, failures: RoceError[]): Promise<boolean> {
  try {
    await path.open();
    return true;
  } catch (error) {
    const { errno } = error as RoceError;
    // Another program has the UDP port, or the address is not usable yet.
    if (errno !== 'EADDRINUSE' && errno !== 'EADDRNOTAVAIL') throw error;
    failures.push(error as RoceError);
    await path.release();
    return false;
  }
}
