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

class Sender {
  frames = 0;
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
      .map(([mac, { frames, start, end, firstFrames, priorities, all }]) => ({
        mac: macText(mac),
        addresses: addressesOf(mac),
        frames,
        start,
        end,
        priorities: [
          ...(all === undefined ? [] : [all.result(-1)]),
          ...priorities.flatMap((priority, i) => (priority === undefined ? [] : [priority.result(i)])),
        ],
        firstFrames,
      }))
      .sort((x, y) => y.frames - x.frames);
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
