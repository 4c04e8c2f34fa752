/**
 * XRC between two devices, both ways: initiators of one whose requests are for the SRQs of the other in turn, as programs do
 * that reach every process of a machine over one connection (IBTA vol 1 annex A14).
 */
import type { Random } from '@node-roce/wire';
import type { ModelCompletion } from '../model/work.ts';
import type { ConnectionOptions, SimDevice, SimQp, SimXrcSrq } from './endpoint.ts';
import { require } from './workload-checks.ts';
import { Flow, flowEnd, type Placements, placementsOf, shifted } from './workload-flow.ts';
import { ARENA_BYTES } from './workload-layout.ts';
import { SharedReceives } from './workload-receives.ts';

const INITIATORS = 3;
const SRQS = 2;
const FLOWS = INITIATORS * SRQS;
/** Each flow has a part of its own in both arenas; the SRQs have the others. */
export const XRC_ARENA_BYTES = (2 * FLOWS + SRQS) * ARENA_BYTES;

export interface XrcOptions {
  a: SimDevice;
  b: SimDevice;
  connection: ConnectionOptions;
  /** Requests of each initiator to each SRQ. */
  count: number;
  random: Random;
}

/** One initiator, its target, and a flow to each SRQ. */
interface Way {
  initiator: SimQp;
  target: SimQp;
  flows: Flow[];
  /** Completions of the target's receives since the last step, by SRQ. */
  received: ModelCompletion[][];
}

/** The initiators of one device, and their targets on the other. */
interface Direction {
  ways: Way[];
  srqs: SimXrcSrq[];
}

/** A workload of XRC queue pairs. */
export class XrcWorkload {
  readonly #directions: Direction[];

  constructor({ a, b, connection, count, random }: XrcOptions) {
    for (const { arena } of [a, b]) for (let i = 0; i < arena.length; i++) arena[i] = random.next();
    const direction = (from: SimDevice, to: SimDevice, number: number): Direction => {
      const srqs = Array.from({ length: SRQS }, () => to.createXrcSrq());
      const shared = srqs.map((srq, i) => {
        const at = (2 * FLOWS + i) * ARENA_BYTES;
        return new SharedReceives({
          arena: to.arena.subarray(at),
          postReceive: shifted(at, (receive) => srq.postReceive(receive)),
        });
      });
      const psn = () => (random.chance(0.3) ? 0xff_fff0 : random.between(0, 0xff_ffff));
      const ways = Array.from({ length: INITIATORS }, (_, lane): Way => {
        const initiator = from.createQp({ service: 'XRC_INI', psn: psn() });
        const target = to.createQp({ service: 'XRC_TGT', psn: psn() });
        initiator.connect(target.info, connection);
        target.connect(initiator.info, connection);
        const flows = srqs.map((srq, i) => {
          const at = (number * FLOWS + lane * SRQS + i) * ARENA_BYTES;
          const sender = flowEnd(from, initiator, at);
          // Both flows are in one send queue: each has its own numbers there.
          const postSend: typeof sender.postSend = (send) =>
            sender.postSend({ ...send, wrId: send.wrId * SRQS + i, remoteSrqn: srq.number });
          return new Flow({
            from: { ...sender, postSend },
            to: flowEnd(to, target, at),
            count,
            random,
            receives: shared[i],
          });
        });
        return { initiator, target, flows, received: srqs.map(() => []) };
      });
      return { ways, srqs };
    };
    this.#directions = [direction(a, b, 0), direction(b, a, 1)];
    this.#post();
  }

  get #ways(): Way[] {
    return this.#directions.flatMap(({ ways }) => ways);
  }

  get #flows(): Flow[] {
    return this.#ways.flatMap(({ flows }) => flows);
  }

  #post(): void {
    for (const flow of this.#flows) flow.post();
  }

  /** Messages that took a receive. */
  get delivered(): number {
    return this.#flows.reduce((sum, { expected }) => sum + expected.length, 0);
  }

  get placements(): Placements {
    return placementsOf(this.#flows);
  }

  /**
   * To be called after each step: checks what completed, posts more. True once all is done.
   * @throws Error when something happened that must not
   */
  step(): boolean {
    for (const { srqs, ways } of this.#directions) {
      srqs.forEach((srq, i) => {
        for (const { qpn, completion } of srq.pollReceive()) {
          const way = ways.find(({ target }) => target.info.qpn === qpn);
          require(way !== undefined, 'a receive completed for a queue pair that is no target', { qpn });
          way!.received[i].push(completion);
        }
      });
    }
    for (const { initiator, flows, received } of this.#ways) {
      const sends = initiator.pollSend();
      flows.forEach((flow, i) => {
        const own = sends.filter(({ wrId }) => wrId % SRQS === i);
        const numbered = own.map((completion) => ({
          ...completion,
          wrId: Math.floor(completion.wrId / SRQS),
        }));
        flow.poll(numbered, received[i].splice(0));
        require(flow.failure === undefined, 'a connection failed', { failure: flow.failure });
      });
    }
    if (this.#flows.every(({ done }) => done)) return true;
    this.#post();
    return false;
  }

  /** At the very end, when nothing is under way any more. @throws Error */
  finish(): void {
    this.step();
    for (const flow of this.#flows) flow.checkMemory();
  }
}
