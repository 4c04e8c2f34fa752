/** `roce conform --capture`: the passive rules over a capture file, for each host in it. */
import {
  analyzeCapture,
  type Connection,
  IcrcVerdict,
  type ReadOptions,
  type RocePacket,
  readPackets,
} from '@node-roce/capture/node';
import type { NamedRule } from '../rule.ts';
import type { Result } from '../run.ts';
import { tracePacket } from './packet.ts';
import { PASSIVE_RULES } from './rules.ts';
import { Board, type Seen, type Tally } from './tally.ts';
import { type Side, Trace } from './trace.ts';

export interface CaptureJudgeOptions extends ReadOptions {
  /** Address of the host at which the capture was made: what it shows of this host is all there is. */
  at?: string | undefined;
  /** Default: all. */
  rules?: readonly NamedRule[] | undefined;
}

/** The results of one host. */
export interface HostResults {
  host: string;
  results: Result[];
}

export interface CaptureJudgement {
  hosts: HostResults[];
  /** Reliable connections. */
  connections: number;
  /** Damage that ended the reading before the end of the file. */
  damage: string | undefined;
}

/** The packets of a connection from one side. */
interface Way {
  trace: Trace;
  from: Side;
  first: number;
  last: number;
  network: number | undefined;
}

/** A packet among the parts of a super-packet, which have one frame number. */
const nameOf = ({ frame, part }: RocePacket): number => frame * 256 + part;

/**
 * Judges each host by the packets of a capture (pcap or pcapng, plain, gzip or Zstandard; several files are one), which is read twice.
 * Without `at` a deviation does not count if a loss between the host and the capture explains it.
 *
 * Rejects with the system's error where the file can't be read; RangeError if no packet is from or to the host `at`.
 */
export async function judgeCapture(
  source: string | readonly string[],
  { at, rules = PASSIVE_RULES, ...reading }: CaptureJudgeOptions = {},
): Promise<CaptureJudgement> {
  // Mirrors, and networks, show packets twice.
  const repeated = new Set<number>();
  const icrcs: Icrcs = new Map();
  const { connections, summary } = await analyzeCapture(source, {
    ...reading,
    onPacket: (packet, { repeatedFrame }) => {
      if (repeatedFrame) repeated.add(nameOf(packet));
      countIcrc(icrcs, packet);
    },
  });
  const reliable = connections.filter(({ transport }) => transport === 'RC');
  if (at !== undefined && !reliable.some(({ a, b }) => a.address === at || b.address === at))
    throw new RangeError(`no reliable connection of ${at} in the capture`);
  const board = new Board();
  const isWhole = !summary.droppedByCapture;
  const ways = new Ways(reliable, board, isWhole ? at : undefined);
  await readPackets(source, {
    ...reading,
    onPacket: (packet, { addresses }) => {
      if (packet.sampled || repeated.has(nameOf(packet)) || isDamaged(packet, icrcs)) return;
      const way = ways.of(packet, addresses);
      const copy = way && tracePacket(packet);
      if (copy !== undefined) way!.trace.add(way!.from, copy);
    },
  });
  ways.finish();
  const hosts = at === undefined ? board.hosts : [at];
  // Where requests are lost or reordered before the capture, it can look as if a requester goes back wrongly, each time.
  const isOrdered = (host: string) => board.of(host, 'TRC-01').doubtful.size === 0;
  const judged = hosts.map((host) => ({
    host,
    results: rules.map((rule) =>
      resultOf(rule, board.of(host, rule.id), isOrdered(host) || rule.id !== 'TRC-02'),
    ),
  }));
  return { hosts: judged, connections: reliable.length, damage: summary.damage };
}

/** A host with so many wrong ICRCs for each right one: its headers were changed behind the ICRC. */
const REWRITTEN = 9;

/** By the number of the source, which is the same in both readings. */
type Icrcs = Map<number, { ok: number; bad: number }>;

function countIcrc(icrcs: Icrcs, { source, icrc }: RocePacket): void {
  const counts = icrcs.get(source) ?? { ok: 0, bad: 0 };
  icrcs.set(source, counts);
  if (icrc === IcrcVerdict.OK) counts.ok++;
  else if (icrc === IcrcVerdict.BAD) counts.bad++;
}

/** The receiver drops the packet. Where nearly all of a host are wrong, the capture shows other headers than the receiver had. */
function isDamaged({ source, icrc }: RocePacket, icrcs: Icrcs): boolean {
  const { ok, bad } = icrcs.get(source) ?? { ok: 0, bad: 0 };
  return icrc === IcrcVerdict.BAD && bad <= REWRITTEN * ok;
}

/** The connections of a capture, found by addresses, queue pair and frame. */
class Ways {
  readonly #byName = new Map<string, Way[]>();
  /** By the numbers of the reader. */
  readonly #found = new Map<string, Way[]>();
  readonly #all: { trace: Trace; connection: Connection }[] = [];
  readonly #board: Board;

  constructor(connections: readonly Connection[], board: Board, at: string | undefined) {
    this.#board = board;
    for (const connection of connections) this.#add(connection, at);
  }

  #add(connection: Connection, at: string | undefined): void {
    const { a, b, pathMtu, firstFrame, lastFrame, paths } = connection;
    const host = { a: a.address, b: b.address };
    const side = at === undefined || a.address === b.address ? undefined : sideOf(host, at);
    const tally = (of: Side, id: string) => this.#board.of(host[of], id);
    const trace = new Trace({ pathMtu, at: side, tally });
    this.#all.push({ trace, connection });
    const way = (from: Side, to: Side, network: number | undefined) => {
      const name = `${host[from]} ${host[to]} ${connection[to].qpn}`;
      const known = this.#byName.get(name) ?? [];
      this.#byName.set(name, known);
      known.push({ trace, from, first: firstFrame, last: lastFrame, network });
    };
    way('a', 'b', paths.aToB?.network);
    way('b', 'a', paths.bToA?.network);
  }

  of(packet: RocePacket, addresses: { text(index: number): string }): Way | undefined {
    const { source, destination, destQp, frame, network } = packet;
    const key = `${source} ${destination} ${destQp}`;
    let found = this.#found.get(key);
    if (found === undefined) {
      found = this.#byName.get(`${addresses.text(source)} ${addresses.text(destination)} ${destQp}`) ?? [];
      this.#found.set(key, found);
    }
    return found.find((way) => frame >= way.first && frame <= way.last && way.network === network);
  }

  finish(): void {
    for (const { trace, connection } of this.#all) {
      trace.finish();
      for (const from of ['a', 'b'] as const) {
        const pace = trace.pace[from];
        if (pace === Number.POSITIVE_INFINITY) continue;
        const text = `#${connection.id}: CNPs at least ${(pace / 1000).toFixed(0)} µs apart`;
        this.#board.of(connection[from].address, 'TRC-21').notes.push(text);
      }
    }
  }
}

const sideOf = (host: Record<Side, string>, at: string): Side | undefined =>
  host.a === at ? 'a' : host.b === at ? 'b' : undefined;

const framesText = (text: string, { count, frames }: Seen): string =>
  `${text}: ${count === 1 ? 'once' : `${count} times`}, frame${frames.length === 1 ? '' : 's'} ${frames.join(', ')}${count > frames.length ? ' …' : ''}`;

/** @param counts whether deviations that a loss explains count where there are many of them */
function resultOf(rule: NamedRule, tally: Tally, counts: boolean): Result {
  const { doubtful, occasions } = tally;
  const deviations = counts ? tally.deviations : tally.certain;
  const notes = [...deviations].map(([text, seen]) => framesText(text, seen));
  const open = [...doubtful].filter(([text]) => !deviations.has(text));
  const explained = open.map(
    ([text, seen]) => `${framesText(text, seen)}; a loss outside of the capture explains it`,
  );
  const result = { rule, used: new Set<never>(), entries: [], connections: [], ladder: '', time: 0 };
  if (deviations.size > 0)
    return {
      ...result,
      verdict: 'deviation',
      why: [...deviations.keys()],
      notes: [...notes, ...explained, ...tally.notes],
    };
  if (open.length > 0) return { ...result, verdict: 'not testable', why: explained, notes: tally.notes };
  if (occasions === 0)
    return { ...result, verdict: 'not testable', why: ['no occasion in the capture'], notes: [] };
  return {
    ...result,
    verdict: 'pass',
    why: [],
    notes: [`${occasions} ${occasions === 1 ? 'occasion' : 'occasions'}`, ...tally.notes],
  };
}
