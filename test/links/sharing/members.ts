/** Programs that share an address, each connected to each other, and one after the other killed and started again. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** A connection, since the last report. */
export interface Flow {
  /** The index of the other program, or the guest. */
  peer: number | 'guest';
  side: 'client' | 'server';
  rounds: number;
  /** The longest round, ms, less the time in which the programs had no processor. */
  stall: number;
  retransmitted: number;
  error?: string;
}

/** How a queue pair of a program outside is reached, and where it may be written to. */
export interface Point {
  qpNum: number;
  psn: number;
  gid: string;
  addr: string;
  rkey: number;
  pathMtu: number;
}

export interface Setting {
  address: string;
  udpPort?: number;
  /** Of the listeners, by index. */
  servicePorts: readonly number[];
  /** ms between two rounds of a connection. */
  pace: number;
}

/** Longer than the ACK timer of member.mjs. */
const LAST_LOOK_MS = 5_000;

const MEMBER = join(import.meta.dirname, 'member.mjs');

/** A program of member.mjs. */
export class Member {
  readonly index: number;
  readonly child: ChildProcess;
  readonly #said = new Map<string | number, (message: Reply) => void>();
  #calls = 0;

  private constructor(index: number, setting: Setting) {
    this.index = index;
    this.child = fork(MEMBER, [JSON.stringify({ index, ...setting })], { execArgv: [] });
    this.child.on('message', (message: Reply) => {
      const key = message.id ?? message.name!;
      this.#said.get(key)?.(message);
      this.#said.delete(key);
    });
    this.child.on('exit', (code, signal) => {
      const error = `program ${index} ended (${signal ?? code})`;
      for (const tell of this.#said.values()) tell({ error });
      this.#said.clear();
    });
  }

  /** Starts a program; its `opening` and `ready` resolve as it proceeds. */
  static begin(
    index: number,
    setting: Setting,
  ): { member: Member; opening: Promise<void>; ready: Promise<void> } {
    const member = new Member(index, setting);
    const [opening, ready] = [member.#hear('opening'), member.#hear('ready')];
    for (const each of [opening, ready]) each.catch(() => {}); // Callers that await them get the error.
    return { member, opening, ready };
  }

  static async start(index: number, setting: Setting): Promise<Member> {
    const { member, ready } = Member.begin(index, setting);
    await ready;
    return member;
  }

  async #hear(key: string | number): Promise<void> {
    await this.#wait(key);
  }

  async #wait(key: string | number): Promise<unknown> {
    const { error, result } = await new Promise<Reply>((resolve) => this.#said.set(key, resolve));
    if (error !== undefined) throw new Error(error);
    return result;
  }

  async call<T = void>(name: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#calls;
    const reply = this.#wait(id);
    this.child.send({ id, name, args });
    return (await reply) as T;
  }

  async kill(): Promise<void> {
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }

  async close(): Promise<void> {
    const gone = once(this.child, 'exit');
    await this.call('close').catch(() => {}); // It may be gone before its answer is.
    await gone;
  }
}

/**
 * The connections of each member since its last report, once each of those that `concern` the caller has had a round or has ended:
 * on a busy machine a round may take its time.
 */
export async function busyFlows(
  members: readonly Member[],
  concern: (flow: Flow) => boolean,
): Promise<Flow[]> {
  const all = await Promise.all(
    members.map(async (member) => {
      let sums: Flow[] = [];
      do {
        const flows = (await member.call<Flow[]>('report')).filter(concern);
        // A report lists the connections in the order of their making.
        sums = flows.map((flow, i) => {
          const { rounds, retransmitted } = sums[i] ?? { rounds: 0, retransmitted: 0 };
          return { ...flow, rounds: flow.rounds + rounds, retransmitted: flow.retransmitted + retransmitted };
        });
      } while (sums.some(({ error, rounds }) => error === undefined && rounds === 0));
      return sums;
    }),
  );
  return all.flat();
}

interface Reply {
  id?: number;
  name?: string;
  result?: unknown;
  error?: string;
}

/** The other end of connections that are not between the programs. */
export interface Outside {
  /** Queue pairs for those of program `index`, in place of its earlier ones. */
  accept(index: number, theirs: { qpNum: number; psn: number }[]): Promise<Point[]>;
}

export interface StormOptions extends Setting {
  /** Connections that each program makes to the others together, and to the one outside. */
  connections: number;
  kills: number;
  /** ms from one kill to the next, at least. */
  period: number;
  outside?: Outside;
  /** Called at the end of each round. */
  onRound?(round: Round): void;
}

/** A kill, and the reports of the connections between those who were not killed. */
export interface Round {
  killed: number;
  flows: Flow[];
}

/** Connects `members` to each other and with the one outside. */
async function introduce(newcomer: Member, others: readonly Member[], options: StormOptions): Promise<void> {
  const { connections, outside } = options;
  const share = (peer: Member, of: Member) => {
    const n = options.servicePorts.length - 1;
    const nth = (peer.index - of.index + n) % (n + 1);
    return Math.floor(connections / n) + (nth < connections % n ? 1 : 0);
  };
  for (const other of others) {
    await newcomer.call('connectTo', other.index, share(other, newcomer));
    await other.call('connectTo', newcomer.index, share(newcomer, other));
  }
  if (!outside) return;
  const theirs = await newcomer.call<{ qpNum: number; psn: number }[]>('prepare', connections);
  await newcomer.call('reach', await outside.accept(newcomer.index, theirs));
}

/**
 * Starts a program for each service, connects all, and kills one after the other, which is then started again and connected.
 * Returns what the others' connections went through in each round: the reports of those that did not concern the killed one.
 */
export async function storm(options: StormOptions): Promise<{ members: Member[]; rounds: Round[] }> {
  const members: Member[] = [];
  for (const [index] of options.servicePorts.entries()) {
    const member = await Member.start(index, options);
    await introduce(member, members, options);
    members.push(member);
  }
  await sleep(options.period);
  for (const member of members) await member.call('report'); // The costs of the beginning do not count.
  const rounds: Round[] = [];
  for (let i = 0; i < options.kills; i++) {
    const next = sleep(options.period);
    const killed = i % members.length;
    const others = members.filter(({ index }) => index !== killed);
    await members[killed].kill();
    for (const other of others) await other.call('drop', killed);
    members[killed] = await Member.start(killed, options);
    await introduce(members[killed], others, options);
    await next;
    // A packet that was lost is retransmitted by then.
    if (i === options.kills - 1) await sleep(LAST_LOOK_MS);
    const flows = await busyFlows(others, ({ peer }) => peer !== killed);
    await members[killed].call('report');
    rounds.push({ killed, flows });
    options.onRound?.(rounds[i]);
  }
  return { members, rounds };
}
