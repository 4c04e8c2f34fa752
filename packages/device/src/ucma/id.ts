/** An id of a C program (`struct rdma_cm_id`) as the kernel has it: its queue pair is the program's, which asks for the attributes. */
import { randomInt } from 'node:crypto';
import { constants } from 'node:os';
import type { CmEvent, DatagramRequestEvent, RequestEvent } from '@node-roce/cm';
import {
  ACK_DELAY,
  type Endpoint,
  initiatorSteps,
  listenerSteps,
  type OwnSide,
  parseHeader,
  RDMA_UDP_QKEY,
  type RequestTerms,
  refusalOf,
  requestOf,
  type SocketAddress,
  withHeader,
} from '@node-roce/rdmacm/parts';
import type { QpAttr } from '@node-roce/verbs-api';
import { type CmFields, ipCmServiceId, multicastGid, PortSpace } from '@node-roce/wire';
import { Failed } from '../protocol.ts';
import { Event, type EventInit, eventResponse, type Parameters, termsOf } from './abi.ts';
import { Addresses, isSameVersion, type PortSpaceName } from './addresses.ts';
import { type QpTypeName, qpAttributes } from './attributes.ts';
import type { Channel, EventOwner } from './channel.ts';
import type { Listening, Services } from './services.ts';

const { EINVAL, ENETUNREACH, ETIMEDOUT } = constants.errno;

/** Private data that messages have room for, bytes. */
const ROOM = { connect: 56, accept: 196, reject: 148, resolve: 180, answer: 136 } as const;
const MULTICAST_QPN = 0xff_ffff;
/** The kernel's bound on a backlog, and its default (core/ucma.c `max_backlog`). */
const MAX_BACKLOG = 1024;
const PACKET_LIFETIME = 16;
const DATAGRAM_REJECTED = 2;

type State =
  | 'IDLE'
  | 'BOUND'
  | 'RESOLVING'
  | 'ADDR_RESOLVED'
  | 'ROUTE_RESOLVED'
  | 'LISTEN'
  | 'CONNECTING'
  | 'DESTROYED';

/** The parts that all ids of a device share. */
export interface Surroundings {
  readonly endpoint: Endpoint;
  readonly services: Services;
  readonly nodeGuid: Uint8Array;
  /** Gives an id of a request its number. */
  adopt(id: UcmaId): void;
  /** Forgets an id whose request nobody will hear of. */
  forget(id: UcmaId): void;
}

export interface UcmaIdInit {
  channel: Channel;
  uid: bigint;
  portSpace: PortSpaceName;
  qpType: QpTypeName;
}

/** A group that an id is in, which has a number among the ids. */
export interface Group extends EventOwner {
  number: number;
  readonly of: UcmaId;
}

/** An id: its addresses, its connection, and the events that the program gets. */
export class UcmaId implements EventOwner, Listening {
  number = 0;
  uid: bigint;
  channel: Channel;
  reported = 0;
  get isV6Only(): boolean {
    return this.addresses.isV6Only;
  }
  ackTimeout: number | undefined;
  readonly addresses: Addresses;
  readonly groups = new Set<Group>();
  readonly #around: Surroundings;
  readonly #portSpace: PortSpaceName;
  readonly #qpType: QpTypeName;
  readonly #psn = randomInt(1 << 24);
  #state: State = 'IDLE';
  /** The number of its connection. */
  #connection: number | undefined;
  /** Of a request: its terms, and how to end its wait. */
  #request: RequestTerms | undefined;
  #settled: (() => Promise<void>) | undefined;
  #reply: CmFields<'REP'> | undefined;
  #retryCount = 7;
  #depths = { responderResources: 0, initiatorDepth: 0 };
  #isDisconnected = false;

  constructor(around: Surroundings, { channel, uid, portSpace, qpType }: UcmaIdInit) {
    this.#around = around;
    this.channel = channel;
    this.uid = uid;
    this.#portSpace = portSpace;
    this.#qpType = qpType;
    this.addresses = new Addresses(around.endpoint.device, portSpace);
  }

  get #device() {
    return this.#around.endpoint.device;
  }

  get #isDatagram(): boolean {
    return this.#qpType === 'UD';
  }

  get place(): Listening['place'] {
    return { ...this.addresses.bound!, isAny: this.addresses.isAny };
  }

  // ---------------------------------------------------------------- addresses

  /** rdma_bind_addr(3). */
  bind(place: SocketAddress | undefined): void {
    if (!place || this.#state !== 'IDLE') throw new Failed(EINVAL);
    this.addresses.bind(place);
    this.#state = 'BOUND';
  }

  /** rdma_resolve_addr(3): ADDR_RESOLVED or ADDR_ERROR follows. */
  async resolveAddress(source: SocketAddress | undefined, to: SocketAddress | undefined): Promise<void> {
    if (!to) throw new Failed(EINVAL);
    if (this.#state === 'IDLE' && source) this.bind(source);
    if (this.#state !== 'IDLE' && this.#state !== 'BOUND') throw new Failed(EINVAL);
    const before = this.#state;
    this.#state = 'RESOLVING';
    const found = await this.addresses.towards(to);
    if (this.#state !== 'RESOLVING') return;
    this.#state = before;
    if (found === undefined) {
      this.#raise({ event: Event.ADDR_ERROR, status: -ENETUNREACH });
      return;
    }
    this.addresses.resolved(found, to.port);
    this.#state = 'ADDR_RESOLVED';
    this.#raise({ event: Event.ADDR_RESOLVED });
  }

  resolveRoute(): void {
    if (this.#state !== 'ADDR_RESOLVED') throw new Failed(EINVAL);
    this.#state = 'ROUTE_RESOLVED';
    this.#raise({ event: Event.ROUTE_RESOLVED });
  }

  // --------------------------------------------------------------- connections

  /** rdma_connect(3): the events of the connection follow. */
  async connect(parameters: Parameters): Promise<void> {
    if (this.#state !== 'ROUTE_RESOLVED' || !parameters.isValid) throw new Failed(EINVAL);
    const { qpn, privateData, retryCount, rnrRetryCount, srq, flowControl } = parameters;
    if (privateData.length > (this.#isDatagram ? ROOM.resolve : ROOM.connect)) throw new Failed(EINVAL);
    this.#state = 'CONNECTING';
    this.#retryCount = retryCount;
    this.#depths = parameters;
    const common = {
      serviceId: ipCmServiceId(PortSpace[this.#portSpace], this.addresses.remote!.port),
      route: this.addresses.route!,
      privateData: withHeader(this.addresses.local!, this.addresses.remote!, privateData),
    };
    const { responderResources, initiatorDepth } = parameters;
    const { endpoint } = this.#around;
    const begin = () =>
      this.#isDatagram
        ? endpoint.call('cmResolve', common)
        : endpoint.call('cmConnect', {
            ...common,
            ...{ retryCount, rnrRetryCount, responderResources, initiatorDepth, qpn, srq },
            transport: this.#qpType === 'UC' ? 'UC' : 'RC',
            pathMtu: this.#device.facts.activeMtu,
            startingPsn: this.#psn,
            endToEndFlowControl: flowControl,
            ackDelay: ACK_DELAY,
            packetLifetime: this.#packetLifetime,
          });
    try {
      await endpoint.open(begin, (number) => this.#attach(number));
    } catch (error) {
      if (this.#state === 'CONNECTING') this.#state = 'ROUTE_RESOLVED';
      throw error;
    }
  }

  /** As in rdmacm: REQ carries the option, or one more where our ACK delay needs that. */
  get #packetLifetime(): number {
    return this.ackTimeout === undefined ? PACKET_LIFETIME : Math.max(0, Math.min(this.ackTimeout, 31) - 1);
  }

  #attach(number: number): void {
    this.#connection = number;
    const { endpoint } = this.#around;
    if (this.#state === 'DESTROYED') void endpoint.call('cmDestroy', number).catch(() => {});
    else endpoint.addConnection(number, { onEvent: (event) => this.#happened(event) });
  }

  /** rdma_listen(3). */
  async listen(backlog: number): Promise<void> {
    if (this.#state === 'IDLE') this.bind({ address: '0.0.0.0', port: 0 });
    if (this.#state !== 'BOUND') throw new Failed(EINVAL);
    this.#state = 'LISTEN';
    const most = backlog > 0 && backlog <= MAX_BACKLOG ? backlog : MAX_BACKLOG;
    try {
      await this.#around.services.add(PortSpace[this.#portSpace], this, most);
    } catch (error) {
      if (this.#state === 'LISTEN') this.#state = 'BOUND';
      throw error;
    }
    if (!this.#isOpen) await this.#around.services.remove(this);
  }

  get #isOpen(): boolean {
    return this.#state !== 'DESTROYED';
  }

  /** A request for this listener: its id is new, and its event counts as the listener's. */
  onRequest(event: RequestEvent | DatagramRequestEvent, settled: () => Promise<void>): void {
    const service = this.#isDatagram ? undefined : 'RC';
    const refusal =
      this.#qpType === 'UC' ? undefined : refusalOf(event, service, this.#device.facts.activeMtu);
    const header = parseHeader(event.request.privateData);
    const { endpoint, adopt } = this.#around;
    const ignore = () => {}; // The peer has given up.
    if (refusal || !header || !this.#isOpen) {
      if (refusal?.reason !== undefined)
        void endpoint.call('cmReject', event.id, { reason: refusal.reason }).catch(ignore);
      void endpoint.call('cmDestroy', event.id).then(settled, settled);
      return;
    }
    const id = new UcmaId(this.#around, {
      channel: this.channel,
      uid: 0n,
      portSpace: this.#portSpace,
      qpType: this.#qpType,
    });
    adopt(id);
    const { terms } = requestOf(event);
    id.#request = terms;
    id.#settled = settled;
    const route = terms
      ? { ...event.route, trafficClass: terms.primaryTrafficClass, flowLabel: terms.primaryFlowLabel }
      : event.route;
    const local = { address: header.to, port: this.addresses.bound!.port };
    id.addresses.requested(local, header.from, route);
    id.#state = 'CONNECTING';
    if (terms)
      id.#depths = { responderResources: terms.initiatorDepth, initiatorDepth: terms.responderResources };
    id.#attach(event.id);
    const { privateData } = header;
    const content: Pick<EventInit, 'connection' | 'datagram'> = terms
      ? {
          connection: { ...termsOf(terms), privateData, retryCount: terms.retryCount },
        }
      : { datagram: { privateData } };
    this.#raise({ event: Event.CONNECT_REQUEST, ...content }, id);
  }

  /** rdma_accept(3): REP; or RTU, of a side that has connected; or the answer of a datagram service. */
  async accept(uid: bigint, parameters: Parameters): Promise<void> {
    const number = this.#connection;
    if (number === undefined || this.#state !== 'CONNECTING') throw new Failed(EINVAL);
    const { endpoint } = this.#around;
    const { qpn, privateData, rnrRetryCount, responderResources, initiatorDepth, srq, flowControl } =
      parameters;
    if (!this.#settled) {
      if (parameters.isValid) throw new Failed(EINVAL);
      await endpoint.call('cmReady', number);
      return;
    }
    if (!parameters.isValid) throw new Failed(EINVAL);
    if (privateData.length > (this.#isDatagram ? ROOM.answer : ROOM.accept)) throw new Failed(EINVAL);
    // Events of it may come before the call has resolved.
    const before = this.uid;
    this.uid = uid;
    try {
      if (this.#isDatagram) {
        await endpoint.call('cmAnswer', number, { qpn, qkey: RDMA_UDP_QKEY, privateData });
      } else {
        this.#depths = { responderResources, initiatorDepth };
        await endpoint.call('cmAccept', number, {
          ...{ qpn, responderResources, initiatorDepth, rnrRetryCount, srq, privateData },
          startingPsn: this.#psn,
          endToEndFlowControl: flowControl,
          targetAckDelay: ACK_DELAY,
        });
      }
    } catch (error) {
      this.uid = before;
      throw error;
    }
    await this.#settle();
  }

  async reject(reason: number, privateData: Uint8Array): Promise<void> {
    const number = this.#connection;
    if (number === undefined) throw new Failed(EINVAL);
    if (privateData.length > (this.#isDatagram ? ROOM.answer : ROOM.reject)) throw new Failed(EINVAL);
    const { endpoint } = this.#around;
    if (this.#isDatagram) await endpoint.call('cmAnswer', number, { status: DATAGRAM_REJECTED, privateData });
    else await endpoint.call('cmReject', number, { reason, privateData });
    await this.#settle();
  }

  /** rdma_disconnect(3): sends DREQ, or DREP. Nothing is left to do where the connection has ended already. */
  async disconnect(): Promise<void> {
    if (this.#connection === undefined) throw new Failed(EINVAL);
    await this.#around.endpoint.call('cmDisconnect', this.#connection).catch(() => {});
  }

  async #settle(): Promise<void> {
    const settled = this.#settled;
    this.#settled = undefined;
    await settled?.();
  }

  #happened(event: CmEvent): void {
    switch (event.type) {
      case 'response': {
        const { reply } = event;
        this.#reply = reply;
        this.#raise({
          event: Event.CONNECT_RESPONSE,
          connection: termsOf(reply),
        });
        break;
      }
      case 'established':
        // The side that has connected knows it from its own call.
        if (this.#request) this.#raise({ event: Event.ESTABLISHED, connection: {} });
        break;
      case 'rejected': {
        const { reason, privateData } = event.reject;
        this.#raise({ event: Event.REJECTED, status: reason, connection: { privateData } });
        void this.#settle();
        break;
      }
      case 'unreachable':
        this.#raise({ event: Event.UNREACHABLE, status: -ETIMEDOUT });
        void this.#settle();
        break;
      case 'disconnected':
        if (this.#isDisconnected) break;
        this.#isDisconnected = true;
        this.#raise({
          event: Event.DISCONNECTED,
          status: event.cause === 'timeout' ? -ETIMEDOUT : 0,
          connection: {},
        });
        break;
      case 'timewait-exit':
        this.#raise({ event: Event.TIMEWAIT_EXIT });
        break;
      case 'datagram-response': {
        const { status, qpn, qkey, privateData } = event.reply;
        if (status !== 0) this.#raise({ event: Event.UNREACHABLE, status, datagram: { privateData } });
        else
          this.#raise({
            event: Event.ESTABLISHED,
            datagram: { qpn, qkey, to: this.addresses.addressHandle(this.addresses.route!.gid), privateData },
          });
        break;
      }
      default:
    }
  }

  // ---------------------------------------------------------------- queue pair

  /** The attributes of the program's queue pair for a state. */
  attributes(state: number): QpAttr {
    const { facts } = this.#device;
    const isConnected = this.#connection !== undefined;
    const own: OwnSide = {
      ...this.#depths,
      type: 'RC',
      psn: this.#psn,
      retryCount: this.#retryCount,
      minRnrTimer: undefined,
      ackTimeout: this.ackTimeout,
      packetLifetime: this.#packetLifetime,
      limits: facts.limits,
    };
    const { route } = this.addresses;
    const steps = () => {
      if (this.#request) return listenerSteps(own, this.#request, route!);
      if (this.#reply) return initiatorSteps(own, this.#reply, route!, facts.activeMtu);
      throw new Failed(EINVAL);
    };
    return qpAttributes(state, { qpType: this.#qpType, isConnected, served: own.responderResources, steps });
  }

  // -------------------------------------------------------------------- groups

  /** rdma_join_multicast(3): the event has the way to the group; the program attaches its queue pair itself. */
  join(group: Group, uid: bigint, place: SocketAddress | undefined): void {
    const { local, isAny } = this.addresses;
    if (!place || local === undefined || isAny || this.#state === 'LISTEN') throw new Failed(EINVAL);
    let gid: Uint8Array;
    try {
      gid = multicastGid(place.address);
    } catch {
      throw new Failed(EINVAL);
    }
    if (!isSameVersion(local.address, place.address)) throw new Failed(EINVAL);
    this.groups.add(group);
    const datagram = { qpn: MULTICAST_QPN, qkey: RDMA_UDP_QKEY, to: this.addresses.addressHandle(gid) };
    const bytes = eventResponse({ uid, id: group.number, event: Event.MULTICAST_JOIN, datagram });
    this.channel.push({ owner: group, about: group, bytes });
  }

  // ----------------------------------------------------------------------- end

  #raise(init: Omit<EventInit, 'uid' | 'id'>, about: UcmaId = this): void {
    if (!this.#isOpen) return;
    const bytes = eventResponse({ ...init, uid: this.uid, id: about.number });
    this.channel.push({ owner: this, about, bytes });
  }

  /** The id and what it has begun end; peers hear of it. Its events are taken back. */
  async destroy(): Promise<void> {
    if (!this.#isOpen) return;
    this.#state = 'DESTROYED';
    this.addresses.release();
    for (const group of this.groups) this.channel.drop(group);
    const requests = this.channel.drop(this);
    const { endpoint, services, forget } = this.#around;
    if (this.#connection !== undefined) {
      endpoint.removeConnection(this.#connection);
      await endpoint.call('cmDestroy', this.#connection).catch(() => {}); // It has ended already.
    }
    await services.remove(this);
    await this.#settle();
    // Requests that the program has not heard of.
    for (const request of requests)
      if (request instanceof UcmaId) {
        forget(request);
        await request.destroy();
      }
  }
}
