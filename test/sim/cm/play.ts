/** One seed: two sides, two programs, a bad network; and what has to hold in the end. */
import { createRandom, type Random } from '@node-roce/sim';
import { forge } from './forger.ts';
import type { Life } from './life.ts';
import { makeSide } from './make-side.ts';
import { Program, type Temper } from './program.ts';
import { type Kind, other, type SideName, TIMING } from './sides.ts';
import { type Network, World } from './world.ts';

const MS = 1000;
/** Programs act until then; then they wait; then they let go of everything. */
const BUSY_UNTIL = 4_000 * MS;
/** packages/cm asks for 66 s with each MRA, and each retry may draw one. */
const QUIET_UNTIL = 1200_000 * MS;
/** Retries, delays by MRA and timewait have ended by then. */
const ENDS_BY = 2400_000 * MS;

const NAMES: SideName[] = ['A', 'B'];

/** Kinds of networks, in turn. */
const NETWORKS: readonly Network[] = [
  { loss: 0, copies: 0, late: 0, delay: 5 * MS, lateDelay: 0 },
  { loss: 0.15, copies: 0.15, late: 0, delay: 15 * MS, lateDelay: 0 },
  { loss: 0.05, copies: 0.3, late: 0.05, delay: 15 * MS, lateDelay: 800 * MS },
  { loss: 0.35, copies: 0.05, late: 0.02, delay: 10 * MS, lateDelay: 300 * MS },
  { loss: 0.02, copies: 0.02, late: 0.2, delay: 30 * MS, lateDelay: 200 * MS },
  // Everything is recorded and replayed.
  { loss: 0.02, copies: 0.7, late: 0.3, delay: 10 * MS, lateDelay: 4_000 * MS },
];

export interface Outcome {
  /** Violations: none in a good run. */
  complaints: string[];
  /** The messages, calls and events of the ids that the violations name. */
  trace: string[];
}

/** Plays a seed to the end of all timers. @param tally counts what happened */
export function play(seed: number, kinds: Record<SideName, Kind>, tally: Map<string, number>): Outcome {
  const random = createRandom(seed);
  const network = { ...NETWORKS[seed % NETWORKS.length] };
  const isCalm = network.loss === 0 && network.late === 0;
  // A thread that stalls, in some seeds.
  const grain = seed % 7 === 3 ? random.pick([20 * MS, 200 * MS]) : 0;
  const world = new World({
    sides: {
      A: makeSide(kinds.A, 'A', () => random.next()),
      B: makeSide(kinds.B, 'B', () => random.next()),
    },
    network,
    grains: { A: grain, B: 0 },
    random,
    tally,
  });
  if (network.loss > 0.3) blackOut(world, random.between(500, 2000) * MS);
  const temper: Temper = {
    attempts: 20,
    spread: 2000,
    slow: random.pick([0, 0.1, 0.4]),
    forgets: isCalm ? 0 : 0.3,
    destroys: random.pick([0, 0.2, 0.4]),
    restarts: 0,
    backlog: isCalm ? 64 : random.pick([2, 8]),
  };
  const restarting = random.pick(NAMES);
  const programs: Record<SideName, Program> = {
    A: new Program(world, 'A', random, { ...temper, restarts: restarting === 'A' && seed % 3 === 0 ? 1 : 0 }),
    B: new Program(world, 'B', random, { ...temper, restarts: restarting === 'B' && seed % 3 === 0 ? 1 : 0 }),
  };
  world.onArrival = (name, message, receive) => programs[name].arrived(message, receive);
  world.onEvents = (name) => programs[name].hear();
  for (const name of NAMES) {
    programs[name].onReady = (life) => {
      const peer = peerOf(life, programs[other(name)].lives);
      if (!peer || peer.qpn === 0) return;
      world.sendData(name, peer.qpn, (give) => {
        // Other queue pairs have its number after a restart, and other PSNs.
        if (peer.forgotten) return;
        const state = () => world.sides[peer.side].state(peer.id);
        const before = state();
        world.count(`${kinds[peer.side]} takes data in ${before}`);
        give();
        const right = before === 'REP_SENT' || before === 'RTU_WAIT' ? 'ESTABLISHED' : before;
        if (state() !== right) judge.complaints.push(`data in ${before} made it ${state()}`);
      });
    };
    programs[name].otherConnects = () =>
      programs[other(name)].lives.some(
        (life) => life.role === 'active' && world.sides[life.side].state(life.id) === 'REQ_SENT',
      );
    programs[name].begin();
  }
  const judge = new Judge(world, programs, isCalm && grain === 0);
  for (const name of NAMES)
    if (kinds[name] === 'product') forgeAt(name, world, programs, createRandom(~seed), judge.complaints);
  world.run(BUSY_UNTIL);
  world.run(QUIET_UNTIL);
  judge.settled();
  for (const name of NAMES) programs[name].retire();
  const isOver = world.run(ENDS_BY);
  judge.over(isOver);
  const { complaints } = judge;
  const ids = complaints.flatMap((one) => one.match(/\b[0-9a-f]{5,8}\b/g) ?? []);
  return { complaints, trace: world.trace.filter((line) => ids.some((id) => line.includes(id))) };
}

/** Loses everything for longer than anything is repeated. */
function blackOut(world: World, from: number): void {
  const { loss, copies } = world.network;
  world.at(from, () => Object.assign(world.network, { loss: 1, copies: 0 }));
  world.at(from + 900 * MS, () => Object.assign(world.network, { loss, copies }));
}

/** Has a stranger forge messages for the connections of a side while its programs are busy. */
function forgeAt(
  name: SideName,
  world: World,
  programs: Record<SideName, Program>,
  random: Random,
  complaints: string[],
): void {
  const once = () => {
    const side = world.sides[name];
    // Those whose owner knows the peer's id.
    const known = programs[name].lives.filter(
      (life) => !life.forgotten && !/^(NONE|REQ_SENT|REP_WAIT)$/.test(side.state(life.id)),
    );
    const life = known.length > 0 ? random.pick(known) : undefined;
    const peer = life && peerOf(life, programs[other(name)].lives)?.communicationId;
    if (life && peer) {
      const { name: what, complaint } = forge(side, life, peer, random, world.now);
      world.count(`forged ${what}`);
      if (complaint) complaints.push(complaint);
    }
    if (world.now < BUSY_UNTIL) world.after(random.between(0, 60 * MS), once);
  };
  once();
}

/** Lives at the other end of a connection: one, or two where a copy of the REQ came late. */
function peersOf({ role, communicationId, remoteId }: Life, lives: readonly Life[]): Life[] {
  return role === 'active'
    ? lives.filter((one) => one.role === 'passive' && one.remoteId === communicationId)
    : lives.filter((one) => one.role === 'active' && one.communicationId === remoteId);
}

/** The one that was established, if any was. */
function peerOf(life: Life, lives: readonly Life[]): Life | undefined {
  const peers = peersOf(life, lives);
  return peers.find(({ established }) => established > 0) ?? peers[0];
}

/** The rules of a run. */
class Judge {
  readonly complaints: string[] = [];
  readonly #world: World;
  readonly #programs: Record<SideName, Program>;
  readonly #isCalm: boolean;

  constructor(world: World, programs: Record<SideName, Program>, isCalm: boolean) {
    this.#world = world;
    this.#programs = programs;
    this.#isCalm = isCalm;
  }

  #complain(what: string): void {
    this.complaints.push(what);
  }

  /** The programs have done their plans: what is not ended is established, or waits for a program. */
  settled(): void {
    for (const name of NAMES) {
      const side = this.#world.sides[name];
      const lives = this.#programs[name].lives;
      for (const life of lives) {
        if (life.forgotten) continue;
        const state = side.state(life.id);
        this.#world.count(`settled in ${state}`);
        const waits = (state === 'REQ_RCVD' || state === 'MRA_REQ_SENT') && life.calls.length === 0;
        const delayed = state === 'MRA_REQ_SENT' && life.calls.every((call) => call.startsWith('delay'));
        if (state !== 'ESTABLISHED' && state !== 'NONE' && !waits && !delayed)
          this.#complain(`${this.#show(life)} is in ${state}`);
        if (state === 'NONE') this.#ended(life);
        if (state === 'ESTABLISHED' && life.ends.length > 0)
          this.#complain(`${this.#show(life)} has ended, but is established`);
        if (life.established > 0) this.#agrees(life);
      }
    }
    for (const name of NAMES) this.#onePerRequest(name);
  }

  /** An id without a state has had one end that its program knows of. */
  #ended(life: Life): void {
    if (life.destroyed) return;
    const rejected = life.calls.some((call) => call.startsWith('reject'));
    if (life.ends.length === 0 && !rejected) this.#complain(`${this.#show(life)} ended in silence`);
    // Both ends of a crossing disconnect may be reported by the model.
    const most = this.#world.sides[life.side].kind === 'model' ? 2 : 1;
    if (life.ends.length > most) this.#complain(`${this.#show(life)} ended more than once`);
  }

  /** A connection of one side is one of the other, or ended there with a reason. */
  #agrees(life: Life): void {
    const lives = this.#programs[other(life.side)].lives;
    const peer = peerOf(life, lives);
    if (peer === undefined) {
      this.#complain(`${this.#show(life)} is established with nobody`);
      return;
    }
    const state = peer.forgotten ? 'NONE' : this.#world.sides[peer.side].state(peer.id);
    const own = this.#world.sides[life.side].state(life.id);
    if (own === 'ESTABLISHED' && state !== 'ESTABLISHED') this.#world.count('half open');
    if (peer.forgotten) {
      const again = lives.find((one) => one.qpn === peer.qpn && one.ends.includes('rejected 10'));
      if (own === 'ESTABLISHED' && again)
        this.#complain(`${this.#show(life)} goes on, though ${this.#show(again)} was rejected for it`);
      return;
    }
    if (this.#isCalm && own === 'ESTABLISHED' && state !== 'ESTABLISHED')
      this.#complain(`${this.#show(life)} is established alone, though nothing was lost`);
    if (peer.destroyed) return;
    if (peer.established === 0 && peer.ends.length === 0 && !hasCall(peer, 'reject'))
      this.#complain(`${this.#show(life)} is established, ${this.#show(peer)} neither that nor ended`);
    for (const end of life.ends) this.#hasCause(life, end, peer);
  }

  /** An end is one that the other side brought about or saw, too. */
  #hasCause(life: Life, end: string, peer: Life): void {
    const acted = ['disconnect', 'destroy', 'reject'].some(
      (call) => hasCall(peer, call) || hasCall(life, call),
    );
    const saw = peer.ends.some((one) => /timeout|stale|unreachable|rejected/.test(one));
    if (end === 'disconnected peer' && !acted && !saw)
      this.#complain(`${this.#show(life)}: ${end}, of which ${this.#show(peer)} knows nothing`);
    if (end === 'unreachable') this.#complain(`${this.#show(life)}: established and unreachable`);
  }

  #onePerRequest(name: SideName): void {
    const times = new Map<number, number>();
    for (const life of this.#programs[name].lives) {
      if (life.established > 1)
        this.#complain(`${this.#show(life)} was established ${life.established} times`);
      if (life.role !== 'passive' || life.established === 0) continue;
      times.set(life.remoteId, (times.get(life.remoteId) ?? 0) + 1);
    }
    for (const [remoteId, count] of times)
      if (count > 1) this.#complain(`${name}: ${count} connections out of the REQ of ${remoteId}`);
    for (const life of this.#programs[name].lives) this.#outcome(life);
  }

  /** Where nothing is lost and every program decides, only programs end anything. */
  #outcome(life: Life): void {
    const [end] = life.ends;
    // A late copy of a REQ may have made a second life there.
    const peers = peersOf(life, this.#programs[other(life.side)].lives);
    if (end === 'rejected 28' && !peers.some((peer) => hasCall(peer, 'reject') || hasCall(peer, 'destroy')))
      this.#complain(`${this.#show(life)}: rejected by nobody`);
    if (!this.#isCalm) return;
    if (/rejected 10|stale/.test(end ?? '') && !this.#restarted)
      this.#complain(`${this.#show(life)} was never stale`);
    // A REJ may overtake the REQ that it takes back: then nobody answers the REP.
    const takenBack = peers.some(({ destroyed }) => destroyed);
    if (end === 'unreachable' && !this.#restarted && !takenBack)
      this.#complain(`${this.#show(life)} is unreachable, though nothing was lost`);
    if (end === 'disconnected timeout')
      this.#complain(`${this.#show(life)} got no answer to DREQ, though nothing was lost`);
  }

  get #restarted(): boolean {
    return NAMES.some((name) => this.#programs[name].lives.some(({ forgotten }) => forgotten));
  }

  /** Nothing is left on either side, and nothing was sent for ever. */
  over(isOver: boolean): void {
    const world = this.#world;
    if (!isOver) this.#complain(`not over after ${world.now} µs`);
    for (const name of NAMES) {
      const side = world.sides[name];
      const { lives, questions, complaints } = this.#programs[name];
      this.complaints.push(...complaints);
      world.count('requests dropped for the backlog', side.overflowed());
      const held = side.holds();
      if (held) this.#complain(`${name} (${side.kind}) still holds ${held}`);
      for (const what of side.complaints()) this.#complain(`${name} (${side.kind}) complains: ${what}`);
      for (const { id, answers, canceled, forgotten } of questions)
        if (!canceled && !forgotten && answers !== 1)
          this.#complain(`${name}: ${answers} answers to question ${id}`);
      // Each message of an id, and its answers, at most as often as retries and copies allow.
      const most = (lives.length + questions.length + 5) * 8 * (TIMING.maxRetries + 1);
      if (world.sent[name] > most) this.#complain(`${name} sent ${world.sent[name]} messages`);
    }
  }

  #show(life: Life): string {
    const { kind } = this.#world.sides[life.side];
    const id = life.communicationId.toString(16);
    const flags = `${life.destroyed ? ' destroyed' : ''}${life.forgotten ? ' forgotten' : ''}`;
    const past = `established ${life.established}, ends [${life.ends}], calls [${life.calls}]`;
    return `${life.side} ${life.role} ${id} (${kind})${flags}: ${past}`;
  }
}

const hasCall = ({ calls }: Life, name: string) => calls.some((call) => call.startsWith(`${name} `));
