/**
 * One connection: carries out the state table of `states.ts`, and keeps what the table has no column for: whose message it is, the clock, and
 * the ids. `Connections` calls it and gives it its tables.
 */
import {
  type CmFields,
  type CmInput,
  type CmMessage,
  CmMraMessage,
  CmRejReason,
  encodeCm,
} from '@node-roce/wire';
import { AlternatePaths, pathRefusal } from './alternate-path.ts';
import {
  answerMicroseconds,
  askedInterval,
  askedMicroseconds,
  DEFAULT_TIMING,
  type Timing,
} from './intervals.ts';
import { type Content, MESSAGES, type Sender } from './messages.ts';
import type { AcceptInit, AlternatePath, CmEvent, RejectInit, Route } from './parameters.ts';
import { type Cell, type CmState, type Input, type Report, STATES } from './states.ts';
import type { Timed } from './timers.ts';
import { repliedQpn, type ServiceName } from './transport.ts';

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
  transactionId: bigint;
  ownTransactionId: bigint;
  route: Route;
  timing: Required<Timing>;
  /** Code: how long this side waits in TIMEWAIT. */
  ackTimeout: number;
  /** The interval of repetitions, µs. */
  interval: number;
  service: ServiceName;
}

/** The particulars of an input. */
interface Given extends Content {
  /** The message that came: its fields are the event's. */
  message?: CmMessage;
  /** Where the answer goes, unless to the peer. */
  to?: Route;
  /** µs that an MRA asks for. */
  wait?: number;
}

/** One communication ID: its state, its messages and their retransmissions (IBTA vol 1 §12.9). */
export class Connection implements Timed, Sender {
  deadline = Number.POSITIVE_INFINITY;
  place = -1;
  state: CmState;
  /** Local communication id. */
  readonly id: number;
  /** 0 until a message of the peer has it. */
  remoteId = 0;
  remoteGuid = 0n;
  remoteQpn = 0;
  localQpn = 0;
  /** Number of the listener that the request came to; 0 for an initiator. */
  listener = 0;
  readonly caGuid: bigint;
  readonly service: ServiceName;
  readonly transactionId: bigint;
  readonly ownTransactionId: bigint;
  readonly serviceTimeout: number;
  /** To the peer, as the connection began. */
  readonly route: Route;
  /** Code: how long this side waits in TIMEWAIT. */
  readonly ackTimeout: number;
  readonly #around: Surroundings;
  /** The way of messages: that of the connection's packets. */
  #way: Route;
  /** With the first LAP. */
  #paths: AlternatePaths | undefined;
  readonly #timing: Required<Timing>;
  readonly #interval: number;
  /** The program has released it: it ends by itself, without an event. */
  #abandoned = false;
  /** The peer has forgotten it: the reason of its end, whatever the answer to DREQ. */
  #stale = false;
  /** The message that is repeated until it is answered. */
  #repeated: Uint8Array | undefined;
  #retries = 0;
  /** An MRA came for the LAP since it was sent; of a REQ and a REP the state shows that. */
  #isPathDelayed = false;
  /** RTU, to answer a repeated REP. */
  #rtu: Uint8Array | undefined;
  /** The DREQ that is answered. */
  #dreq: CmMessage<'DREQ'> | undefined;

  constructor(around: Surroundings, init: ConnectionInit, state: 'CLOSED' | 'REQ_RCVD') {
    this.#around = around;
    this.caGuid = around.caGuid;
    this.id = init.id;
    this.state = state;
    this.route = this.#way = init.route;
    this.#timing = init.timing;
    this.serviceTimeout = init.timing.serviceTimeout;
    this.ackTimeout = init.ackTimeout;
    this.#interval = init.interval;
    this.service = init.service;
    this.transactionId = init.transactionId;
    this.ownTransactionId = init.ownTransactionId;
  }

  // ------------------------------------------------------- the program's calls
  // Each returns false where the table has no cell for it.

  /** Initiator: sends REQ, again and again until it is answered. */
  request(request: CmInput<'REQ'>, now: number): void {
    this.localQpn = request.localQpn ?? 0;
    this.#take('connect', now, { request });
  }

  /** Listener: sends REP in the same way. */
  accept(accept: AcceptInit, now: number): boolean {
    if (!this.#take('accept', now, { accept })) return false;
    this.localQpn = accept.qpn;
    return true;
  }

  /** Initiator: the queue pair is ready to send; sends RTU. */
  ready(privateData: Uint8Array | undefined): boolean {
    return this.#take('ready', 0, { privateData });
  }

  /** Listener: the peer has sent data. */
  heard(): void {
    this.#take('DATA', 0);
  }

  /** Refuses a REQ or a REP, or takes back one's own. */
  reject(reject: RejectInit, now: number): boolean {
    return this.#take('reject', now, { reject });
  }

  /** Ends a connection: sends DREQ, or answers the peer's. */
  disconnect(privateData: Uint8Array | undefined, now: number): boolean {
    return this.#take('disconnect', now, { privateData });
  }

  /** Proposes an alternate path: sends LAP. False, too, while an answer is awaited. */
  loadPath(path: AlternatePath, localGid: Uint8Array, now: number): boolean {
    if (!this.#allows('loadPath') || this.#repeated !== undefined) return false;
    const ids = {
      localCommId: this.id,
      remoteCommId: this.remoteId,
      remoteQpn: this.remoteQpn,
      remoteCmResponseTimeout: this.#timing.responseTimeout,
      ownTransactionId: this.ownTransactionId,
    };
    this.#paths ??= new AlternatePaths();
    return this.#take('loadPath', now, { path: this.#paths.request(path, localGid, ids) });
  }

  /** Answers the peer's LAP. False, too, where none waits. */
  answerPath(status: number): boolean {
    if (!this.#allows('answerPath')) return false;
    const response = this.#paths?.answer(status, { localCommId: this.id, remoteCommId: this.remoteId });
    if (response) this.#around.send(response, this.#way);
    return response !== undefined;
  }

  /** The queue pair went over to the path that was loaded last: messages follow it. */
  migrated(): void {
    this.#way = this.#paths?.migrated() ?? this.#way;
  }

  /** The program lets go: what it takes to end the connection is done, and no event comes any more. */
  abandon(now: number): void {
    this.#abandoned = true;
    const isTarget = this.service === 'XRC' && this.listener !== 0;
    if (!isTarget || !this.#take('destroyTarget', now)) this.#take('destroy', now);
  }

  // --------------------------------------------------------- messages that came

  /** A REQ came a second time. */
  repeatedRequest(message: CmMessage<'REQ'>, route: Route): void {
    this.#arrived('REQ', 0, this.state === 'TIMEWAIT' ? { answers: message, to: route } : {});
  }

  reply(message: CmMessage<'REP'>, now: number): void {
    if (this.listener !== 0 || (this.remoteId !== 0 && message.localCommId !== this.remoteId)) {
      this.#around.unexpected();
      return;
    }
    if (!this.#allows('REP_STALE')) {
      this.#arrived('REP', now);
      return;
    }
    this.remoteId = message.localCommId;
    this.remoteGuid = message.localCaGuid;
    this.remoteQpn = repliedQpn(this.service, message);
    if (this.#around.introduce(this, now)) this.#take('REP', now, { message });
    else this.#take('REP_STALE', now, { reject: { reason: CmRejReason.STALE_CONNECTION } });
  }

  readyToUse(): void {
    this.#arrived('RTU', 0);
  }

  delayed({ messageMraed, serviceTimeout }: CmMessage<'MRA'>, now: number): void {
    const input = MRA_INPUTS[messageMraed];
    const isOfNoLap = input === 'MRA_LAP' && (this.#repeated === undefined || this.#isPathDelayed);
    if (input === undefined || isOfNoLap) {
      this.#around.unexpected();
      return;
    }
    const wait = askedMicroseconds(serviceTimeout) + askedMicroseconds(this.ackTimeout);
    this.#arrived(input, now, { wait });
  }

  rejected(message: CmMessage<'REJ'>, now: number): void {
    const isStale = message.reason === CmRejReason.STALE_CONNECTION && this.#allows('REJ_STALE');
    this.#arrived(isStale ? 'REJ_STALE' : 'REJ', now, { message });
  }

  disconnectRequest(message: CmMessage<'DREQ'>, now: number): void {
    if (message.remoteQpn !== this.localQpn || !this.#allows('DREQ')) {
      this.#around.unexpected();
      return;
    }
    this.#dreq = message;
    this.#take('DREQ', now);
  }

  disconnectReply(now: number): void {
    this.#arrived('DREP', now);
  }

  /** A LAP came, of a path whose near end we have (`route`) or not. */
  pathOffered(message: CmMessage<'LAP'>, route: Route | undefined): void {
    if (!this.#allows('LAP')) {
      this.#around.unexpected();
      return;
    }
    const { transactionId, remoteQpn, alternateAckTimeout: ackTimeout } = message;
    const status = pathRefusal(remoteQpn === this.localQpn, route, this.#way);
    if (status !== undefined || route === undefined) {
      const ids = { localCommId: this.id, remoteCommId: this.remoteId };
      this.#around.send(encodeCm({ name: 'APR', transactionId, ...ids, status: status! }), this.#way);
      return;
    }
    this.#paths ??= new AlternatePaths();
    const answer = this.#paths.offer(message, route);
    if (answer === 'new') this.#event({ type: 'path-offered', id: this.id, path: { route, ackTimeout } });
    else this.#around.send(answer ?? this.#encode('MRA_LAP', { answers: message }), this.#way);
  }

  pathAnswered(message: CmMessage<'APR'>): void {
    if (this.#allows('APR') && this.#paths?.answered(message)) this.#take('APR', 0, { message });
    else this.#around.unexpected();
  }

  /** The peer has a new connection with the queue pair of this one: it forgot this one (§12.9.8.3.1). */
  stale(now: number): void {
    if (this.state === 'ESTABLISHED') this.#stale = true;
    this.#take('FORGOTTEN', now);
  }

  /** The deadline has come. */
  due(now: number): void {
    const mayRetry = this.#repeated !== undefined && this.#retries < this.#timing.maxRetries;
    if (mayRetry) {
      this.#retries++;
      this.#around.retried();
    }
    this.#take(mayRetry ? 'RETRY' : 'TIMEOUT', now);
  }

  // ------------------------------------------------------------------ the table

  #allows(input: Input): boolean {
    return STATES[this.state][input] !== undefined;
  }

  /** A message: one without a cell is counted. */
  #arrived(input: Input, now: number, given?: Given): void {
    if (!this.#take(input, now, given)) this.#around.unexpected();
  }

  /** Carries out a cell. A value that does not fit its field throws, and changes nothing. @returns whether there is a cell */
  #take(input: Input, now: number, given: Given = {}): boolean {
    const cell = STATES[this.state][input];
    if (cell === undefined) return false;
    const mad = this.#madOf(cell, given);
    if (cell.next) this.#enter(cell, now);
    if (mad) this.#around.send(mad, given.to ?? this.#way);
    if (cell.repeat && mad) this.#repeat(mad, now, cell.repeat !== 'again');
    // The count of retries stays as it is (core/cm.c `cm_mra_handler`).
    if (cell.wait) {
      this.#isPathDelayed = true;
      this.#around.setTimer(this, now + given.wait!);
    }
    if (cell.tell) this.#event(this.#report(cell.tell, given.message));
    return true;
  }

  #madOf({ send, repeat }: Cell, given: Given): Uint8Array | undefined {
    if (repeat === 'again') return this.#repeated;
    const name = send ?? repeat;
    if (name === undefined) return undefined;
    if (name !== 'RTU') return this.#encode(name, given);
    this.#rtu ??= this.#encode(name, given);
    return this.#rtu;
  }

  #encode(name: keyof typeof MESSAGES, given: Given): Uint8Array {
    const answers = given.answers ?? this.#dreq;
    return encodeCm(MESSAGES[name](this, answers ? { ...given, answers } : given));
  }

  /** Each sending stops the wait that an MRA asked for. */
  #repeat(mad: Uint8Array, now: number, isNew: boolean): void {
    this.#repeated = mad;
    if (isNew) this.#retries = 0;
    this.#isPathDelayed = false;
    this.#around.setTimer(this, now + this.#interval);
  }

  #enter({ next, wait, repeat }: Cell, now: number): void {
    if (this.state === 'REQ_RCVD') this.#around.settled(this);
    this.state = next!;
    if (!wait && repeat !== 'again') {
      this.#repeated = undefined;
      this.#paths?.giveUp();
      this.#around.setTimer(this, Number.POSITIVE_INFINITY);
    }
    if (next === 'TIMEWAIT') {
      this.#around.setTimer(this, now + askedMicroseconds(this.ackTimeout));
      this.#around.rests(this, now);
    } else if (next === 'CLOSED') this.#around.closed(this, now);
  }

  #report(report: Report, message: CmMessage | undefined): CmEvent {
    const { id } = this;
    switch (report) {
      case 'response':
        return { type: 'response', id, reply: fieldsOf(message as CmMessage<'REP'>) };
      case 'rejected':
        return { type: 'rejected', id, reject: fieldsOf(message as CmMessage<'REJ'>) };
      case 'path-response':
        return { type: 'path-response', id, status: (message as CmMessage<'APR'> | undefined)?.status };
      case 'peer-closed':
      case 'timeout':
      case 'stale':
        return { type: 'disconnected', id, cause: this.#stale ? 'stale' : report };
      default:
        return { type: report, id };
    }
  }

  #event(event: CmEvent): void {
    if (!this.#abandoned) this.#around.event(event);
  }
}

const MRA_INPUTS: Readonly<Record<number, Input>> = {
  [CmMraMessage.REQ]: 'MRA_REQ',
  [CmMraMessage.REP]: 'MRA_REP',
  [CmMraMessage.LAP]: 'MRA_LAP',
};

/** The fields of a message, without those of its header. */
function fieldsOf<M extends CmMessage<'REP'> | CmMessage<'REJ'>>(
  message: M,
): Omit<M, 'name' | 'transactionId' | 'attributeModifier'> {
  const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...fields } = message;
  return fields;
}

/** The interval of an initiator's messages, and that of a listener's, which REQ asks for. */
export const initiatorInterval = ({ packetLifetime, responseTimeout }: Required<Timing>): number =>
  answerMicroseconds(packetLifetime, responseTimeout);
export const listenerInterval = ({ localCmResponseTimeout, maxCmRetries }: CmFields<'REQ'>): number =>
  askedInterval(localCmResponseTimeout, maxCmRetries);

export const withDefaults = (timing: Timing): Required<Timing> => ({
  responseTimeout: timing.responseTimeout ?? DEFAULT_TIMING.responseTimeout,
  maxRetries: timing.maxRetries ?? DEFAULT_TIMING.maxRetries,
  packetLifetime: timing.packetLifetime ?? DEFAULT_TIMING.packetLifetime,
  serviceTimeout: timing.serviceTimeout ?? DEFAULT_TIMING.serviceTimeout,
});
