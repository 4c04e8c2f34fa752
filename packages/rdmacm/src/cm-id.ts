import { inspect } from 'node:util';
import type {
  AddressHandle,
  Device,
  ProtectionDomain,
  QueuePair,
  QueuePairInit,
  RoceError,
  XrcDomain,
  XrcTarget,
} from '@node-roce/verbs-api';
import * as active from './active.ts';
import { parseHeader, type SocketAddress } from './addresses.ts';
import * as datagram from './datagram.ts';
import { foreignDomain, hostAndPort } from './errors.ts';
import { IdCore, IdFields } from './id-core.ts';
import type { CmIdState, DatagramPeer } from './id-types.ts';
import type { WaitingRequest } from './incoming.ts';
import type { Place } from './listening.ts';
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
  checkParameters,
  checkPrivateData,
  type IdOptions,
  type PortSpaceName,
  PRIVATE_DATA,
} from './parameters.ts';
import * as passive from './passive.ts';
import type { Destination } from './path.ts';

/** A connection, a listener, or a datagram service's id (`struct rdma_cm_id`). */
export class CmId extends IdFields implements AsyncDisposable {
  /** TCP for connections, UDP for datagram services. */
  readonly portSpace: PortSpaceName;
  /** The program's own value, given at the creation. */
  readonly context: unknown;
  readonly #core: IdCore;

  /** rdma_create_id(3). */
  constructor(options: IdOptions = {}) {
    super();
    checkIdOptions(options);
    const core: IdCore = new IdCore(this, options, {
      responded: (reply) => active.responded(core, reply),
      toRts: (message) => passive.toRts(core, message),
      resolved: (reply) => datagram.resolved(core, reply),
    });
    this.#core = core;
    this.portSpace = core.portSpace;
    this.context = options.context;
  }

  /** Where it is on its way. */
  get state(): CmIdState {
    return this.#core.state;
  }

  /** The device; once the address is resolved or bound. */
  get device(): Device {
    return this.#core.device;
  }

  /** Of a listener: the devices of all of its addresses; one, unless it listens at a wildcard. */
  get devices(): readonly Device[] {
    return this.#core.listening?.devices ?? [];
  }

  /** Our address and port (rdma_get_local_addr(3)). */
  get localAddress(): SocketAddress | undefined {
    return this.#core.path.local;
  }

  /** The peer's (rdma_get_peer_addr(3)). */
  get remoteAddress(): SocketAddress | undefined {
    return this.#core.path.remote;
  }

  /** Resolves when the connection ends, or the id is destroyed. */
  get disconnected(): Promise<void> {
    return this.#core.ended;
  }

  /**
   * Of a `connect` or `accept` that was called: resolves once its message is on its way, rejects where that failed. For a program that
   * gets the outcome as an event. @internal
   */
  get begun(): Promise<void> | undefined {
    return this.#core.begun;
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
    const core = this.#core;
    if (core.state !== 'IDLE') throw core.wrongState('a new id');
    await core.binds(async () => {
      await core.path.bind(address, port);
      if (core.path.device) core.joins();
      core.checkAlive();
      core.state = 'BOUND';
    });
  }

  // ---------------------------------------------------------------- initiator

  /**
   * rdma_resolve_addr(3): finds the peer's address, ours that leads there, and its device. The port is that of `bindAddr`, or
   * `sourcePort`, or one that is drawn: no other id has it at our address.
   *
   * Rejects with ERR_ROCE_CM_NO_ADDRESS where a name or a route is missing; as `openDevice` where our address has no RoCE; with
   * the signal's reason.
   */
  async resolveAddr(
    destination: Destination,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    checkDestination(destination);
    checkWait(options);
    options.signal?.throwIfAborted();
    const core = this.#core;
    await core.binds(async () => {
      await core.path.resolve(destination, options.signal);
      core.joins();
      core.state = 'ADDR_RESOLVED';
    });
    core.raise('ADDR_RESOLVED');
  }

  /** rdma_resolve_route(3): the path MTU is that of our port. */
  async resolveRoute(): Promise<void> {
    const core = this.#core;
    if (core.state !== 'ADDR_RESOLVED') throw core.wrongState('resolveAddr first');
    core.path.pathMtu = core.device.facts.activeMtu;
    core.state = 'ROUTE_RESOLVED';
    core.raise('ROUTE_RESOLVED');
  }

  /**
   * rdma_create_qp(3): the queue pair of this id, ready for receives to be posted. It is the id's: its states follow the
   * connection, and it is closed with the id.
   *
   * Rejects with ERR_ROCE_CM_STATE for an id that has one.
   */
  async createQp(pd: ProtectionDomain, init: Omit<QueuePairInit, 'type'>): Promise<QueuePair> {
    checkDomain(pd);
    const core = this.#core;
    if (core.isXrc && this.request) throw core.wrongState('createTarget: an initiator asks for a target');
    const { device } = core.path;
    if (device !== undefined && !pd.isOf(device)) throw foreignDomain('pd');
    const type = core.isDatagram ? 'UD' : core.isXrc ? 'XRC_INI' : 'RC';
    const qp = await core.createEnd(() => pd.createQp({ ...init, type }));
    core.pd = pd;
    await core.prepared(core.isDatagram ? qp.activate({ qkey: datagram.RDMA_UDP_QKEY }) : qp.toInit());
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
    const core = this.#core;
    if (!core.isXrc || core.state !== 'CONNECT_REQUEST') throw core.wrongState('a request of XRC');
    if (!domain.isOf(this.device)) throw foreignDomain('domain');
    const target = await core.createEnd(() => domain.createTarget(options));
    await core.prepared(target.toInit());
    return target;
  }

  /**
   * rdma_connect(3): resolves when both sides are ready. With a datagram service, `peer` then has the destination of sends.
   *
   * Rejects with `RefusedError` (ERR_ROCE_CM_REFUSED), ERR_ROCE_CM_UNREACHABLE after all repetitions (about 74 s with
   * Linux's intervals), or the signal's reason; the id is then of no more use.
   */
  async connect(
    parameters: ConnectionParameters = {},
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    checkParameters(parameters, this.#core.isDatagram ? PRIVATE_DATA.resolve : PRIVATE_DATA.connect);
    checkWait(options);
    await active.connectId(this.#core, parameters, options.signal);
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
    const { address = this.localAddress?.address, port, backlog = 128 } = place;
    await passive.listenId(this.#core, { address, port, backlog }, (request, at) =>
      this.#requested(request, at),
    );
  }

  /** rdma_get_request(3): the next request, as an id to `accept` or `reject`. */
  async getRequest(options: { signal?: AbortSignal | undefined } = {}): Promise<CmId> {
    checkWait(options);
    return (await passive.getRequest(this.#core, options.signal)) as CmId;
  }

  /** Requests as they come, until the listener is destroyed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CmId, void> {
    for (;;) {
      try {
        yield await this.getRequest();
      } catch (error) {
        if (this.#core.isDestroyed || (error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
    }
  }

  /**
   * rdma_accept(3): resolves when both sides are ready; of a datagram service, once the answer is sent.
   *
   * Rejects as `connect`.
   */
  async accept(
    parameters: ConnectionParameters = {},
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    checkParameters(parameters, this.#core.isDatagram ? PRIVATE_DATA.answer : PRIVATE_DATA.accept);
    checkWait(options);
    await passive.accept(this.#core, parameters, options.signal);
  }

  /**
   * rdma_reject(3): 148 bytes of private data, 136 of a datagram service.
   *
   * @param reason one of `CmRejReason`; default CONSUMER_DEFINED, a refusal without a reason
   */
  async reject(privateData?: Uint8Array, reason?: number): Promise<void> {
    checkPrivateData(privateData, this.#core.isDatagram ? PRIVATE_DATA.answer : PRIVATE_DATA.reject);
    checkReason(reason);
    await passive.reject(this.#core, privateData, reason);
  }

  /** An id for a request that came to this listener. */
  #requested({ number, route, privateData, terms, translated }: WaitingRequest, place: Place): CmId {
    const header = parseHeader(privateData)!;
    const { trafficClass: _own, ...options } = this.#core.options;
    const id = new CmId(options);
    const core = id.#core;
    const to = { address: header.to, port: this.#core.path.local!.port };
    core.path = place.path.ofRequest(header.from, to, route);
    core.terms = new Negotiation(options, core.path);
    core.state = 'CONNECT_REQUEST';
    core.message = terms;
    core.untaken = place;
    id.request = {
      ...(terms ? peerTerms(terms.localQpn, terms) : NO_TERMS),
      privateData: header.privateData,
      retryCount: terms?.retryCount ?? 0,
      translated,
    };
    core.attach(number);
    core.joins();
    return id;
  }

  // -------------------------------------------------- alternate paths, its end

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
    await this.#core.loadAlternatePath(place);
  }

  /**
   * rdma_disconnect(3): takes the queue pair to the error state, and resolves when the peer has agreed. Where the connection ends
   * already, by the peer or by an earlier call, it resolves at that end.
   */
  async disconnect(): Promise<void> {
    await this.#core.disconnect();
  }

  /**
   * rdma_destroy_id(3), with its queue pair: in any state. The peer hears of it, unless the id is the connected one of an XRC target:
   * as with Linux, only `disconnect` ends the initiator's side then.
   */
  destroy(): Promise<void> {
    return this.#core.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
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
    return datagram.join(this.#core, group, options.sendOnly === true);
  }

  /** An address handle in the domain of this id's queue pair: to the sender of a datagram (`device.addressFromWc`). */
  async createAh(init: Parameters<ProtectionDomain['createAh']>[0]): Promise<AddressHandle> {
    return datagram.createAh(this.#core, init);
  }

  /** rdma_leave_multicast(3). */
  async leaveMulticast(group: string): Promise<void> {
    checkGroup(group);
    const core = this.#core;
    if (!core.groups.has(group)) throw core.wrongState(`joinMulticast of ${group} first`);
    await core.groups.leave(group);
  }

  /** @internal */
  [inspect.custom](): string {
    const { state, portSpace, localAddress: local, remoteAddress: remote, qp } = this;
    const ends = `${local ? `, local: ${hostAndPort(local)}` : ''}${remote ? `, remote: ${hostAndPort(remote)}` : ''}`;
    return `CmId { state: ${state}, portSpace: ${portSpace}${ends}${qp ? `, qpNum: 0x${qp.qpNum.toString(16)}` : ''} }`;
  }
}
