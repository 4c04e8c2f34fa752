import { randomInt } from 'node:crypto';
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
  gidEquals,
  gidFromText,
  ipCmServiceId,
  isIpv4Mapped,
  mtuBytesToEnum,
  multicastGid,
  PortSpace,
} from '@node-roce/wire';
import { parseHeader, resolveHost, type SocketAddress, sourceTowards, withHeader } from './addresses.ts';
import { type Lease, leaseDevice } from './devices.ts';
import { Endpoint } from './endpoint.ts';
import { closedError, rejectedError, unreachableError, unresolvedError } from './errors.ts';
import type { CmEventName } from './events.ts';
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
const FIRST_EPHEMERAL = 49_152;
const DEFAULT_DEPTH = 16;

export type CmIdState =
  | 'IDLE'
  | 'ADDR_RESOLVED'
  | 'ROUTE_RESOLVED'
  | 'LISTEN'
  | 'CONNECT_REQUEST'
  | 'CONNECTING'
  | 'CONNECTED'
  | 'DISCONNECTED'
  | 'DESTROYED';

/** Where datagrams to a service or a group go: the `ud` of a send request. */
export interface DatagramPeer {
  ah: AddressHandle;
  remoteQpn: number;
  remoteQkey: number;
}

/** What a request says. */
export interface ConnectionRequest {
  /** As far as the wire carries it: zeros stand behind what the peer wrote. */
  privateData: Uint8Array;
  /** READs and atomics that the peer wants to have out: what this side should serve. 0 of a datagram service. */
  responderResources: number;
  /** READs and atomics that the peer serves. */
  initiatorDepth: number;
  /** The address in the request is not the one that it came from: data would go astray. */
  translated: boolean;
}

/** A connection, a listener, or a datagram service's id (`struct rdma_cm_id`). */
export class CmId implements AsyncDisposable {
  readonly portSpace: PortSpaceName;
  /** What the program said at its creation. */
  readonly context: unknown;
  /** The queue pair, once there is one. */
  qp: QueuePair | undefined;
  /** Of an id that `getRequest` gave: what the peer asks. */
  request: ConnectionRequest | undefined;
  /** Of a datagram service, after `connect`: where to send. */
  peer: DatagramPeer | undefined;
  /** What the accepting program says: 196 bytes (136 of a datagram service), zeros behind what it wrote. */
  replyData: Uint8Array | undefined;
  #state: CmIdState = 'IDLE';
  readonly #options: IdOptions;
  #device: Device | undefined;
  #lease: Lease | undefined;
  #local: SocketAddress | undefined;
  #remote: SocketAddress | undefined;
  #route: Route | undefined;
  #pathMtu = 1024;
  #pd: ProtectionDomain | undefined;
  /** Number of the connection, or of the listener. */
  #number: number | undefined;
  #message: CmFields<'REQ'> | undefined;
  /** READs and atomics that the other side is told of. */
  #offer = { responderResources: DEFAULT_DEPTH, initiatorDepth: DEFAULT_DEPTH };
  #parameters: ConnectionParameters = {};
  /** How the attempt went. */
  #outcome: { error?: unknown } | undefined;
  #waiting: { resolve(): void; reject(error: unknown): void } | undefined;
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
    this.#device = options.device;
    this.#ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get state(): CmIdState {
    return this.#state;
  }

  /** The device; once the address is resolved or bound. */
  get device(): Device {
    if (!this.#device) throw this.#wrongState('resolveAddr or listen first');
    return this.#device;
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

  // ---------------------------------------------------------------- initiator

  /**
   * rdma_resolve_addr(3): finds the peer's address, ours that leads there, and its device.
   *
   * Rejects with ERR_ROCE_CM_NO_ADDRESS where a name or a route is missing; as `openDevice` where our address has no RoCE.
   */
  async resolveAddr(destination: { host: string; port: number; source?: string }): Promise<void> {
    if (this.#state !== 'IDLE') throw this.#wrongState('a new id');
    const { host, port, source } = destination;
    checkPort(port);
    const address = await resolveHost(host);
    const from = source ?? (this.#options.device ? undefined : await sourceTowards(address));
    const local = await this.#bind(from, gidFromText(address));
    this.#remote = { address, port };
    this.#local = { address: local, port: this.#ephemeral() };
    const sgidIndex = this.#gidIndex(local);
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
    const local = await this.#bind(address, undefined);
    const port = place.port === 0 ? this.#ephemeral() : place.port;
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

  /** rdma_reject(3): 148 bytes of private data, 136 of a datagram service. */
  async reject(privateData?: Uint8Array): Promise<void> {
    checkPrivateData(privateData, this.#datagram ? PRIVATE_DATA.answer : PRIVATE_DATA.reject);
    if (this.#state !== 'CONNECT_REQUEST') throw this.#wrongState('a request');
    const endpoint = Endpoint.of(this.device);
    if (this.#datagram)
      await endpoint.call('cmAnswer', this.#number!, { status: CmSidrStatus.REJECT, privateData });
    else await endpoint.call('cmReject', this.#number!, { privateData });
    this.#disconnect();
  }

  // ------------------------------------------------------------------ its end

  /** rdma_disconnect(3): takes the queue pair to the error state, and resolves when the peer has agreed. */
  async disconnect(): Promise<void> {
    if (this.#state !== 'CONNECTED' || this.#datagram) throw this.#wrongState('a connection');
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
    this.#waiting?.reject(gone);
    if (this.#device && this.#number !== undefined) {
      const endpoint = Endpoint.of(this.#device);
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
    await this.peer?.ah.destroy();
    await this.qp?.close();
    await this.#lease?.release();
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
    if (options.sendOnly !== true) await qp.attachMcast(gid);
    const ah = await this.#createAh(gid);
    this.#raise('MULTICAST_JOIN');
    return { ah, remoteQpn: MULTICAST_QPN, remoteQkey: RDMA_UDP_QKEY };
  }

  /** rdma_leave_multicast(3). */
  async leaveMulticast(group: string): Promise<void> {
    if (!this.qp) throw this.#wrongState('joinMulticast first');
    await this.qp.detachMcast(multicastGid(group));
  }

  // ------------------------------------------------------------------- inside

  /** A request came to this listener. */
  #requested(event: Extract<CmEvent, { type: 'request' | 'datagram-request' }>): void {
    const endpoint = Endpoint.of(this.device);
    const header = parseHeader(event.request.privateData);
    const ignore = () => {};
    if (!header) {
      // As Linux does for a header of another version.
      void endpoint.call('cmDestroy', event.id).catch(ignore);
      return;
    }
    if (event.type === 'request' && event.request.pathMtu > mtuBytesToEnum(this.device.facts.activeMtu)) {
      void endpoint.call('cmReject', event.id, { reason: CmRejReason.INVALID_MTU }).catch(ignore);
      return;
    }
    const { trafficClass: _own, ...options } = this.#options;
    const id = new CmId({ ...options, device: this.device });
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

  #createAh(gid: Uint8Array): Promise<AddressHandle> {
    if (!this.#pd) throw this.#wrongState('createQp first');
    return this.#pd.createAh({ gid, hopLimit: HOP_LIMIT, trafficClass: this.#options.trafficClass ?? 0 });
  }

  /** Takes a device: the one given, or that of an address. Returns our address. */
  async #bind(address: string | undefined, kind: Uint8Array | undefined): Promise<string> {
    if (!this.#device) {
      if (address === undefined)
        throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', 'address: none', {
          errno: 'EINVAL',
          attribute: 'address',
          expected: 'the local address to listen at, or a device',
        });
      this.#lease = await leaseDevice(address, this.#options.deviceOptions ?? {});
      this.#device = this.#lease.device;
    }
    const { gids } = this.#device;
    const fits = (gid: Uint8Array) => kind === undefined || isIpv4Mapped(gid) === isIpv4Mapped(kind);
    const own = address ?? gids.find(({ gid }) => fits(gid))?.address;
    if (own !== undefined && this.#gidIndex(own) >= 0) return own;
    throw new RoceError(
      'ERR_ROCE_CM_NO_ADDRESS',
      `the device has no address ${own ?? "of the peer's kind"}`,
      {
        errno: 'EADDRNOTAVAIL',
        attribute: 'address',
        expected: gids.map((entry) => entry.address).join(', '),
      },
    );
  }

  #gidIndex(address: string): number {
    const wanted = gidFromText(address);
    return this.device.gids.findIndex(({ gid }) => gidEquals(gid, wanted));
  }

  #ephemeral(): number {
    return randomInt(FIRST_EPHEMERAL, 65_536);
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
        this.#waiting?.reject(reason);
        this.#disconnect();
      },
    });
  }

  /** Resolves when the connection is made; gives it up where the signal aborts. */
  async #settled(signal: AbortSignal | undefined): Promise<void> {
    const onAbort = () => {
      this.#waiting?.reject(signal?.reason);
    };
    try {
      await new Promise<void>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        signal?.addEventListener('abort', onAbort, { once: true });
        if (this.#outcome) this.#settle();
      });
    } catch (error) {
      if (this.#number !== undefined && this.#state !== 'DESTROYED')
        await Endpoint.of(this.device)
          .call('cmDestroy', this.#number)
          .catch(() => {});
      this.#disconnect();
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
      this.#waiting = undefined;
    }
  }

  #settle(outcome = this.#outcome): void {
    this.#outcome = outcome;
    if (!outcome) return;
    if (outcome.error === undefined) this.#waiting?.resolve();
    else this.#waiting?.reject(outcome.error);
  }

  #raise(event: CmEventName, more: { error?: RoceError } = {}): void {
    this.#options.channel?.push({ event, id: this, ...more });
  }

  #fail(event: CmEventName, error: RoceError): void {
    this.#raise(event, { error });
    this.#settle({ error });
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
    this.#settle({});
  }

  async #resolved(reply: CmFields<'SIDR_REP'>): Promise<void> {
    if (reply.status !== CmSidrStatus.SUCCESS) {
      this.#fail('UNREACHABLE', unresolvedError(this.#remote!, reply.status, reply.privateData));
      return;
    }
    this.replyData = reply.privateData;
    const ah = await this.#createAh(this.#route!.gid);
    this.peer = { ah, remoteQpn: reply.qpn, remoteQkey: reply.qkey };
    this.#connected();
  }

  /** The peer ends the connection, or is gone: DREP is sent, and the queue pair takes nothing more. */
  async #peerLeft(): Promise<void> {
    const endpoint = Endpoint.of(this.device);
    const number = this.#number!;
    try {
      await this.qp?.modify({ qpState: 'ERR' });
      await endpoint.call('cmDisconnect', number);
    } catch {
      // Our own DREQ was answered, or the id is destroyed.
    }
    this.#settle({ error: closedError('the peer has disconnected') });
    if (this.#state === 'CONNECTED' || this.#state === 'CONNECTING') this.#raise('DISCONNECTED');
    this.#disconnect();
  }

  #disconnect(): void {
    if (this.#state !== 'DESTROYED' && this.#state !== 'IDLE') this.#state = 'DISCONNECTED';
    this.#end();
  }
}
