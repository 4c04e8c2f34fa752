/** A program on each end of a pair that connects, accepts, refuses, ends and lets go at random times. */
import { createRandom } from '@node-roce/wire';
import type { CmEvent } from '../src/parameters.ts';
import { acceptInit, connectInit, type Network, Pair, routeTo, SERVICE } from './pair.ts';

const MS = 1000;
/** Of a MAD on its way: less than the packet lifetime that the connections assume. */
const MAX_DELAY = 15 * MS;
const TIMING = { responseTimeout: 13, packetLifetime: 12, maxRetries: 7, serviceTimeout: 16 };

/** The outcome of an id. */
interface Life {
  side: 0 | 1;
  established: number;
  /** Events after which the program hears only of the end of TIMEWAIT. */
  ended: number;
  destroyed: boolean;
  /** Of a request: the id at the other end. */
  remote?: number;
}

export interface Outcome {
  pair: Pair;
  lives: Map<string, Life>;
  /** Violations; empty. */
  complaints: string[];
  /** How often a path was taken. */
  tally: Record<string, number>;
}

/** Plays one seed to the end of all timers. */
export function play(seed: number, attempts: number, loss: number, copies: number): Outcome {
  const { next: random, chance, unit } = createRandom(seed);
  const between = (from: number, to: number) => from + unit() * (to - from);
  const pair = new Pair(seed);
  const lives = new Map<string, Life>();
  const complaints: string[] = [];
  const tally: Record<string, number> = {};
  const count = (what: string) => {
    tally[what] = (tally[what] ?? 0) + 1;
  };
  const actions: { at: number; run: () => void }[] = [];
  const later = (run: () => void) => actions.push({ at: pair.now + between(0, 200 * MS), run });

  const network: Network = ({ name }) => {
    const arrivals: number[] = [];
    const lost = chance(loss);
    count(lost ? `lost ${name}` : `sent ${name}`);
    if (!lost) arrivals.push(between(10, MAX_DELAY));
    if (chance(copies)) arrivals.push(between(10, MAX_DELAY));
    return arrivals;
  };
  pair.network = network;

  /** A call that may come too late for the state. */
  const attempt = (side: 0 | 1, id: number, call: () => void) => {
    const life = lives.get(`${side}/${id}`)!;
    if (life.destroyed) return;
    try {
      call();
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_ROCE_CM_STATE') throw error;
      count('too late');
    }
  };
  const destroy = (side: 0 | 1, id: number) => {
    const life = lives.get(`${side}/${id}`)!;
    if (life.destroyed) return;
    count(`destroyed in ${pair.ends[side].cm.stateOf(id)}`);
    life.destroyed = true;
    pair.ends[side].cm.destroy(id, pair.now);
  };
  const disconnect = (side: 0 | 1, id: number) =>
    attempt(side, id, () => pair.ends[side].cm.disconnect(id, pair.now));

  const onEvent = (side: 0 | 1, event: CmEvent) => {
    count(event.type);
    const { cm } = pair.ends[side];
    const { id } = event;
    const name = `${side}/${id}`;
    if (event.type === 'request') {
      const remote = event.request.localCommId;
      if (lives.has(name)) complaints.push(`${name}: the id of a request is in use`);
      lives.set(name, { side, established: 0, ended: 0, destroyed: false, remote });
      const qpn = random() & 0xff_ffff;
      if (chance(0.7)) later(() => attempt(side, id, () => cm.accept(id, acceptInit({ qpn }), pair.now)));
      else if (chance(0.5)) later(() => attempt(side, id, () => cm.reject(id, {}, pair.now)));
      later(() => chance(0.2) && destroy(side, id));
      return;
    }
    const life = lives.get(name);
    if (!life) {
      complaints.push(`${name}: ${event.type} for an id that is not known`);
      return;
    }
    if (life.destroyed) complaints.push(`${name}: ${event.type} after destroy`);
    if (event.type === 'response') {
      if (chance(0.85)) later(() => attempt(side, id, () => cm.ready(id)));
      else later(() => attempt(side, id, () => cm.reject(id, {}, pair.now)));
    } else if (event.type === 'established') {
      life.established++;
      if (life.ended > 0) complaints.push(`${name}: established after its end`);
      later(() => (chance(0.5) ? disconnect(side, id) : destroy(side, id)));
    } else if (event.type === 'disconnected') {
      life.ended++;
      if (chance(0.9)) later(() => disconnect(side, id));
    } else if (event.type !== 'timewait-exit') life.ended++;
    if (life.ended > 1) complaints.push(`${name}: ended twice, by ${event.type}`);
  };
  pair.onEvent = onEvent;

  for (const { cm } of pair.ends) cm.listen(SERVICE, 8);
  for (let i = 0; i < attempts; i++) {
    const side = (i & 1) as 0 | 1;
    actions.push({
      at: between(0, 500 * MS),
      run: () => {
        const init = connectInit({
          route: routeTo(side === 0 ? 2 : 1),
          qpn: random() & 0xff_ffff,
          ...TIMING,
        });
        const id = pair.ends[side].cm.connect(init, pair.now);
        lives.set(`${side}/${id}`, { side, established: 0, ended: 0, destroyed: false });
        if (chance(0.2)) later(() => destroy(side, id));
      },
    });
  }

  const until = (end: number) => {
    for (;;) {
      actions.sort((a, b) => a.at - b.at);
      const next = actions[0];
      if (next === undefined || next.at > end) break;
      actions.shift();
      pair.run(Math.max(0, next.at - pair.now));
      next.run();
    }
    pair.run(Math.max(0, end - pair.now));
  };
  until(5000 * MS);
  // Programs that have not answered let go of what they hold.
  for (const [name, { side }] of lives) destroy(side, Number(name.slice(2)));
  until(60_000 * MS);
  return { pair, lives, complaints, tally };
}
