/** A device with an agent next to it. */
import { constants } from 'node:os';
import { gidFromText } from '@node-roce/wire';
import {
  type Completion,
  type ConnectionSpec,
  type Device,
  type DeviceConnection,
  type DeviceInfo,
  type Post,
  type Receive,
  type Right,
  Untestable,
  type Window,
  type WindowSpec,
} from '../device.ts';
import { type Need, SERVED } from '../needs.ts';
import { type Agent, Refused } from './agent.ts';
import {
  addressIn,
  bytesIn,
  completionsIn,
  countersIn,
  eventsIn,
  factOf,
  numberIn,
  stateIn,
} from './answers.ts';

const LETTERS: Readonly<Record<Right, string>> = { write: 'w', read: 'r', atomic: 'a', flush: 'f' };
const lettersOf = (rights: readonly Right[]): string => rights.map((right) => LETTERS[right]).join('');

/** `enum ibv_mtu`. */
const mtuCode = (bytes: number): number => Math.log2(bytes) - 7;

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Abilities that the agent reports by device, or that older ones have not. */
const REPORTED: readonly Need[] = ['flush', 'atomicWrite', 'fence', 'drain'];
const OFFERS: readonly Need[] = SERVED.agent.filter((need) => !REPORTED.includes(need));

/** Receives that a connection is opened with have ids from here on. */
const FIRST_RECEIVE = 1000;

interface Ids {
  mr: number;
  qp: number;
}

class AgentConnection implements DeviceConnection {
  readonly qpn: number;
  readonly psn: number;
  readonly va: bigint;
  rkey: number;
  readonly #agent: Agent;
  readonly #ids: Ids;
  readonly #spec: ConnectionSpec;
  /** Numbers of windows, and of further regions. */
  readonly #windows = new Set<number>();
  readonly #others: number[] = [];
  #qp = true;
  #mr = true;

  constructor(
    agent: Agent,
    ids: Ids,
    spec: ConnectionSpec,
    place: { qpn: number; psn: number; va: bigint; rkey: number },
  ) {
    this.#agent = agent;
    this.#ids = ids;
    this.#spec = spec;
    this.qpn = place.qpn;
    this.psn = place.psn;
    this.va = place.va;
    this.rkey = place.rkey;
  }

  /** The agent's number of the queue pair. */
  get pair(): number {
    return this.#ids.qp;
  }

  async receive({ id, offset, length }: Receive): Promise<void> {
    await this.#agent.call('recv', { ...this.#ids, id, off: offset, len: length });
  }

  async post(post: Post): Promise<void> {
    const { opcode, id, count, offset, length, remote, immediate, compareAdd, swap, qkey } = post;
    const flag = (given: boolean | undefined) => (given ? 1 : undefined);
    await this.#agent.call('send', {
      ...this.#ids,
      op: opcode,
      id,
      count,
      off: offset,
      len: length,
      raddr: remote?.va,
      rkey: remote?.rkey,
      imm: immediate,
      solicited: flag(post.solicited),
      fence: flag(post.fence),
      compare_add: compareAdd,
      swap,
      rqkey: qkey,
    });
  }

  async completions(want: number, ms: number): Promise<Completion[]> {
    return completionsIn(await this.#agent.call('poll', { want, wait: Math.round(ms) }, ms));
  }

  async state(): Promise<string> {
    return stateIn(await this.#agent.call('state', { qp: this.#ids.qp }));
  }

  async peek(offset: number, length: number): Promise<Uint8Array> {
    return bytesIn(await this.#agent.call('peek', { mr: this.#ids.mr, off: offset, len: length }), length);
  }

  async poke(offset: number, bytes: Uint8Array): Promise<void> {
    await this.#agent.call('poke', { mr: this.#ids.mr, off: offset, hex: hex(bytes) });
  }

  async fail(): Promise<void> {
    await this.#agent.call('fail', { qp: this.#ids.qp });
  }

  async drain(): Promise<void> {
    await this.#ask('drain', { qp: this.#ids.qp });
  }

  async resume(): Promise<void> {
    await this.#ask('resume', { qp: this.#ids.qp });
  }

  async destroyQp(): Promise<void> {
    if (this.#qp) await this.#agent.call('drop', { qp: this.#ids.qp });
    this.#qp = false;
  }

  async deregister(): Promise<void> {
    if (this.#mr) await this.#agent.call('drop', { mr: this.#ids.mr });
    this.#mr = false;
  }

  /** A request of memory management, which devices may lack. @throws Untestable */
  async #ask(verb: string, values: Readonly<Record<string, unknown>>) {
    try {
      return await this.#agent.call(verb, values);
    } catch (error) {
      throw isLack(error) ? new Untestable(`the device refuses it: ${error.message}`) : error;
    }
  }

  async bindWindow({ type, offset, length, access, id }: WindowSpec): Promise<Window> {
    const mw = numberIn(await this.#ask('mw', { type }), 'mw', 'mw');
    this.#windows.add(mw);
    const range = { off: offset, len: length, access: lettersOf(access), id };
    const rkey = numberIn(await this.#ask('bind', { ...this.#ids, mw, ...range }), 'bind', 'rkey');
    return {
      rkey,
      free: async () => {
        if (this.#windows.delete(mw)) await this.#agent.call('drop', { mw });
      },
    };
  }

  async reregister(access: readonly Right[]): Promise<void> {
    const changes = { mr: this.#ids.mr, access: `l${lettersOf(access)}` };
    this.rkey = numberIn(await this.#ask('rereg', changes), 'rereg', 'rkey');
  }

  async foreignRegion(): Promise<{ va: bigint; rkey: number }> {
    const access = `l${lettersOf(this.#spec.regionAccess)}`;
    const region = await this.#ask('mr', { size: this.#spec.size, access, other_pd: 1 });
    this.#others.push(numberIn(region, 'mr', 'mr'));
    return { va: addressIn(region, 'mr'), rkey: numberIn(region, 'mr', 'rkey') };
  }

  async limitReceives(limit: number): Promise<void> {
    // Forgets the events of the connections before.
    await this.events(0);
    await this.#ask('limit', { qp: this.#ids.qp, count: limit });
  }

  async events(ms: number): Promise<string[]> {
    return eventsIn(await this.#agent.call('events', { wait: Math.round(ms) }, ms));
  }

  async close(): Promise<void> {
    await Promise.all([
      ...[...this.#windows].map((mw) => this.#agent.call('drop', { mw })),
      ...this.#others.map((mr) => this.#agent.call('drop', { mr })),
      this.destroyQp(),
      this.deregister(),
      this.#agent.call('poll', { want: 0 }).catch(ignoreLack),
    ]);
  }
}

/** An agent of six verbs has no completions. */
function ignoreLack(error: unknown): void {
  if (!(error instanceof Untestable)) throw error;
}

/** Posts the receives, and connects the queue pair. */
async function open(agent: Agent, ids: Ids, spec: ConnectionSpec): Promise<void> {
  const { receives: count, receiveLength, size } = spec;
  const stride = Math.min(receiveLength, Math.floor(size / Math.max(1, count)));
  const receives = { ...ids, id: FIRST_RECEIVE, count, len: stride, stride };
  const posted = count > 0 ? agent.call('recv', receives) : undefined;
  const connected = agent.call('connect', {
    qp: ids.qp,
    dgid: hex(gidFromText(spec.address)),
    dqpn: spec.qpn,
    rq_psn: spec.psn,
    sq_psn: spec.devicePsn,
    mtu: mtuCode(spec.pathMtu),
    mdra: spec.maxDestRdAtomic,
    mra: spec.maxRdAtomic,
    rnr_timer: spec.minRnrTimer,
    timeout: spec.timeout,
    retry: spec.retryCnt,
    rnr_retry: spec.rnrRetry,
    rtr_only: spec.state === 'RTR' ? 1 : undefined,
  });
  await Promise.all([posted, connected]);
}

const { EINVAL, ENOSYS, EOPNOTSUPP, EPERM } = constants.errno;

/** The device has not what a connection asks for: a path MTU beyond its port's, a service, a number of READs. */
const LACKS: readonly number[] = [EINVAL, ENOSYS, EOPNOTSUPP, EPERM];

const isLack = (error: unknown): error is Refused => error instanceof Refused && LACKS.includes(error.errno);

/** Of `device_cap_flags_ex`. */
const FLAGS = { flush: 1n << 38n, atomicWrite: 1n << 40n } as const;

const flagsOf = (text: unknown): bigint => (/^\d+$/.test(String(text)) ? BigInt(String(text)) : 0n);

/** Abilities of a device, by its flags; an older agent does not report them. */
const offersOf = (flags: bigint): readonly Need[] =>
  (['flush', 'atomicWrite'] as const).filter((need) => (flags & FLAGS[need]) !== 0n);

/** Abilities of newer agents: an older one takes the request, and leaves the flag out. */
const newsOf = (version: unknown): readonly Need[] => [
  ...(Number(version) >= 2 ? (['fence'] as const) : []),
  ...(Number(version) >= 3 ? (['drain'] as const) : []),
];

/** @throws the reason of a request that failed */
function fulfilled<T>(settled: PromiseSettledResult<T>): T {
  if (settled.status === 'rejected') throw settled.reason;
  return settled.value;
}

/** @throws Error if the agent refuses the token */
export async function agentDevice(agent: Agent, token?: string): Promise<Device> {
  const { ok: _, agent: version, flags = '0', ...facts } = await agent.call('hello', { token });
  agent.takesAhead = Number(version) >= 4;
  const info: DeviceInfo = {
    ...Object.fromEntries(Object.entries(facts).map(([name, value]) => [name, factOf(value)])),
    name: String(factOf(facts.device ?? 'device without a name')),
  };
  const connect = async (spec: ConnectionSpec): Promise<DeviceConnection> => {
    const access = `l${lettersOf(spec.regionAccess)}${spec.windows ? 'b' : ''}`;
    // Together: each answer costs a round trip, which is long if the machine of the device is busy.
    const made = await Promise.allSettled([
      agent.call('mr', { size: spec.size, access }),
      agent.call('qp', {
        type: spec.service,
        access: lettersOf(spec.access),
        qkey: spec.qkey,
        srq: spec.srq === undefined ? undefined : 1,
        with: spec.srq instanceof AgentConnection ? spec.srq.pair : undefined,
      }),
    ]);
    try {
      const [region, pair] = made.map(fulfilled);
      const ids = { mr: numberIn(region, 'mr', 'mr'), qp: numberIn(pair, 'qp', 'qp') };
      if (spec.srq !== undefined && pair.srq !== true)
        throw new Untestable('the agent has no shared receive queues');
      if (spec.state !== 'INIT') await open(agent, ids, spec);
      return new AgentConnection(agent, ids, spec, {
        qpn: numberIn(pair, 'qp', 'qpn') & 0xff_ffff,
        psn: spec.devicePsn,
        va: addressIn(region, 'mr'),
        rkey: numberIn(region, 'mr', 'rkey'),
      });
    } catch (error) {
      // The agent has room for 64 regions.
      const [region, pair] = made;
      if (pair.status === 'fulfilled') await agent.call('drop', { qp: pair.value.qp }).catch(() => {});
      if (region.status === 'fulfilled') await agent.call('drop', { mr: region.value.mr }).catch(() => {});
      throw isLack(error) ? new Untestable(`the device refuses it: ${error.message}`) : error;
    }
  };
  return {
    info,
    offers: new Set([...OFFERS, ...offersOf(flagsOf(flags)), ...newsOf(version)]),
    connect,
    counters: async () => countersIn(await agent.call('counters')),
    get isLost() {
      return agent.gone;
    },
  };
}
