/**
 * The part of an id that all kinds have in common: its state and address, its end of the connection, its events, and its end. The steps of
 * each kind are in `active.ts`, `passive.ts` and `datagram.ts`.
 */
import type { AlternatePath, CmEvent } from '@node-roce/cm';
import {
  type Device,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
  XrcTarget,
} from '@node-roce/verbs-api';
import type { CmFields } from '@node-roce/wire';
import { AlternatePaths } from './alternate-paths.ts';
import { Attempt } from './attempt.ts';
import { Endpoint } from './endpoint.ts';
import { closedError, rejectedError, removalError, unreachableError } from './errors.ts';
import type { CmEventName } from './events.ts';
import { Groups } from './groups.ts';
import type { CmIdState, ConnectionRequest, DatagramPeer, PeerTerms } from './id-types.ts';
import type { RequestTerms } from './incoming.ts';
import type { Listening, Place } from './listening.ts';
import { Negotiation } from './negotiation.ts';
import {
  type ConnectionParameters,
  checkDepths,
  type IdOptions,
  type PortSpaceName,
  withCodes,
} from './parameters.ts';
import { Path } from './path.ts';

/** The fields of an id that programs read; they may set `qp` to undefined. */
export abstract class IdFields {
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

  abstract destroy(): Promise<void>;
}

/** Steps that an event of the connection manager begins, by the kind of the id. */
export interface Steps {
  /** Initiator: REP came. */
  responded(reply: CmFields<'REP'>): Promise<void>;
  /** Listener: RTU came, or data. */
  toRts(message: RequestTerms): Promise<void>;
  /** Datagram service: SIDR_REP came. */
  resolved(reply: CmFields<'SIDR_REP'>): Promise<void>;
}

/** The common part of an id. */
export class IdCore {
  state: CmIdState = 'IDLE';
  readonly fields: IdFields;
  readonly options: IdOptions;
  readonly portSpace: PortSpaceName;
  path: Path;
  terms: Negotiation;
  pd: ProtectionDomain | undefined;
  readonly attempt = new Attempt();
  /** Number of the connection. */
  number: number | undefined;
  /** Of a request: its REQ. */
  message: RequestTerms | undefined;
  /** Of a request: the place of its listener that it came to, while the program has not answered it. */
  untaken: Place | undefined;
  /** Of a listener. */
  listening: Listening<IdFields> | undefined;
  /** Of a `connect` or `accept`: its message is on its way. */
  begun: Promise<void> | undefined;
  readonly ended: Promise<void>;
  #end!: () => void;
  readonly #steps: Steps;
  /** Each with its first use. */
  #groups: Groups | undefined;
  #alternates: AlternatePaths | undefined;
  /** Its address is being bound or resolved. */
  #isBinding = false;
  /** The queue pair or target is being created. */
  #isCreating = false;
  /** The queue pair is on its way to RTS. */
  #step: Promise<void> | undefined;
  #destroying: Promise<void> | undefined;
  /** Why the device of the id has ended. */
  #removal: { reason: unknown } | undefined;
  /** DEVICE_REMOVAL, the last event of an id, was raised. */
  #isRemoved = false;
  readonly #member = { onRemoval: (reason: unknown) => this.removed(reason) };

  constructor(fields: IdFields, options: IdOptions, steps: Steps) {
    this.fields = fields;
    this.options = withCodes(options);
    this.portSpace = options.portSpace ?? 'TCP';
    this.path = new Path(this.options);
    this.terms = new Negotiation(this.options, this.path);
    this.#steps = steps;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get isXrc(): boolean {
    return this.options.transport === 'XRC';
  }

  get isDatagram(): boolean {
    return this.portSpace === 'UDP' || this.portSpace === 'IPOIB';
  }

  get isDestroyed(): boolean {
    return this.state === 'DESTROYED';
  }

  get device(): Device {
    const { device } = this.path;
    if (!device) throw this.wrongState('resolveAddr or listen first');
    return device;
  }

  get endpoint(): Endpoint {
    return Endpoint.of(this.device);
  }

  /** The end of the connection on this side. */
  get ownEnd(): QueuePair | XrcTarget | undefined {
    return this.fields.target ?? this.fields.qp;
  }

  get groups(): Groups {
    this.#groups ??= new Groups();
    return this.#groups;
  }

  // --------------------------------------------------------------- its checks

  /** After a wait. @throws ERR_ROCE_CLOSED where `destroy` was called meanwhile; the reason where the device has ended */
  checkAlive(): void {
    if (this.isDestroyed) throw closedError('the id is destroyed');
    this.checkDevice();
  }

  /** @throws the reason where the device has ended */
  checkDevice(): void {
    if (this.#removal) throw this.#removal.reason;
  }

  checkDepths(parameters: ConnectionParameters): void {
    if (!this.isDatagram) checkDepths(parameters, this.device.facts.limits);
  }

  wrongState(expected: string): RoceError {
    return new RoceError('ERR_ROCE_CM_STATE', `the id is in state ${this.state}`, {
      errno: 'EINVAL',
      expected,
    });
  }

  // --------------------------------------------------------------- its address

  /** Binds or resolves its address, one call at a time: each takes a device, and the id has one. */
  async binds(bind: () => Promise<void>): Promise<void> {
    if (this.#isBinding || (this.state !== 'IDLE' && this.state !== 'BOUND'))
      throw this.wrongState('a new id, and one call at a time');
    this.#isBinding = true;
    try {
      await bind();
    } finally {
      this.#isBinding = false;
    }
  }

  /** The id has a device: it hears of the device's end. */
  joins(): void {
    this.checkAlive();
    if (this.device.closed) throw closedError('the device is closed');
    this.endpoint.addMember(this.#member);
  }

  // ------------------------------------------------ its end of the connection

  /** Creates this side's end of the connection: one at a time, which is the id's from then on. */
  async createEnd<E extends QueuePair | XrcTarget>(create: () => Promise<E>): Promise<E> {
    if (this.#isCreating || this.ownEnd) throw this.wrongState('an id without a queue pair');
    this.#isCreating = true;
    try {
      const end = await create();
      if (this.isDestroyed) await end.close();
      this.checkAlive();
      if (end instanceof XrcTarget) this.fields.target = end;
      else this.fields.qp = end;
      return end;
    } finally {
      this.#isCreating = false;
    }
  }

  /** An end of the connection comes to its first state, unless the id was destroyed with it meanwhile. */
  async prepared(step: Promise<void>): Promise<void> {
    try {
      await step;
    } finally {
      this.checkAlive();
    }
  }

  async agreeOnCredits(qp: QueuePair, message: { endToEndFlowControl: boolean }): Promise<void> {
    const credits = this.terms.credits(message);
    if (credits !== this.device.facts.credits) await this.endpoint.call('cmSetCredits', qp.qpNum, credits);
  }

  /** Takes the queue pair to the error state: what has arrived stays, what waits is flushed. */
  async #stopQp(): Promise<void> {
    await this.ownEnd?.modify({ qpState: 'ERR' }).catch(() => {}); // The program may have closed it.
  }

  // --------------------------------------------------------------- its attempt

  /** Resolves when the connection is made; gives it up where the signal aborts, or its beginning fails. */
  async settled(beginning: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    // Where the peer's answer was first, that counts.
    const begun = beginning.catch((error) => this.attempt.end({ error }));
    this.begun = beginning;
    try {
      await this.attempt.wait(signal);
    } catch (error) {
      await begun; // The connection has a number from then on.
      if (this.number !== undefined && !this.isDestroyed) await this.#release(this.number, true);
      this.over();
      throw error;
    }
  }

  /** The connection has a number: its events come from now on. */
  attach(id: number): void {
    this.number = id;
    if (this.isDestroyed) {
      void this.endpoint.call('cmDestroy', id).catch(() => {}); // The device may be closed.
      return;
    }
    this.endpoint.addConnection(id, { onEvent: (event) => this.#onEvent(event) });
  }

  /** Its last step is done. Where a signal has ended the attempt meanwhile, no connection was made. */
  connected(): void {
    if (this.state !== 'CONNECTING' || !this.attempt.end({})) return;
    this.state = 'CONNECTED';
    this.raise('ESTABLISHED');
  }

  /** The program knows of the request: its listener may go. */
  take(): void {
    this.untaken?.forget(this.number!);
    this.untaken = undefined;
  }

  // ---------------------------------------------------------------- its events

  raise(event: CmEventName, more: { error?: RoceError } = {}): void {
    // A step may end after the device.
    if (this.isDestroyed || this.#isRemoved) return;
    this.options.channel?.push({ event, id: this.fields, ...more });
  }

  fail(event: CmEventName, error: RoceError): void {
    this.raise(event, { error });
    this.attempt.end({ error });
    this.over();
  }

  #onEvent(event: CmEvent): void {
    const failed = (error: RoceError) => {
      // Otherwise the attempt has ended before, and its queue pair with it.
      if (this.state === 'CONNECTING') this.fail('CONNECT_ERROR', error);
    };
    switch (event.type) {
      case 'response':
        this.#step = this.#steps.responded(event.reply).catch(failed);
        break;
      case 'established':
        // Of an initiator, `responded` goes on.
        if (this.message) this.#step = this.#steps.toRts(this.message).catch(failed);
        break;
      case 'rejected':
        if (this.untaken && this.options.channel?.withdraw(this.fields)) {
          // Nobody has heard of it.
          this.fields.destroy().catch(() => {});
          break;
        }
        // Of a connection: the peer gave it up, since our last message has not reached it.
        if (this.state === 'CONNECTED') void this.#stopQp();
        this.fail('REJECTED', rejectedError(this.path.remote!, event.reject));
        break;
      case 'unreachable':
        this.fail('UNREACHABLE', unreachableError(this.path.remote!, this.device.facts.port));
        break;
      case 'disconnected':
        void this.#peerLeft();
        break;
      case 'path-offered':
        void this.#offered(event.path);
        break;
      case 'path-response':
        this.#alternates?.answered(event.status);
        break;
      case 'timewait-exit':
        this.raise('TIMEWAIT_EXIT');
        break;
      case 'datagram-response':
        void this.#steps.resolved(event.reply).catch(failed);
        break;
      default:
    }
  }

  // ----------------------------------------------------------- alternate paths

  get #alternatePaths(): AlternatePaths {
    this.#alternates ??= new AlternatePaths();
    return this.#alternates;
  }

  async loadAlternatePath(place: { address: string; source?: string; ackTimeout?: number }): Promise<void> {
    const connected = this.#connection;
    if (!connected) throw this.wrongState('a connection');
    const route = this.path.alternate(place.address, place.source);
    const ackTimeout = place.ackTimeout ?? (await connected.end.query()).attr.timeout!;
    await this.#alternatePaths.load(connected, { route, ackTimeout });
  }

  /** The peer proposes an alternate path. */
  async #offered(path: AlternatePath): Promise<void> {
    await this.#step; // It knows of the connection; here, the queue pair may be on its way to RTS.
    const connected = this.#connection;
    if (connected) await this.#alternatePaths.offered(connected, path);
  }

  /** The connection, once it is made. */
  get #connection() {
    const { ownEnd: end, number } = this;
    if (this.state !== 'CONNECTED' || this.isDatagram || !end || number === undefined) return undefined;
    return { endpoint: this.endpoint, number, end };
  }

  // ------------------------------------------------------------------- its end

  async disconnect(): Promise<void> {
    if (this.state === 'DISCONNECTING' || this.state === 'DISCONNECTED') return this.ended;
    if (this.state !== 'CONNECTED' || this.isDatagram) throw this.wrongState('a connection');
    this.state = 'DISCONNECTING';
    await this.#stopQp();
    const ending = this.endpoint.call('cmDisconnect', this.number!);
    // Where the connection has ended meanwhile, its event has come, or is on its way.
    await ending.catch((error: RoceError) => {
      if (error.code !== 'ERR_ROCE_CM_STATE') throw error;
    });
    await this.ended;
  }

  /** The peer ends the connection, or is gone: DREP is sent, and the queue pair takes nothing more. */
  async #peerLeft(): Promise<void> {
    // A peer that leaves at once was there all the same: what it sent has arrived.
    await this.#step;
    const endpoint = this.endpoint;
    const number = this.number!;
    const began = this.state === 'DISCONNECTING';
    if (!this.isDestroyed) this.state = 'DISCONNECTING';
    if (!began) {
      await this.#stopQp();
      await endpoint.call('cmDisconnect', number).catch(() => {}); // The peer's answer has ended it, or `destroy`.
    }
    this.attempt.end({ error: closedError('the peer has disconnected') });
    this.raise('DISCONNECTED');
    this.over();
  }

  /** The device has ended, with what the id had there: DEVICE_REMOVAL (core/cma.c `cma_process_remove`), after the end of a connection. */
  removed(reason: unknown): void {
    const { state } = this;
    if (state === 'DESTROYED') return;
    this.#removal = { reason };
    this.attempt.end({ error: reason });
    this.listening?.fail(reason);
    this.over();
    const isConnection = !this.isDatagram && (state === 'CONNECTED' || state === 'DISCONNECTING');
    if (isConnection) this.raise('DISCONNECTED');
    this.raise('DEVICE_REMOVAL', { error: removalError(reason) });
    this.#isRemoved = true;
  }

  /** The connection, or the attempt, is over. */
  over(): void {
    this.take();
    if (!this.isDestroyed && this.state !== 'IDLE') this.state = 'DISCONNECTED';
    this.#alternates?.end(closedError('the connection has ended'));
    this.#end();
  }

  destroy(): Promise<void> {
    this.#destroying ??= this.#destroy();
    return this.#destroying;
  }

  async #destroy(): Promise<void> {
    const isConnected = this.state === 'CONNECTED';
    this.over();
    this.state = 'DESTROYED';
    // As in Linux (core/ucma.c `ucma_cleanup_events`): a program hears of an id only while it has that.
    this.options.channel?.forget(this.fields);
    if (this.path.device) this.endpoint.removeMember(this.#member);
    const gone = closedError('the id is destroyed');
    this.attempt.end({ error: gone });
    await this.listening?.close(gone);
    if (this.number !== undefined) {
      this.endpoint.removeConnection(this.number);
      await this.#release(this.number, !isConnected);
    }
    try {
      await this.#groups?.leaveAll();
      await this.fields.peer?.ah.destroy();
      await this.ownEnd?.close();
    } finally {
      await this.path.release();
    }
  }

  /** Releases the connection. Of an XRC target, `cmDestroy` sends no DREQ: where `disconnects`, one is sent before. */
  #release(number: number, disconnects: boolean): Promise<unknown> {
    const { call } = this.endpoint;
    // Before the connection is made, and after its end, it is refused, and `cmDestroy` does what there is to do.
    if (disconnects && this.fields.target) call('cmDisconnect', number).catch(() => {});
    return call('cmDestroy', number).catch(() => {}); // The device may be closed.
  }
}
