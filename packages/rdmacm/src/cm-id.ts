import { type CmEvent, DEFAULT_TIMING, type Route, type Timing } from '@node-roce/cm';
import {
  type AddressHandle,
  type Device,
  EventQueue,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
  RoceError,
} from '@node-roce/verbs-api';
import {
  type CmFields,
  CmRejReason,
  CmSidrStatus,
  gidFromText,
  ipCmServiceId,
  mtuBytesToEnum,
  multicastGid,
  PortSpace,
} from '@node-roce/wire';
import { parseHeader, resolveHost, type SocketAddress, sourceTowards, withHeader } from './addresses.ts';
import { Attempt } from './attempt.ts';
import { Endpoint } from './endpoint.ts';
import { closedError, rejectedError, unreachableError, unresolvedError } from './errors.ts';
import type { CmEventName } from './events.ts';
import type { CmIdState, ConnectionRequest, DatagramPeer } from './id-types.ts';
import { ephemeralPort, LocalSide } from './local-side.ts';
import {
  type ConnectionParameters,
  checkParameters,
  checkPort,
  checkPrivateData,
  checkRange,
  type IdOptions,
  type PortSpaceName,
  PRIVATE_DATA,
} from './parameters.ts';
import { initiatorSteps, listenerSteps, type OwnSide } from './qp-steps.ts';

/** Q_Key of datagram services and groups (Linux `RDMA_UDP_QKEY`). */
export const RDMA_UDP_QKEY = 0x0123_4567;
const MULTICAST_QPN = 0xff_ffff;
const HOP_LIMIT = 64;
/** Our ACK delay, as rxe says of itself. */
const ACK_DELAY = 15;
const DEFAULT_DEPTH = 16;

/** A connection, a listener, or a datagram service's id (`struct rdma_cm_id`). */
export class CmId implements AsyncDisposable {
  /** TCP for connections, UDP for datagram services. */
  readonly portSpace: PortSpaceName;
  /** The program's own value, given at the creation. */
  readonly context: unknown;
  /** The queue pair, once there is one. */
  qp: QueuePair | undefined;
  /** Of an id that `getRequest` gave: what the peer asks. */
  request: ConnectionRequest | undefined;
  /** Of a datagram service, after `connect`: where to send. */
  peer: DatagramPeer | undefined;
  /** The accepting program's private data: 196 bytes (136 of a datagram service), zeros behind what it wrote. */
  replyData: Uint8Array | undefined;
  #state: CmIdState = 'IDLE';
  readonly #options: IdOptions;
  #own: LocalSide;
  #local: SocketAddress | undefined;
  #remote: SocketAddress | undefined;
  #route: Route | undefined;
  #pathMtu = 1024;
  #pd: ProtectionDomain | undefined;
  /** Groups that the queue pair is attached to. */
  readonly #groups = new Set<string>();
  /** Number of the connection, or of the listener. */
  #number: number | undefined;
  #message: CmFields<'REQ'> | undefined;
  /** READs and atomics that are offered to the other side. */
  #offer = { responderResources: DEFAULT_DEPTH, initiatorDepth: DEFAULT_DEPTH };
  #parameters: ConnectionParameters = {};
  readonly #attempt = new Attempt();
  readonly #requests = new EventQueue<CmId>();
  readonly #ended: Promise<void>;
  #end!: () => void;
  #destroying: Promise<void> | undefined;

  /** rdma_create_id(3). */
  constructor(options: IdOptions = {}) {
    const { portSpace = 'TCP', trafficClass = 0, ackTimeout = 0, minRnrTimer = 0 } = options;
    checkRange('trafficClass', trafficClass, 255);
    checkRange('ackTimeout', ackTimeout, 31);
    checkRange('minRnrTimer', minRnrTimer, 31);
    if (!Object.hasOwn(PortSpace, portSpace))
      throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `portSpace: ${portSpace}`, {
        errno: 'EINVAL',
        attribute: 'portSpace',
        expected: Object.keys(PortSpace).join(', '),
      });
    this.#options = options;
    this.portSpace = portSpace;
    this.context = options.context;
    this.#own = new LocalSide(options.device, options.deviceOptions);
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
    const { device } = this.#own;
    if (!device) throw this.#wrongState('resolveAddr or listen first');
    return device;
  }

  /** Our address and port (rdma_get_local_addr(3)). */
  get localAddress(): SocketAddress | undefined {
    return this.#local;
  }

  /** The peer's (rdma_get_peer_addr(3)). */
  get remoteAddress(): SocketAddress | undefined {
    return this.#remote;
  }

  /** Resolves when the connection ends, or the id is destroyed. */
  get disconnected(): Promise<void> {
    return this.#ended;
  }

  get #datagram(): boolean {
    return this.portSpace === 'UDP' || this.portSpace === 'IPOIB';
  }

  /** rdma_bind_addr(3): chooses the local address and its device; for groups, or before `resolveAddr`. */
  async bindAddr(address: string): Promise<void> {
    if (this.#state !== 'IDLE') throw this.#wrongState('a new id');
    this.#local = { address: await this.#own.bind(address, undefined), port: 0 };
    this.#state = 'BOUND';
  }

  // ---------------------------------------------------------------- initiator

  /**
   * rdma_resolve_addr(3): finds the peer's address, ours that leads there, and its device.
   *
   * Rejects with ERR_ROCE_CM_NO_ADDRESS where a name or a route is missing; as `openDevice` where our address has no RoCE.
   */
  async resolveAddr(destination: { host: string; port: number; source?: string }): Promise<void> {
    if (this.#state !== 'IDLE' && this.#state !== 'BOUND') throw this.#wrongState('a new id');
    const { host, port, source = this.#local?.address } = destination;
    checkPort(port);
    const address = await resolveHost(host);
    const from = source ?? (this.#options.device ? undefined : await sourceTowards(address));
    const local = await this.#own.bind(from, gidFromText(address));
    this.#remote = { address, port };
    this.#local = { address: local, port: ephemeralPort() };
    const sgidIndex = this.#own.gidIndex(local);
    this.#route = {
      sgidIndex,
      gid: gidFromText(address),
      trafficClass: this.#options.trafficClass ?? 0,
      hopLimit: HOP_LIMIT,
      // core/cma.c `cma_get_roce_udp_flow_label`: so the paths of connections differ.
      flowLabel: (this.#local.port * 31 + port) & 0xf_ffff,
    };
    this.#state = 'ADDR_RESOLVED';
    this.#raise('ADDR_RESOLVED');
  }

  /** rdma_resolve_route(3): the path MTU is that of our port. */
  async resolveRoute(): Promise<void> {
    if (this.#state !== 'ADDR_RESOLVED') throw this.#wrongState('resolveAddr first');
    this.#pathMtu = this.device.facts.activeMtu;
    this.#state = 'ROUTE_RESOLVED';
    this.#raise('ROUTE_RESOLVED');
  }

  /**
   * rdma_create_qp(3): the queue pair of this id, ready for receives to be posted. It is the id's: its states follow the
   * connection, and it is closed with the id.
   */
  async createQp(pd: ProtectionDomain, init: Omit<QueuePairInit, 'type'>): Promise<QueuePair> {
    const qp = await pd.createQp({ ...init, type: this.#datagram ? 'UD' : 'RC' });
    this.qp = qp;
    this.#pd = pd;
    if (this.#datagram) await qp.activate({ qkey: RDMA_UDP_QKEY });
    else await qp.toInit();
    return qp;
  }

  /**
   * rdma_connect(3): resolves when both sides are ready. With a datagram service, `peer` then says where to send.
   *
   * Rejects with `RefusedError` (ERR_ROCE_CM_REFUSED), ERR_ROCE_CM_UNREACHABLE after all repetitions (about 74 s with
   * Linux's intervals), or the signal's reason; the id is then of no more use.
   */
  async connect(
    parameters: ConnectionParameters = {},
    options: { signal?: AbortSignal } = {},
  ): Promise<void> {
    checkParameters(parameters, this.#datagram ? PRIVATE_DATA.resolve : PRIVATE_DATA.connect);
    if (this.#state !== 'ROUTE_RESOLVED') throw this.#wrongState('resolveRoute first');
    options.signal?.throwIfAborted();
    const { privateData } = parameters;
    const serviceId = ipCmServiceId(PortSpace[this.portSpace], this.#remote!.port);
    const route = this.#route!;
    const header = withHeader(this.#local!, this.#remote!, privateData);
    const endpoint = Endpoint.of(this.device);
    this.#state = 'CONNECTING';
    this.#parameters = parameters;
    if (this.#datagram) {
      const init = { serviceId, route, privateData: header, ...this.#options.timing };
      this.#attach(await endpoint.call('cmResolve', init));
    } else {
      const { qp } = this;
      if (!qp) throw this.#wrongState('createQp first');
      const { responderResources = DEFAULT_DEPTH, initiatorDepth = DEFAULT_DEPTH } = parameters;
      this.#offer = { responderResources, initiatorDepth };
      const { retryCount = 7, rnrRetryCount = 7 } = parameters;
      const init = {
        serviceId,
        route,
        privateData: header,
        pathMtu: this.#pathMtu,
        retryCount,
        rnrRetryCount,
        ...this.#offer,
        qpn: qp.qpNum,
        startingPsn: qp.initialPsn,
        srq: qp.srq !== undefined,
        ackDelay: ACK_DELAY,
        ...this.#timing(),
      };
      this.#attach(await endpoint.call('cmConnect', init));
    }
    await this.#settled(options.signal);
  }

  // ----------------------------------------------------------------- listener

  /**
   * rdma_bind_addr(3) and rdma_listen(3): takes requests at a port; 0 chooses one. Requests beyond `backlog` are not
   * answered, and their senders repeat them.
   *
   * Rejects with EADDRINUSE for a port that has a listener on this device.
   */
  async listen(place: { address?: string; port: number; backlog?: number }): Promise<void> {
    if (this.#state !== 'IDLE') throw this.#wrongState('a new id');
    const { address, backlog = 128 } = place;
    checkPort(place.port);
    checkRange('backlog', backlog, 65_535);
    const local = await this.#own.bind(address, undefined);
    const port = place.port === 0 ? ephemeralPort() : place.port;
    const endpoint = Endpoint.of(this.device);
    this.#number = await endpoint.call('cmListen', ipCmServiceId(PortSpace[this.portSpace], port), backlog);
    this.#local = { address: local, port };
    this.#state = 'LISTEN';
    endpoint.addListener(this.#number, {
      onEvent: (event) => this.#requested(event),
      onClosed: (reason) => this.#requests.fail(reason),
    });
  }

  /** rdma_get_request(3): the next request, as an id to `accept` or `reject`. */
  getRequest(options: { signal?: AbortSignal } = {}): Promise<CmId> {
    if (this.#state !== 'LISTEN') throw this.#wrongState('listen first');
    return this.#requests.next(options.signal);
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
    const { qp } = this;
    if (this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request');
    if (!qp) throw this.#wrongState('createQp first');
    const { privateData } = parameters;
    const endpoint = Endpoint.of(this.device);
    if (this.#datagram) {
      await endpoint.call('cmAnswer', this.#number!, { qpn: qp.qpNum, qkey: RDMA_UDP_QKEY, privateData });
      this.#state = 'CONNECTED';
      return;
    }
    const message = this.#message!;
    this.#state = 'CONNECTING';
    this.#parameters = parameters;
    const asked = this.request!;
    const { responderResources = asked.responderResources, initiatorDepth = asked.initiatorDepth } =
      parameters;
    this.#offer = { responderResources, initiatorDepth };
    await qp.modify(listenerSteps(this.#ownSide(qp), message, this.#route!).rtr);
    await endpoint.call('cmAccept', this.#number!, {
      ...this.#offer,
      qpn: qp.qpNum,
      startingPsn: qp.initialPsn,
      rnrRetryCount: parameters.rnrRetryCount ?? 7,
      srq: qp.srq !== undefined,
      targetAckDelay: ACK_DELAY,
      ...(privateData ? { privateData } : {}),
    });
    await this.#settled(options.signal);
  }

  /**
   * rdma_reject(3): 148 bytes of private data, 136 of a datagram service.
   *
   * @param reason one of `CmRejReason`; CONSUMER_DEFINED, which says nothing but no, unless given
   */
  async reject(privateData?: Uint8Array, reason?: number): Promise<void> {
    checkPrivateData(privateData, this.#datagram ? PRIVATE_DATA.answer : PRIVATE_DATA.reject);
    if (this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request');
    const endpoint = Endpoint.of(this.device);
    if (this.#datagram)
      await endpoint.call('cmAnswer', this.#number!, { status: CmSidrStatus.REJECT, privateData });
    else await endpoint.call('cmReject', this.#number!, { privateData, reason });
    this.#disconnect();
  }

  // ------------------------------------------------------------------ its end

  /** rdma_disconnect(3): takes the queue pair to the error state, and resolves when the peer has agreed. */
  async disconnect(): Promise<void> {
    if (this.#state !== 'CONNECTED' || this.#datagram) throw this.#wrongState('a connection');
    this.#state = 'DISCONNECTING';
    await this.qp?.modify({ qpState: 'ERR' });
    await Endpoint.of(this.device).call('cmDisconnect', this.#number!);
    await this.#ended;
  }

  /** rdma_destroy_id(3), with its queue pair: in any state; the peer hears of it. */
  destroy(): Promise<void> {
    this.#destroying ??= this.#destroy();
    return this.#destroying;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }

  async #destroy(): Promise<void> {
    const listening = this.#state === 'LISTEN';
    this.#disconnect();
    this.#state = 'DESTROYED';
    const gone = closedError('the id is destroyed');
    this.#requests.fail(gone);
    this.#attempt.end({ error: gone });
    const { device } = this.#own;
    if (device && this.#number !== undefined) {
      const endpoint = Endpoint.of(device);
      const ignore = () => {}; // The device may be closed.
      if (listening) {
        endpoint.removeListener(this.#number);
        await endpoint.call('cmUnlisten', this.#number).catch(ignore);
        for (let left = this.#requests.poll(); left; left = this.#requests.poll()) await left.destroy();
      } else {
        endpoint.removeConnection(this.#number);
        await endpoint.call('cmDestroy', this.#number).catch(ignore);
      }
    }
    for (const group of this.#groups) await this.leaveMulticast(group).catch(() => {});
    await this.peer?.ah.destroy();
    await this.qp?.close();
    await this.#own.release();
  }

  // ------------------------------------------------------------------- groups

  /**
   * rdma_join_multicast(3): takes part in a group with Linux's Q_Key; returns where to send. Linux's rxe knows groups of
   * IPv4 only.
   *
   * @param options.sendOnly joins nothing: only sends
   */
  async joinMulticast(group: string, options: { sendOnly?: boolean } = {}): Promise<DatagramPeer> {
    const { qp } = this;
    if (!this.#datagram || !qp) throw this.#wrongState('an id of port space UDP with a queue pair');
    const gid = multicastGid(group);
    if (options.sendOnly !== true) {
      await qp.attachMcast(gid);
      this.#groups.add(group);
    }
    const ah = await this.#wayTo(gid);
    this.#raise('MULTICAST_JOIN');
    return { ah, remoteQpn: MULTICAST_QPN, remoteQkey: RDMA_UDP_QKEY };
  }

  /** An address handle in the domain of this id's queue pair: to the sender of a datagram (`device.addressFromWc`). */
  createAh(init: Parameters<ProtectionDomain['createAh']>[0]): Promise<AddressHandle> {
    if (!this.#pd) throw this.#wrongState('createQp first');
    return this.#pd.createAh(init);
  }

  /** rdma_leave_multicast(3). */
  async leaveMulticast(group: string): Promise<void> {
    if (!this.qp) throw this.#wrongState('joinMulticast first');
    await this.qp.detachMcast(multicastGid(group));
    this.#groups.delete(group);
  }

  // ------------------------------------------------------------------- inside

  /** A request came to this listener. */
  #requested(event: Extract<CmEvent, { type: 'request' | 'datagram-request' }>): void {
    const endpoint = Endpoint.of(this.device);
    const header = parseHeader(event.request.privateData);
    // A header of another version is refused, as by Linux; a path MTU that our port has not, by its reason.
    const tooLarge =
      event.type === 'request' && event.request.pathMtu > mtuBytesToEnum(this.device.facts.activeMtu);
    if (!header || tooLarge) {
      void (async () => {
        if (tooLarge) await endpoint.call('cmReject', event.id, { reason: CmRejReason.INVALID_MTU });
        await endpoint.call('cmDestroy', event.id);
      })().catch(() => {}); // The device may be closed, or the peer have given up.
      return;
    }
    const { trafficClass: _own, ...options } = this.#options;
    const id = new CmId(options);
    id.#own = this.#own.share();
    id.#ask(event, header.from, { address: header.to, port: this.#local!.port }, header.privateData);
    this.#options.channel?.push({ event: 'CONNECT_REQUEST', id, listenId: this });
    this.#requests.push(id);
  }

  /** This id is a request's. */
  #ask(
    event: Extract<CmEvent, { type: 'request' | 'datagram-request' }>,
    from: SocketAddress,
    to: SocketAddress,
    privateData: Uint8Array,
  ): void {
    this.#remote = from;
    this.#local = to;
    this.#route = event.route;
    this.#state = 'CONNECT_REQUEST';
    const connects = event.type === 'request';
    this.#message = connects ? event.request : undefined;
    this.request = {
      privateData,
      responderResources: connects ? event.request.initiatorDepth : 0,
      initiatorDepth: connects ? event.request.responderResources : 0,
      translated: connects && event.translated,
    };
    this.#attach(event.id);
  }

  #ownSide(qp: QueuePair): OwnSide {
    const { minRnrTimer, ackTimeout } = this.#options;
    return {
      ...this.#offer,
      psn: qp.initialPsn,
      retryCount: this.#parameters.retryCount ?? 7,
      minRnrTimer,
      ackTimeout,
      packetLifetime: this.#timing().packetLifetime ?? DEFAULT_TIMING.packetLifetime,
    };
  }

  #wrongState(expected: string): RoceError {
    return new RoceError('ERR_ROCE_CM_STATE', `the id is in state ${this.#state}`, {
      errno: 'EINVAL',
      expected,
    });
  }

  #wayTo(gid: Uint8Array): Promise<AddressHandle> {
    return this.createAh({ gid, hopLimit: HOP_LIMIT, trafficClass: this.#options.trafficClass ?? 0 });
  }

  #timing(): Timing {
    const { timing = {}, ackTimeout } = this.#options;
    // As RDMA_OPTION_ID_ACK_TIMEOUT: what REQ says is the option, or one more where our ACK delay asks for that.
    return ackTimeout === undefined ? timing : { ...timing, packetLifetime: Math.max(0, ackTimeout - 1) };
  }

  #attach(id: number): void {
    this.#number = id;
    if (this.#state === 'DESTROYED') {
      void Endpoint.of(this.device).call('cmDestroy', id);
      return;
    }
    Endpoint.of(this.device).addConnection(id, {
      onEvent: (event) => this.#onEvent(event),
      onClosed: (reason) => {
        this.#attempt.end({ error: reason });
        this.#disconnect();
      },
    });
  }

  /** Resolves when the connection is made; gives it up where the signal aborts. */
  async #settled(signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.#attempt.wait(signal);
    } catch (error) {
      if (this.#number !== undefined && this.#state !== 'DESTROYED')
        await Endpoint.of(this.device)
          .call('cmDestroy', this.#number)
          .catch(() => {});
      this.#disconnect();
      throw error;
    }
  }

  #raise(event: CmEventName, more: { error?: RoceError } = {}): void {
    this.#options.channel?.push({ event, id: this, ...more });
  }

  #fail(event: CmEventName, error: RoceError): void {
    this.#raise(event, { error });
    this.#attempt.end({ error });
    this.#disconnect();
  }

  #onEvent(event: CmEvent): void {
    switch (event.type) {
      case 'response':
        void this.#responded(event.reply).catch((error) => this.#fail('CONNECT_ERROR', error as RoceError));
        break;
      case 'established':
        // Of an initiator, `#responded` goes on.
        if (this.#message)
          void this.#toRts(this.#message).catch((error) => this.#fail('CONNECT_ERROR', error as RoceError));
        break;
      case 'rejected':
        this.#fail('REJECTED', rejectedError(this.#remote!, event.reject));
        break;
      case 'unreachable':
        this.#fail('UNREACHABLE', unreachableError(this.#remote!));
        break;
      case 'disconnected':
        void this.#peerLeft();
        break;
      case 'timewait-exit':
        this.#raise('TIMEWAIT_EXIT');
        break;
      case 'datagram-response':
        void this.#resolved(event.reply).catch((error) => this.#fail('CONNECT_ERROR', error as RoceError));
        break;
      default:
    }
  }

  /** Initiator: REP came. */
  async #responded(reply: CmFields<'REP'>): Promise<void> {
    const { qp } = this;
    if (!qp || this.#state !== 'CONNECTING') return;
    const { rtr, rts } = initiatorSteps(this.#ownSide(qp), reply, this.#route!, this.#pathMtu);
    await qp.modify(rtr);
    await qp.modify(rts);
    this.replyData = reply.privateData;
    await Endpoint.of(this.device).call('cmReady', this.#number!);
    this.#connected();
  }

  /** Listener: RTU came, or data. */
  async #toRts(message: CmFields<'REQ'>): Promise<void> {
    const { qp } = this;
    if (!qp || this.#state !== 'CONNECTING') return;
    await qp.modify(listenerSteps(this.#ownSide(qp), message, this.#route!).rts);
    this.#connected();
  }

  #connected(): void {
    if (this.#state !== 'CONNECTING') return;
    this.#state = 'CONNECTED';
    this.#raise('ESTABLISHED');
    this.#attempt.end({});
  }

  async #resolved(reply: CmFields<'SIDR_REP'>): Promise<void> {
    if (reply.status !== CmSidrStatus.SUCCESS) {
      this.#fail('UNREACHABLE', unresolvedError(this.#remote!, reply.status, reply.privateData));
      return;
    }
    this.replyData = reply.privateData;
    const ah = await this.#wayTo(this.#route!.gid);
    this.peer = { ah, remoteQpn: reply.qpn, remoteQkey: reply.qkey };
    this.#connected();
  }

  /** The peer ends the connection, or is gone: DREP is sent, and the queue pair takes nothing more. */
  async #peerLeft(): Promise<void> {
    const endpoint = Endpoint.of(this.device);
    const number = this.#number!;
    const began = this.#state === 'DISCONNECTING';
    if (this.#state !== 'DESTROYED') this.#state = 'DISCONNECTING';
    if (!began) {
      // What has arrived stays; what waits is flushed.
      await this.qp?.modify({ qpState: 'ERR' }).catch(() => {});
      await endpoint.call('cmDisconnect', number).catch(() => {}); // The peer's answer has ended it, or `destroy`.
    }
    this.#attempt.end({ error: closedError('the peer has disconnected') });
    if (this.#state !== 'DESTROYED') this.#raise('DISCONNECTED');
    this.#disconnect();
  }

  #disconnect(): void {
    if (this.#state !== 'DESTROYED' && this.#state !== 'IDLE') this.#state = 'DISCONNECTED';
    this.#end();
  }
}
