/**
 * One reliable connection as a capture at one of its ends would show it: a requester that goes back N, a responder,
 * and a way between them that loses a packet now and then. Not an adapter: no memory, no queues, nothing checked;
 * as much of the rules as gives a capture its shape, at a million packets in a second or two.
 *
 * PSNs in here go on past 2^24; times are µs.
 */
import { createRandom } from '@node-roce/sim';
import { Opcode } from '@node-roce/wire';

/** A message's kind, by a draw from 0 … 1, and its bytes. */
const MIX = [
  { operation: 'RDMA_WRITE', below: 0.4, least: 4096, most: 262_144 },
  { operation: 'SEND', below: 0.65, least: 64, most: 16_384 },
  { operation: 'RDMA_READ', below: 0.9, least: 4096, most: 131_072 },
  { operation: 'FETCH_ADD', below: 1, least: 8, most: 8 },
];

/** PSNs out. */
const WINDOW = 256;
/** Every so many packets of a long message ask for an ACK. */
const ACK_INTERVAL = 64;
/** The retry timer, µs: timeout 14. */
const TIMEOUT = 67_109;
/** RNR timer code 12 is 0.64 ms (IBTA vol 1 table 45). */
const RNR_CODE = 12;
const RNR_WAIT = 640;
/** The responder's time to answer. */
const TURNAROUND = 3;
/** A congested receiver sends so seldom a CNP for a connection. */
const CNP_INTERVAL = 50;
const FRAME_OVERHEAD = 14 + 20 + 8 + 12 + 4;

/** A first-in-first-out queue that does not move its entries. */
class Fifo {
  #items = [];
  #head = 0;
  get first() {
    return this.#items[this.#head];
  }
  get time() {
    return this.#head < this.#items.length ? this.#items[this.#head].time : Number.POSITIVE_INFINITY;
  }
  push(item) {
    this.#items.push(item);
  }
  shift() {
    const item = this.#items[this.#head++];
    if (this.#head > 4096) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}

/**
 * @typedef {object} ConnectionOptions
 * @property {number} seed
 * @property {boolean} atRequester the tap is where the requester is, else where the responder is
 * @property {number} pathMtu bytes
 * @property {number} firstPsn
 * @property {number} depth messages posted at once; with 1 what is lost is the timer's to find
 * @property {number} start µs
 * @property {number} delay one way, µs
 * @property {number} rate bits per second
 * @property {number} loss chance that a packet is lost, 0 … 1
 * @property {number} rnr chance that a SEND finds no receive
 * @property {number} marked chance that a data packet is marked "congestion experienced"
 */

/**
 * @typedef {object} Shown a packet at the tap
 * @property {number} time µs
 * @property {boolean} fromRequester
 * @property {number} opcode
 * @property {number} psn
 * @property {boolean} ackReq
 * @property {number} payload bytes
 * @property {number} [offset] of the payload in its message
 * @property {number} [remaining] what a RETH asks for
 * @property {number} [syndrome]
 * @property {number} [msn]
 * @property {boolean} marked
 * @property {string} [again] it was sent before, and is retransmitted for this cause
 */

export class Connection {
  #o;
  #random;
  #now;
  // Requester.
  #messages = [];
  #cursor = 0;
  #cursorPacket = 0;
  #una;
  #next;
  #sentUpTo;
  #busyUntil = 0;
  #deadline = Number.POSITIVE_INFINITY;
  #rnrUntil = 0;
  #impliedAt = -1;
  #cause = 'timeout';
  // Responder.
  #expected;
  #msn = 0;
  #silent = false;
  #refused = -1;
  #responderBusy = 0;
  #lastCnp = Number.NEGATIVE_INFINITY;
  #toResponder = new Fifo();
  /** Responses that the responder will send, and those on their way back. */
  #replies = new Fifo();
  #toRequester = new Fifo();

  /** @param {ConnectionOptions} options */
  constructor(options) {
    this.#o = options;
    this.#random = createRandom(options.seed);
    this.#now = options.start;
    this.#una = this.#next = this.#sentUpTo = this.#expected = options.firstPsn;
  }

  /** The packets at the tap, in order of time, without end. @returns {Generator<Shown>} */
  *packets() {
    for (;;) {
      this.#post();
      const sendAt = this.#mayCarryOn()
        ? Math.max(this.#now, this.#busyUntil, this.#rnrUntil)
        : Number.POSITIVE_INFINITY;
      const times = [
        this.#toRequester.time,
        this.#toResponder.time,
        this.#replies.time,
        sendAt,
        this.#deadline,
      ];
      const at = Math.min(...times);
      this.#now = at;
      const which = times.indexOf(at);
      let shown;
      if (which === 0) shown = this.#takeResponse(this.#toRequester.shift());
      else if (which === 1) shown = this.#takeRequest(this.#toResponder.shift());
      else if (which === 2) shown = this.#sendReply(this.#replies.shift());
      else if (which === 3) shown = this.#sendRequest();
      else this.#goBack('timeout');
      if (shown !== undefined) yield shown;
    }
  }

  #isLost() {
    return this.#random.chance(this.#o.loss);
  }

  #gap(payload) {
    return ((payload + FRAME_OVERHEAD) * 8e6) / this.#o.rate;
  }

  // ------------------------------------------------------------- requester

  #post() {
    while (this.#messages.length < this.#o.depth) {
      const draw = this.#random.unit();
      const { operation, least, most } = MIX.find(({ below }) => draw < below);
      const bytes = Math.round(least * (most / least) ** this.#random.unit());
      const before = this.#messages.at(-1);
      const first = before === undefined ? this.#una : before.first + before.packets;
      const packets = Math.max(1, Math.ceil(bytes / this.#o.pathMtu));
      this.#messages.push({ operation, bytes, first, packets });
    }
  }

  #mayCarryOn() {
    return this.#cursor < this.#messages.length && this.#next - this.#una < WINDOW;
  }

  #sendRequest() {
    const { pathMtu, delay, atRequester } = this.#o;
    const message = this.#messages[this.#cursor];
    const { operation, bytes, packets } = message;
    const offset = this.#cursorPacket * pathMtu;
    const packet = {
      time: this.#now,
      fromRequester: true,
      opcode: 0,
      psn: this.#next,
      ackReq: true,
      payload: 0,
      offset,
      remaining: bytes - offset,
      marked: false,
      message,
      again: undefined,
    };
    let psns = 1;
    if (operation === 'RDMA_READ') {
      packet.opcode = Opcode.RC_RDMA_READ_REQUEST;
      psns = packets - this.#cursorPacket;
    } else if (operation === 'FETCH_ADD') {
      packet.opcode = Opcode.RC_FETCH_ADD;
    } else {
      const last = this.#cursorPacket === packets - 1;
      const place = this.#cursorPacket === 0 ? (last ? 'ONLY' : 'FIRST') : last ? 'LAST' : 'MIDDLE';
      packet.opcode = Opcode[`RC_${operation}_${place}`];
      packet.payload = last ? bytes - offset : pathMtu;
      packet.ackReq =
        last || (this.#cursorPacket + 1) % ACK_INTERVAL === 0 || this.#next - this.#una === WINDOW - 1;
    }
    if (this.#next < this.#sentUpTo) packet.again = this.#cause;
    this.#next += psns;
    this.#cursorPacket += psns;
    if (this.#next > this.#sentUpTo) this.#sentUpTo = this.#next;
    if (this.#cursorPacket >= packets) {
      this.#cursor++;
      this.#cursorPacket = 0;
    }
    this.#busyUntil = this.#now + this.#gap(packet.payload);
    if (this.#deadline === Number.POSITIVE_INFINITY) this.#deadline = this.#now + TIMEOUT;
    if (!this.#isLost()) {
      const marked = packet.payload > 0 && this.#random.chance(this.#o.marked);
      this.#toResponder.push({ ...packet, time: this.#now + delay, marked });
    }
    return atRequester ? packet : undefined;
  }

  #goBack(cause) {
    this.#cause = cause;
    this.#next = this.#una;
    const at = this.#messages.findIndex(({ first, packets }) => first + packets > this.#una);
    this.#cursor = Math.max(0, at);
    this.#cursorPacket = at < 0 ? 0 : this.#una - this.#messages[at].first;
    this.#deadline = this.#now + TIMEOUT;
  }

  /** Everything before `psn` is acknowledged. */
  #progress(psn) {
    if (psn <= this.#una) return;
    this.#una = psn;
    this.#impliedAt = -1;
    while (this.#messages.length > 0 && this.#messages[0].first + this.#messages[0].packets <= psn) {
      this.#messages.shift();
      this.#cursor--;
    }
    if (this.#next < psn) this.#goBack(this.#cause);
    this.#deadline = this.#una === this.#sentUpTo ? Number.POSITIVE_INFINITY : this.#now + TIMEOUT;
  }

  /** The oldest PSN before `end` that only an answer of its own acknowledges. */
  #unansweredBefore(end) {
    const message = this.#messages.find(
      ({ operation, first, packets }) =>
        (operation === 'RDMA_READ' || operation === 'FETCH_ADD') &&
        first + packets > this.#una &&
        first < end,
    );
    return message === undefined ? end : Math.max(message.first, this.#una);
  }

  #impliedNak() {
    if (this.#impliedAt === this.#una || this.#next === this.#una) return;
    this.#goBack('implied-nak');
    this.#impliedAt = this.#una;
  }

  #takeResponse(packet) {
    const { psn, kind } = packet;
    const shown = this.#o.atRequester ? packet : undefined;
    if (kind === 'cnp' || psn >= this.#sentUpTo || psn < this.#una) return shown;
    const end = kind === 'ack' ? psn + 1 : psn;
    const reached = this.#unansweredBefore(end);
    this.#progress(reached);
    if (reached < end) {
      this.#impliedNak();
    } else if (kind === 'data') {
      this.#progress(psn + 1);
    } else if (kind === 'rnr') {
      this.#goBack('rnr');
      this.#rnrUntil = this.#now + RNR_WAIT;
    } else if (kind === 'nak' && this.#next > this.#una) {
      this.#goBack('sequence-nak');
    }
    return shown;
  }

  // ------------------------------------------------------------- responder

  #takeRequest(packet) {
    const shown = this.#o.atRequester ? undefined : packet;
    const { psn, message, marked } = packet;
    if (marked && this.#now - this.#lastCnp >= CNP_INTERVAL) {
      this.#lastCnp = this.#now;
      this.#reply({ kind: 'cnp', opcode: Opcode.CNP, psn: 0, payload: 16 });
    }
    const isResponded = packet.payload === 0;
    const psns = packet.opcode === Opcode.RC_RDMA_READ_REQUEST ? message.first + message.packets - psn : 1;
    if (psn > this.#expected) {
      if (!this.#silent) this.#acknowledge('nak', this.#expected, 0x60);
      this.#silent = true;
      return shown;
    }
    const isNew = psn === this.#expected;
    if (isNew) {
      const begins = message.operation === 'SEND' && psn === message.first;
      if (begins && this.#refused !== psn && this.#random.chance(this.#o.rnr)) {
        this.#refused = psn;
        this.#silent = true;
        this.#acknowledge('rnr', psn, 0x20 | RNR_CODE);
        return shown;
      }
      this.#silent = false;
      this.#expected = psn + psns;
      if (isResponded || psn === message.first + message.packets - 1) this.#msn++;
    }
    if (isResponded) this.#answer(packet, psns);
    else if (!isNew) this.#acknowledge('ack', this.#acknowledgeable(psn), 0x1f);
    else if (packet.ackReq) this.#acknowledge('ack', psn, 0x1f);
    return shown;
  }

  /** An ACK of a duplicate does not reach past a READ or atomic whose answer may be missing. */
  #acknowledgeable(psn) {
    const next = this.#messages.find(
      ({ operation, first }) => first > psn && (operation === 'RDMA_READ' || operation === 'FETCH_ADD'),
    );
    return Math.min(this.#expected, next?.first ?? this.#expected) - 1;
  }

  #acknowledge(kind, psn, syndrome) {
    this.#reply({ kind, opcode: Opcode.RC_ACKNOWLEDGE, psn, payload: 0, syndrome });
  }

  #answer({ psn, offset, message, opcode }, psns) {
    const { pathMtu } = this.#o;
    if (opcode === Opcode.RC_FETCH_ADD) {
      this.#reply({ kind: 'data', opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn, payload: 0, syndrome: 0x1f });
      return;
    }
    for (let i = 0; i < psns; i++) {
      const last = i === psns - 1;
      const place = i === 0 ? (last ? 'ONLY' : 'FIRST') : last ? 'LAST' : 'MIDDLE';
      const at = offset + i * pathMtu;
      const payload = last ? message.bytes - at : pathMtu;
      this.#reply({
        kind: 'data',
        opcode: Opcode[`RC_RDMA_READ_RESPONSE_${place}`],
        psn: psn + i,
        payload,
        offset: at,
        syndrome: 0x1f,
      });
    }
  }

  #reply(reply) {
    const time = Math.max(this.#now + TURNAROUND, this.#responderBusy);
    this.#responderBusy = time + this.#gap(reply.payload);
    this.#replies.push({
      fromRequester: false,
      ackReq: false,
      marked: false,
      msn: this.#msn,
      ...reply,
      time,
    });
  }

  #sendReply(packet) {
    const { atRequester, delay } = this.#o;
    if (!this.#isLost()) this.#toRequester.push({ ...packet, time: this.#now + delay });
    return atRequester ? undefined : packet;
  }
}
