/**
 * One connection: the state machine of IBTA vol 1 §12.9, with Linux's choices where the specification leaves one
 * (core/cm.c). `Connections` calls it and gives it its tables.
 */
import {
  CmAprStatus,
  type CmFields,
  type CmInput,
  type CmMessage,
  CmMraMessage,
  CmRejMessage,
  CmRejReason,
  encodeCm,
  gidEquals,
} from '@node-roce/wire';
import { AlternatePaths } from './alternate-path.ts';
import {
  answerMicroseconds,
  askedInterval,
  askedMicroseconds,
  DEFAULT_TIMING,
  type Timing,
} from './intervals.ts';
import type { AcceptInit, AlternatePath, CmEvent, EndCause, RejectInit, Route } from './parameters.ts';
import type { Timed } from './timers.ts';
import { repliedQpn, replyFields, requestFields, type ServiceName } from './transport.ts';

/** States of a connection (§12.9.5, 12.9.6). */
export type CmState =
  /** Initiator: REQ is out; and an MRA came for it. */
  | 'REQ_SENT'
  | 'MRA_REQ_RCVD'
  /** Initiator: REP came, the program has not called `ready`. */
  | 'REP_RCVD'
  /** Listener: REQ came, the program has not accepted. */
  | 'REQ_RCVD'
  /** Listener: REP is out; and an MRA came for it. */
  | 'REP_SENT'
  | 'MRA_REP_RCVD'
  | 'ESTABLISHED'
  | 'DREQ_SENT'
  /** DREQ came, the program has not answered with `disconnect`. */
  | 'DREQ_RCVD'
  | 'TIMEWAIT'
  | 'CLOSED';

/** The services that a connection needs of its owner. */
export interface Surroundings {
  readonly caGuid: bigint;
  send(mad: Uint8Array, route: Route): void;
  event(event: CmEvent): void;
  setTimer(connection: Connection, deadline: number): void;
  /** Of a message that is retransmitted. */
  retried(): void;
  unexpected(): void;
  /** REP identifies the peer. False where another connection has that queue pair or id. */
  introduce(connection: Connection, now: number): boolean;
  /** The listener may take another request in its place. */
  settled(connection: Connection): void;
  /** It is in TIMEWAIT. */
  rests(connection: Connection, now: number): void;
  closed(connection: Connection, now: number): void;
}

/** The options of a new connection. */
export interface ConnectionInit {
  id: number;
  /** Of REQ: messages of this attempt carry it (IBTA leaves that open; Linux does so). */
  transactionId: bigint;
  /** Of the messages that this side begins itself. */
  ownTransactionId: bigint;
  route: Route;
  timing: Required<Timing>;
  /** Code: how long this side waits in TIMEWAIT. */
  ackTimeout: number;
  /** The interval of repetitions, µs. */
  interval: number;
  service: ServiceName;
}

/** One communication ID: its state, its messages and their retransmissions (IBTA vol 1 §12.9). */
export class Connection implements Timed {
  deadline = Number.POSITIVE_INFINITY;
  place = -1;
  /** Local communication id. */
  readonly id: number;
  state: CmState;
  /** 0 until a message of the peer has it. */
  remoteId = 0;
  remoteGuid = 0n;
  remoteQpn = 0;
  localQpn = 0;
  /** Number of the listener that the request came to; 0 for an initiator. */
  listener = 0;
  /** The program has released it: it ends by itself, without an event. */
  #abandoned = false;
  /** The peer has forgotten it: the reason of its end, whatever the answer to DREQ. */
  #stale = false;
  readonly #around: Surroundings;
  /** To the peer, as the connection began. */
  readonly route: Route;
  /** The way of messages: that of the connection's packets. */
  #way: Route;
  readonly #paths = new AlternatePaths();
  readonly #timing: Required<Timing>;
  /** Code: how long this side waits in TIMEWAIT. */
  readonly ackTimeout: number;
  readonly #interval: number;
  readonly #service: ServiceName;
  readonly #transactionId: bigint;
  readonly #ownTransactionId: bigint;
  /** Of the DREQ that is answered. */
  #drepTransactionId = 0n;
  /** The message that is repeated until it is answered. */
  #repeated: Uint8Array | undefined;
  #retries = 0;
  /** An MRA came for the LAP since it was sent; of a REQ and a REP the state shows that. */
  #isPathDelayed = false;
  /** RTU, to answer a repeated REP. */
  #rtu: Uint8Array | undefined;

  constructor(around: Surroundings, init: ConnectionInit, state: 'REQ_SENT' | 'REQ_RCVD') {
    this.#around = around;
    this.id = init.id;
    this.state = state;
    this.route = this.#way = init.route;
    this.#timing = init.timing;
    this.ackTimeout = init.ackTimeout;
    this.#interval = init.interval;
    this.#service = init.service;
    this.#transactionId = init.transactionId;
    this.#ownTransactionId = init.ownTransactionId;
  }

  // ------------------------------------------------------- the program's calls

  /** Initiator: sends REQ, again and again until it is answered. */
  request(fields: CmInput<'REQ'>, now: number): void {
    this.localQpn = fields.localQpn ?? 0;
    this.#repeat(
      'REQ_SENT',
      requestFields(this.#service, {
        ...fields,
        name: 'REQ',
        localCommId: this.id,
        transactionId: this.#transactionId,
      } as CmInput<'REQ'>) as CmInput,
      now,
    );
  }

  /** Listener: sends REP in the same way. False in another state than REQ_RCVD. */
  accept(init: AcceptInit, now: number): boolean {
    if (this.state !== 'REQ_RCVD') return false;
    const { qpn, targetAckDelay = 15, rnrRetryCount = 7, ...offer } = init;
    this.#repeat(
      'REP_SENT',
      replyFields(this.#service, {
        ...this.#head('REP'),
        ...offer,
        localQpn: qpn,
        targetAckDelay,
        rnrRetryCount,
        localCaGuid: this.#around.caGuid,
      } as CmInput<'REP'>) as CmInput,
      now,
    );
    this.localQpn = qpn;
    this.#around.settled(this);
    return true;
  }

  /** Initiator: the queue pair is ready to send; sends RTU. False in another state than REP_RCVD. */
  ready(privateData: Uint8Array | undefined): boolean {
    if (this.state !== 'REP_RCVD') return false;
    this.#rtu = encodeCm({ ...this.#head('RTU'), ...(privateData ? { privateData } : {}) } as CmInput);
    this.#enter('ESTABLISHED');
    this.#around.send(this.#rtu, this.#way);
    this.#tell({ type: 'established', id: this.id });
    return true;
  }

  /** Listener: the peer has sent data, so it is ready; its RTU may be late or lost (§12.9.7.2.3). */
  heard(): void {
    if (this.state !== 'REP_SENT' && this.state !== 'MRA_REP_RCVD') return;
    this.#establish();
  }

  /** Refuses a REQ or a REP, or takes back one's own. False where it is too late for that. */
  reject(init: RejectInit, now: number): boolean {
    switch (this.state) {
      case 'REQ_RCVD':
      case 'REP_RCVD':
      case 'REQ_SENT':
      case 'MRA_REQ_RCVD':
        this.#sendReject(init);
        this.#close(now);
        return true;
      case 'REP_SENT':
      case 'MRA_REP_RCVD':
        this.#sendReject(init);
        this.#timewait(now);
        return true;
      default:
        return false;
    }
  }

  /** Ends a connection: sends DREQ, or answers the peer's. False where there is none. */
  disconnect(privateData: Uint8Array | undefined, now: number): boolean {
    const data = privateData ? { privateData } : {};
    if (this.state === 'DREQ_RCVD') {
      this.#around.send(encodeCm({ ...this.#head('DREP'), ...data } as CmInput), this.#way);
      this.#timewait(now);
      return true;
    }
    if (this.state !== 'ESTABLISHED') return false;
    this.#repeat(
      'DREQ_SENT',
      {
        ...this.#head('DREQ'),
        transactionId: this.#ownTransactionId,
        remoteQpn: this.remoteQpn,
        ...data,
      } as CmInput,
      now,
    );
    return true;
  }

  /** Proposes an alternate path: sends LAP. False without a connection, and while an answer is awaited. */
  loadPath(path: AlternatePath, localGid: Uint8Array, now: number): boolean {
    if (this.state !== 'ESTABLISHED' || this.#repeated !== undefined) return false;
    const ids = {
      localCommId: this.id,
      remoteCommId: this.remoteId,
      remoteQpn: this.remoteQpn,
      remoteCmResponseTimeout: this.#timing.responseTimeout,
      ownTransactionId: this.#ownTransactionId,
    };
    this.#repeat('ESTABLISHED', this.#paths.request(path, localGid, ids), now);
    return true;
  }

  /** Answers the peer's LAP. False where none waits. */
  answerPath(status: number): boolean {
    if (this.state !== 'ESTABLISHED') return false;
    const response = this.#paths.answer(status, { localCommId: this.id, remoteCommId: this.remoteId });
    if (response) this.#around.send(response, this.#way);
    return response !== undefined;
  }

  /** The queue pair went over to the path that was loaded last: messages follow it. */
  migrated(): void {
    this.#way = this.#paths.migrated() ?? this.#way;
  }

  /** The program lets go: what it takes to end the connection is done, and no event comes any more. */
  abandon(now: number): void {
    this.#abandoned = true;
    // Others may go on with an XRC target: no DREQ ends it (core/cm.c cm_destroy_id).
    if (this.#service === 'XRC' && this.listener !== 0 && this.state === 'ESTABLISHED') {
      this.#close(now);
      return;
    }
    switch (this.state) {
      case 'REQ_SENT':
      case 'MRA_REQ_RCVD':
        this.reject({ reason: CmRejReason.TIMEOUT, additionalInfo: guidBytes(this.#around.caGuid) }, now);
        break;
      case 'ESTABLISHED':
      case 'DREQ_RCVD':
        this.disconnect(undefined, now);
        break;
      default:
        this.reject({}, now);
    }
  }

  // --------------------------------------------------------- messages that came

  /** A REQ came a second time. */
  repeatedRequest(message: CmMessage<'REQ'>, route: Route): void {
    if (this.state === 'REQ_RCVD') this.#sendMra(CmMraMessage.REQ);
    else if (this.state === 'TIMEWAIT') {
      const { localCommId, transactionId } = message;
      const answer = {
        remoteCommId: localCommId,
        transactionId,
        messageRejected: CmRejMessage.OTHER,
        reason: CmRejReason.STALE_CONNECTION,
      };
      this.#around.send(encodeCm({ name: 'REJ', ...answer }), route);
    } else this.#around.unexpected(); // REP is repeated by its timer.
  }

  reply(message: CmMessage<'REP'>, now: number): void {
    if (this.state === 'ESTABLISHED') {
      // RTU was lost.
      if (this.#rtu && message.localCommId === this.remoteId) this.#around.send(this.#rtu, this.#way);
      else this.#around.unexpected();
      return;
    }
    if (this.state === 'REP_RCVD' && message.localCommId === this.remoteId) {
      this.#sendMra(CmMraMessage.REP);
      return;
    }
    if (this.state !== 'REQ_SENT' && this.state !== 'MRA_REQ_RCVD') {
      this.#around.unexpected();
      return;
    }
    this.remoteId = message.localCommId;
    this.remoteGuid = message.localCaGuid;
    this.remoteQpn = repliedQpn(this.#service, message);
    if (!this.#around.introduce(this, now)) {
      this.#sendReject({ reason: CmRejReason.STALE_CONNECTION }, CmRejMessage.REP);
      this.#tell({ type: 'disconnected', id: this.id, cause: 'stale' });
      this.#close(now);
      return;
    }
    this.#enter('REP_RCVD');
    const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...fields } = message;
    this.#tell({ type: 'response', id: this.id, reply: fields });
  }

  readyToUse(): void {
    if (this.state === 'REP_SENT' || this.state === 'MRA_REP_RCVD') this.#establish();
    else this.#around.unexpected();
  }

  delayed(message: CmMessage<'MRA'>, now: number): void {
    const { messageMraed, serviceTimeout } = message;
    if (messageMraed === CmMraMessage.REQ && this.state === 'REQ_SENT') this.state = 'MRA_REQ_RCVD';
    else if (messageMraed === CmMraMessage.REP && this.state === 'REP_SENT') this.state = 'MRA_REP_RCVD';
    else if (
      messageMraed === CmMraMessage.LAP &&
      this.state === 'ESTABLISHED' &&
      this.#repeated !== undefined &&
      !this.#isPathDelayed
    )
      this.#isPathDelayed = true;
    else {
      this.#around.unexpected();
      return;
    }
    // The count of retries stays as it is (core/cm.c `cm_mra_handler`).
    const wait = askedMicroseconds(serviceTimeout) + askedMicroseconds(this.ackTimeout);
    this.#around.setTimer(this, now + wait);
  }

  rejected(message: CmMessage<'REJ'>, now: number): void {
    const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...reject } = message;
    const stale = reject.reason === CmRejReason.STALE_CONNECTION;
    switch (this.state) {
      case 'REQ_SENT':
      case 'MRA_REQ_RCVD':
      case 'REP_SENT':
      case 'MRA_REP_RCVD':
        this.#tell({ type: 'rejected', id: this.id, reject });
        if (stale) this.#timewait(now);
        else this.#close(now);
        break;
      case 'REQ_RCVD':
        // Whatever the reason: no queue pair of ours was named yet, so none has to rest. (core/cm.c rests where it is stale.)
        this.#tell({ type: 'rejected', id: this.id, reject });
        this.#close(now);
        break;
      case 'REP_RCVD':
      case 'ESTABLISHED':
        this.#tell({ type: 'rejected', id: this.id, reject });
        this.#timewait(now);
        break;
      case 'DREQ_SENT':
        // The peer has no such connection: an answer to DREQ, too.
        this.#ended('peer-closed');
        this.#timewait(now);
        break;
      default:
        this.#around.unexpected();
    }
  }

  disconnectRequest(message: CmMessage<'DREQ'>, now: number): void {
    if (message.remoteQpn !== this.localQpn) {
      this.#around.unexpected();
      return;
    }
    switch (this.state) {
      case 'ESTABLISHED':
      case 'REP_SENT':
      case 'MRA_REP_RCVD':
        this.#drepTransactionId = message.transactionId;
        this.#enter('DREQ_RCVD');
        this.#tell({ type: 'disconnected', id: this.id, cause: 'peer-closed' });
        break;
      case 'DREQ_SENT':
        // Both ended it at once: the program need not be asked.
        this.#drepTransactionId = message.transactionId;
        this.#around.send(encodeCm(this.#head('DREP') as CmInput), this.#way);
        this.#ended('peer-closed');
        this.#timewait(now);
        break;
      case 'TIMEWAIT':
        this.#drepTransactionId = message.transactionId;
        this.#around.send(encodeCm(this.#head('DREP') as CmInput), this.#way);
        break;
      default:
        this.#around.unexpected();
    }
  }

  disconnectReply(now: number): void {
    // In TIMEWAIT, both sides have ended it at once.
    if (this.state === 'TIMEWAIT') return;
    if (this.state !== 'DREQ_SENT') {
      this.#around.unexpected();
      return;
    }
    this.#ended('peer-closed');
    this.#timewait(now);
  }

  /** A LAP came, of a path whose near end we have (`route`) or not. */
  pathOffered(message: CmMessage<'LAP'>, route: Route | undefined): void {
    const { transactionId, remoteQpn, alternateAckTimeout: ackTimeout } = message;
    if (this.state !== 'ESTABLISHED') {
      this.#around.unexpected();
      return;
    }
    const refuse = (status: number) => {
      const ids = { localCommId: this.id, remoteCommId: this.remoteId };
      this.#around.send(encodeCm({ name: 'APR', transactionId, ...ids, status }), this.#way);
    };
    const way = this.#way;
    if (remoteQpn !== this.localQpn) refuse(CmAprStatus.INVALID_QPN);
    else if (route === undefined) refuse(CmAprStatus.INVALID_GID);
    else if (route.sgidIndex === way.sgidIndex && gidEquals(route.gid, way.gid))
      refuse(CmAprStatus.IS_CURRENT);
    else {
      const answer = this.#paths.offer(message, route);
      if (answer === 'new') this.#tell({ type: 'path-offered', id: this.id, path: { route, ackTimeout } });
      else if (answer) this.#around.send(answer, way);
      else this.#sendMra(CmMraMessage.LAP, transactionId);
    }
  }

  pathAnswered(message: CmMessage<'APR'>): void {
    if (this.state !== 'ESTABLISHED' || !this.#paths.answered(message)) {
      this.#around.unexpected();
      return;
    }
    this.#enter('ESTABLISHED');
    this.#tell({ type: 'path-response', id: this.id, status: message.status });
  }

  /** The peer has a new connection with the queue pair of this one: it forgot this one (§12.9.8.3.1). */
  stale(now: number): void {
    if (this.state === 'ESTABLISHED') this.#stale = true;
    this.disconnect(undefined, now);
  }

  /** The deadline has come. */
  due(now: number): void {
    if (this.state === 'TIMEWAIT') {
      this.#tell({ type: 'timewait-exit', id: this.id });
      this.#close(now);
      return;
    }
    if (this.#repeated === undefined) return;
    if (this.#retries < this.#timing.maxRetries) {
      this.#retries++;
      // An answer may be MRA again: each shows that the peer is alive, and stops the clock (§12.9.5).
      if (this.state === 'MRA_REQ_RCVD') this.state = 'REQ_SENT';
      if (this.state === 'MRA_REP_RCVD') this.state = 'REP_SENT';
      this.#isPathDelayed = false;
      this.#around.retried();
      this.#around.send(this.#repeated, this.#way);
      this.#around.setTimer(this, now + this.#interval);
      return;
    }
    if (this.state === 'DREQ_SENT') {
      this.#ended('timeout');
      this.#timewait(now);
      return;
    }
    if (this.state === 'ESTABLISHED') {
      // The connection goes on without that path (§12.9.8.1).
      this.#paths.giveUp();
      this.#enter('ESTABLISHED');
      this.#tell({ type: 'path-response', id: this.id, status: undefined });
      return;
    }
    // The peer may have heard us, and only its answers be lost (§12.9.7.1.2, 12.9.7.2.2).
    this.#tell({ type: 'unreachable', id: this.id });
    this.reject({ reason: CmRejReason.TIMEOUT, additionalInfo: guidBytes(this.#around.caGuid) }, now);
  }

  // -------------------------------------------------------------------- inside

  #head(name: 'REP' | 'RTU' | 'DREQ' | 'DREP' | 'MRA'): object {
    const transactionId = name === 'DREP' ? this.#drepTransactionId : this.#transactionId;
    return { name, transactionId, localCommId: this.id, remoteCommId: this.remoteId };
  }

  #sendMra(messageMraed: number, transactionId = this.#transactionId): void {
    const { serviceTimeout } = this.#timing;
    const message = { ...this.#head('MRA'), transactionId, messageMraed, serviceTimeout } as CmInput;
    this.#around.send(encodeCm(message), this.#way);
  }

  /** Which message it refuses is a matter of the state (core/cm.c `cm_format_rej`). */
  #sendReject(init: RejectInit, messageRejected = REJECTED_IN[this.state] ?? CmRejMessage.OTHER): void {
    const { reason = CmRejReason.CONSUMER_DEFINED, additionalInfo, privateData } = init;
    const message = {
      transactionId: this.#transactionId,
      localCommId: this.id,
      remoteCommId: this.remoteId,
      messageRejected,
      reason,
      ...(additionalInfo ? { additionalInfo, additionalInfoLength: additionalInfo.length } : {}),
      ...(privateData ? { privateData } : {}),
    };
    this.#around.send(encodeCm({ name: 'REJ', ...message }), this.#way);
  }

  /** Enters a state with a message that is repeated. A value that does not fit throws, and changes nothing. */
  #repeat(state: CmState, message: CmInput, now: number): void {
    const mad = encodeCm(message);
    this.#enter(state);
    this.#repeated = mad;
    this.#retries = 0;
    this.#isPathDelayed = false;
    this.#around.send(mad, this.#way);
    this.#around.setTimer(this, now + this.#interval);
  }

  #enter(state: CmState): void {
    this.state = state;
    this.#repeated = undefined;
    this.#around.setTimer(this, Number.POSITIVE_INFINITY);
  }

  #establish(): void {
    this.#enter('ESTABLISHED');
    this.#tell({ type: 'established', id: this.id });
  }

  #timewait(now: number): void {
    this.#around.settled(this);
    this.#enter('TIMEWAIT');
    this.#around.setTimer(this, now + askedMicroseconds(this.ackTimeout));
    this.#around.rests(this, now);
  }

  #close(now: number): void {
    this.#around.settled(this);
    this.#enter('CLOSED');
    this.#around.closed(this, now);
  }

  /** The end of a connection in DREQ_SENT. */
  #ended(cause: EndCause): void {
    this.#tell({ type: 'disconnected', id: this.id, cause: this.#stale ? 'stale' : cause });
  }

  #tell(event: CmEvent): void {
    if (!this.#abandoned) this.#around.event(event);
  }
}

const REJECTED_IN: Partial<Record<CmState, number>> = {
  REQ_RCVD: CmRejMessage.REQ,
  REP_RCVD: CmRejMessage.REP,
};

/** The interval of an initiator's messages, and that of a listener's, which REQ asks for. */
export const initiatorInterval = ({ packetLifetime, responseTimeout }: Required<Timing>): number =>
  answerMicroseconds(packetLifetime, responseTimeout);
export const listenerInterval = ({ localCmResponseTimeout, maxCmRetries }: CmFields<'REQ'>): number =>
  askedInterval(localCmResponseTimeout, maxCmRetries);

/** Additional info of a REJ for a timeout: the sender's CA GUID (§12.6.7.2). */
function guidBytes(guid: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, guid);
  return bytes;
}

export const withDefaults = (timing: Timing): Required<Timing> => ({
  responseTimeout: timing.responseTimeout ?? DEFAULT_TIMING.responseTimeout,
  maxRetries: timing.maxRetries ?? DEFAULT_TIMING.maxRetries,
  packetLifetime: timing.packetLifetime ?? DEFAULT_TIMING.packetLifetime,
  serviceTimeout: timing.serviceTimeout ?? DEFAULT_TIMING.serviceTimeout,
});
