/** Pause frames, counted by sender and priority; memory is bounded. */
import { PAUSE_QUANTUM_BITS, PauseOpcode } from '@node-roce/wire';
import { macText, type PauseFrame } from '../../read/pause.ts';

/** Ports that are counted; frames of later ones count as of the last. */
const MAX_SENDERS = 1000;
/** Frames that a finding lists. */
const MAX_FRAMES = 100;
const PRIORITIES = 8;

/** Pause frames of one priority. */
export interface PausePriority {
  /** 0 … 7; −1: PAUSE, which stops all of them. */
  priority: number;
  /** Frames that stop it, and that let it go on (0 quanta). */
  pauses: number;
  resumes: number;
  /** Quanta of 512 bit times: the sum, and the most in one frame. */
  quanta: number;
  mostQuanta: number;
  /**
   * Nanoseconds that it was stopped: to the end of the quanta or the next frame. Undefined if the capture does not
   * state the speed of the link.
   */
  pausedTime: number | undefined;
}

/** RoCE packets that a port stopped with its pauses. */
export interface PauseEffect {
  /** Packets that came while a pause was on, or ended a wait that one began in; and of those that did not come for long. */
  packets: number;
  stalls: number;
  /** Nanoseconds of these stalls, and the longest of them. */
  time: number;
  longest: number;
  /** The packet that ended the first; 0: none. */
  frame: number;
  /** The host that waited: the address that these packets came from, if it is one, and if no other one waited as well. */
  waiting: string | undefined;
}

/** With the MAC address that the packets came from; −1: from several. */
type Held = Omit<PauseEffect, 'waiting'> & { source: number };

/** Pause frames of one port: it asked its link partner to stop. */
export interface PauseSender {
  /** MAC address. */
  mac: string;
  /** Addresses whose packets came from this MAC address in the capture, ten at most: a host's, or those behind a router. */
  addresses: string[];
  frames: number;
  /** Nanoseconds since the first frame of the capture: the first and the last of them. */
  start: number;
  end: number;
  priorities: PausePriority[];
  /** The RoCE traffic towards it that its pauses held up. */
  held: PauseEffect;
  /** The first hundred. */
  firstFrames: number[];
}

/** The state of one priority of one port. */
class Priority {
  pauses = 0;
  resumes = 0;
  quanta = 0;
  mostQuanta = 0;
  paused = 0;
  knowsTime = true;
  /** Start of the pause that is under way, and its end without another frame; −1: none. */
  since = -1;
  until = -1;

  add(quanta: number, time: number, speed: number): void {
    this.#endBefore(time);
    if (quanta === 0) this.resumes++;
    else this.pauses++;
    this.quanta += quanta;
    if (quanta > this.mostQuanta) this.mostQuanta = quanta;
    if (speed <= 0) {
      this.knowsTime = false;
      return;
    }
    if (quanta === 0) return;
    this.since = time;
    this.until = time + (quanta * PAUSE_QUANTUM_BITS * 1e9) / speed;
  }

  #endBefore(time: number): void {
    if (this.since < 0) return;
    this.paused += Math.max(0, Math.min(time, this.until) - this.since);
    this.since = -1;
  }

  result(priority: number): PausePriority {
    this.#endBefore(Number.POSITIVE_INFINITY);
    const { pauses, resumes, quanta, mostQuanta, paused, knowsTime } = this;
    const pausedTime = knowsTime ? paused : undefined;
    return { priority, pauses, resumes, quanta, mostQuanta, pausedTime };
  }
}

const NOTHING_HELD: Held = { packets: 0, stalls: 0, time: 0, longest: 0, frame: 0, source: -1 };

/** A pause of less than this holds nothing up that anybody sees; ns. */
const MIN_STALL = 1e6;
/** Pauses end with the quanta or the next frame; where the capture has no speed of the link, with the quanta at 1 Gb/s at the latest. */
const LEAST_SPEED = 1e9;
/** Streams of packets that are watched for each port. */
const MAX_STREAMS = 8;

/** RoCE packets of one stream around the pauses of one port. */
class Stream {
  readonly effect: Held;
  /** The pause that the last packet came before. */
  #last = Number.NEGATIVE_INFINITY;

  constructor(source: number) {
    this.effect = { ...NOTHING_HELD, source };
  }

  passed(frame: number, time: number, since: number, until: number): void {
    const { effect } = this;
    const wait = time - Math.max(since, this.#last);
    const isFirst = this.#last < since;
    this.#last = time;
    if (!isFirst && time > until) return;
    // A packet that comes long after the end of the pause was not held up by it.
    if (time > until + Math.max(MIN_STALL, (until - since) / 4)) return;
    effect.packets++;
    if (!isFirst || wait < MIN_STALL) return;
    effect.stalls++;
    effect.time += wait;
    if (wait > effect.longest) effect.longest = wait;
    if (effect.frame === 0) effect.frame = frame;
  }
}

/** Packets to the port itself, in place of the source of a stream. */
const TO_PORT = -2;

class Sender {
  frames = 0;
  /** Begin and end of the last pause. */
  until = Number.NEGATIVE_INFINITY;
  since = Number.NEGATIVE_INFINITY;
  readonly #streams = new Map<number, Stream>();

  paused(quanta: number, time: number, speed: number): void {
    if (quanta === 0) {
      this.until = Math.min(this.until, time);
      return;
    }
    if (time > this.until) this.since = time;
    this.until = time + (quanta * PAUSE_QUANTUM_BITS * 1e9) / (speed > 0 ? speed : LEAST_SPEED);
  }

  /** A RoCE packet of a stream. */
  passed(source: number, frame: number, time: number): void {
    if (this.since === Number.NEGATIVE_INFINITY) return;
    let stream = this.#streams.get(source);
    if (stream === undefined) {
      if (this.#streams.size >= MAX_STREAMS) return;
      stream = new Stream(source === TO_PORT ? -1 : source);
      this.#streams.set(source, stream);
    }
    stream.passed(frame, time, this.since, this.until);
  }

  /**
   * The traffic that was held up: packets to this port if it is a host's; else, of a switch, the stream that it stopped most. If several waited,
   * some may have waited for one that was stopped, such as ACKs: none is named.
   * @param mac its own address: its own packets wait for nobody
   */
  held(mac: number, isHost: boolean): Held {
    const to = this.#streams.get(TO_PORT);
    if (isHost) return to?.effect ?? NOTHING_HELD;
    const effects = [...this.#streams].filter(([source]) => source !== mac && source !== TO_PORT);
    const [most, next] = effects.map(([, { effect }]) => effect).sort((x, y) => y.time - x.time);
    if (next !== undefined && next.stalls > 0) return { ...most, source: -1 };
    return most ?? NOTHING_HELD;
  }
  start = 0;
  end = 0;
  readonly firstFrames: number[] = [];
  readonly priorities: (Priority | undefined)[] = [];
  all: Priority | undefined;
}

/** Counts pause frames. */
export class PauseCounts {
  readonly #senders = new Map<number, Sender>();
  #newest: Sender | undefined;
  /** All frames. */
  frames = 0;

  /** Takes the next frame; nothing of it is kept. */
  add(pause: PauseFrame): void {
    this.frames++;
    const sender = this.#senderOf(pause.source);
    const { time, quanta, enabled, speed } = pause;
    if (sender.frames === 0) sender.start = time;
    sender.end = time;
    sender.frames++;
    if (sender.firstFrames.length < MAX_FRAMES) sender.firstFrames.push(pause.frame);
    const most = pause.opcode === PauseOpcode.PAUSE ? quanta[0] : mostOf(quanta, enabled);
    sender.paused(most, time, speed);
    if (pause.opcode === PauseOpcode.PAUSE) {
      sender.all ??= new Priority();
      sender.all.add(quanta[0], time, speed);
      return;
    }
    for (let i = 0; i < PRIORITIES; i++) {
      if ((enabled & (1 << i)) === 0) continue;
      const priority = sender.priorities[i] ?? new Priority();
      sender.priorities[i] = priority;
      priority.add(quanta[i], time, speed);
    }
  }

  /**
   * The senders, those with most frames first.
   * @param addressesOf addresses that packets came from under this MAC address
   */
  senders(addressesOf: (mac: number) => string[]): PauseSender[] {
    return [...this.#senders]
      .map(([mac, sender]) => ({ mac, sender, addresses: addressesOf(mac) }))
      .map(({ mac, addresses, sender }) => ({
        ...sender,
        mac,
        addresses,
        held: sender.held(mac, addresses.length > 0),
      }))
      .map(({ mac, addresses, held, frames, start, end, firstFrames, priorities, all }) => ({
        mac: macText(mac),
        addresses,
        frames,
        start,
        end,
        priorities: [
          ...(all === undefined ? [] : [all.result(-1)]),
          ...priorities.flatMap((priority, i) => (priority === undefined ? [] : [priority.result(i)])),
        ],
        held: { ...effectOf(held), waiting: held.source < 0 ? undefined : onlyOf(addressesOf(held.source)) },
        firstFrames,
      }))
      .sort((x, y) => y.frames - x.frames);
  }

  /** A RoCE packet, by the MAC addresses of its sender and its receiver. */
  passed(source: number, destination: number, frame: number, time: number): void {
    this.#senders.get(destination)?.passed(TO_PORT, frame, time);
    let left = MAX_STREAMS;
    for (const sender of this.#senders.values()) {
      if (left-- === 0) return;
      sender.passed(source, frame, time);
    }
  }

  #senderOf(mac: number): Sender {
    const known = this.#senders.get(mac);
    if (known !== undefined) return known;
    if (this.#newest !== undefined && this.#senders.size >= MAX_SENDERS) return this.#newest;
    const sender = new Sender();
    this.#senders.set(mac, sender);
    this.#newest = sender;
    return sender;
  }
}

const effectOf = ({ packets, stalls, time, longest, frame }: Held) => ({
  packets,
  stalls,
  time,
  longest,
  frame,
});

const onlyOf = (addresses: readonly string[]): string | undefined =>
  addresses.length === 1 ? addresses[0] : undefined;

/** The most quanta of the priorities that a PFC frame names. */
function mostOf(quanta: ArrayLike<number>, enabled: number): number {
  let most = 0;
  for (let i = 0; i < PRIORITIES; i++) if ((enabled & (1 << i)) !== 0 && quanta[i] > most) most = quanta[i];
  return most;
}
