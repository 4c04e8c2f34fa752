/** Helpers of the scenarios: packets of a trace, and a pair that collects completions. */
import {
  decodePacket,
  type ModelCompletion,
  type ModelPacket,
  Pair,
  type PairOptions,
  type TracedPacket,
} from '@node-roce/sim';
import { opcodeInfo } from '@node-roce/wire';

export interface Seen {
  time: number;
  event: TracedPacket['event'];
  /** 'a' or 'b': who sent it. */
  from: 'a' | 'b';
  packet: ModelPacket;
  /** `RC_SEND_ONLY`, … */
  opcode: string;
  isRequest: boolean;
}

/** A pair with the completions of each side. */
export class Scenario extends Pair {
  readonly aSends: ModelCompletion[] = [];
  readonly aReceives: ModelCompletion[] = [];
  readonly bSends: ModelCompletion[] = [];
  readonly bReceives: ModelCompletion[] = [];

  constructor(options: PairOptions) {
    super({ psn: 0xffffe0, ...options });
    this.a.arena.forEach((_, i, arena) => {
      arena[i] = i * 7 + (i >> 8);
    });
  }

  collect(): void {
    this.aSends.push(...this.a.pollSend());
    this.aReceives.push(...this.a.pollReceive());
    this.bSends.push(...this.b.pollSend());
    this.bReceives.push(...this.b.pollReceive());
  }

  /** Runs until A has so many send completions; true if that happened within `until` µs. */
  untilSends(count: number, until?: number): boolean {
    return this.run(() => {
      this.collect();
      return this.aSends.length >= count;
    }, until);
  }

  /** Packets that were sent or arrived, in order. */
  seen(event: TracedPacket['event'] = 'sent'): Seen[] {
    return this.network.trace.flatMap((traced) => {
      const decoded = decodePacket(traced.bytes);
      if (traced.event !== event || !decoded.ok) return [];
      const row = opcodeInfo(decoded.packet.opcode)!;
      const from = traced.source[15] === 1 ? 'a' : 'b';
      const { time } = traced;
      return [{ time, event, from, packet: decoded.packet, opcode: row.key, isRequest: row.isRequest }];
    });
  }

  requestsOfA(): Seen[] {
    return this.seen().filter(({ from, isRequest }) => from === 'a' && isRequest);
  }
}

export const statuses = (completions: ModelCompletion[]) => completions.map(({ status }) => status);
