/** The passive rules over the packets of cases that were played: other deviations, which the rule of a case does not look for. */
import { formatIpAddress, type Packet, psnDiff } from '@node-roce/wire';
import type { Entry, Line } from '../line.ts';
import type { NamedRule } from '../rule.ts';
import type { Result } from '../run.ts';
import type { CaseConnection } from './connection.ts';
import { atomicText, type TracePacket } from './packet.ts';
import { PASSIVE_RULES, type PassiveId } from './rules.ts';
import { Tally } from './tally.ts';
import { type Side, Trace } from './trace.ts';

/** A tester that sends a PSN so far away plays two connections in one. */
const FARTHEST = 1 << 16;
/**
 * Rules that are left to the active ones: TRC-05 takes a repetition that crossed the RNR NAK for one after it (RNR-11 to RNR-14 know
 * better); a connection of a case has no marked packets but on purpose (ECN-01).
 */
const ACTIVE: readonly PassiveId[] = ['TRC-05', 'TRC-21'];
/** The passive rules that judge cases. */
export const CASE_RULES: readonly NamedRule[] = PASSIVE_RULES.filter(({ id }) => !ACTIVE.includes(id));
/** ns behind the last packet: an answer to a packet that was not sent is not one that overtook it. */
const SETTLED = 2e6;
/** Cases that a note names. */
const MAX_CASES = 8;

const CONGESTION_EXPERIENCED = 3;

function traced({ time, packet }: Entry & { packet: Packet }, frame: number): TracePacket {
  const { info, bth, extensions, payload, ip } = packet;
  const { aeth, reth, atomicEth, cnp } = extensions;
  const traffic = 'tos' in ip ? ip.tos : ip.trafficClass;
  return {
    frame,
    time: time * 1e6,
    info,
    psn: bth.psn,
    length: payload.length,
    syndrome: aeth?.syndrome ?? -1,
    msn: aeth?.msn ?? 0,
    reth,
    atomic: atomicEth && atomicText(info, atomicEth),
    isMarked: (traffic & 3) === CONGESTION_EXPERIENCED,
    becn: bth.becn,
    isCnpFilled: cnp?.some((byte) => byte !== 0) ?? false,
  };
}

/** Packets of a case that both ends take for those of a connection: not those of a forger, nor damaged ones. */
function packetsOf({ entries }: Result, { tester, device }: Pick<Line, 'tester' | 'device'>) {
  const isGenuine = (entry: Entry): entry is Entry & { packet: Packet } => {
    const { packet, from } = entry;
    if (packet === undefined || packet.icrcStatus !== 'ok') return false;
    return formatIpAddress(packet.ip.source) === (from === 'tester' ? tester : device).ip;
  };
  return entries.filter(isGenuine);
}

/** All packets are there. Of mutated ones, nobody knows which ones the device took for packets of the connection. */
const isOrdered = ({ rule, leftOut }: Result): boolean =>
  leftOut === undefined && !rule.id.startsWith('FUZ-');

/** Gives the packets of one connection to the rules. */
function judgeConnection(
  packets: readonly (Entry & { packet: Packet })[],
  { testerQpn, deviceQpn, psn, pathMtu }: CaseConnection,
  tally: (id: PassiveId) => Tally,
): void {
  const own = packets.filter(
    ({ from, packet }) => packet.bth.destQp === (from === 'tester' ? deviceQpn : testerQpn),
  );
  const isFar = ({ from, packet }: (typeof own)[number]) =>
    from === 'tester' && packet.info.isRequest && Math.abs(psnDiff(packet.bth.psn, psn)) > FARTHEST;
  if (own.some(isFar)) return;
  const unheeded = new Tally();
  const of = (side: Side, id: PassiveId) => (side === 'b' ? tally(id) : unheeded);
  // The cable between the two loses nothing.
  const trace = new Trace({ pathMtu, at: 'b', tally: of });
  for (const [i, entry] of own.entries())
    trace.add(entry.from === 'tester' ? 'a' : 'b', traced(entry, i + 1));
  trace.finish(SETTLED);
}

/** One passive rule over all cases. */
class CaseTally {
  occasions = 0;
  /** By what was seen, a text without measured values: the first case, and in how many playings of each rule. */
  readonly seen = new Map<string, { first: Result; plays: Map<string, number> }>();

  add(of: Result, { occasions, certain }: Tally): void {
    this.occasions += occasions;
    for (const text of certain.keys()) {
      const before = this.seen.get(text) ?? { first: of, plays: new Map<string, number>() };
      before.plays.set(of.rule.id, (before.plays.get(of.rule.id) ?? 0) + 1);
      this.seen.set(text, before);
    }
  }
}

/** Judges the device by the passive rules, over the packets of all reliable connections that are played, each playing as it ends. */
export class CaseJudge {
  readonly #line: Pick<Line, 'tester' | 'device'>;
  readonly #all = new Map<string, CaseTally>(CASE_RULES.map(({ id }) => [id, new CaseTally()]));
  /** How often each rule was played. */
  readonly #plays = new Map<string, number>();

  /** @param line whose packets these are */
  constructor(line: Pick<Line, 'tester' | 'device'>) {
    this.#line = line;
  }

  add(result: Result): void {
    if (!isOrdered(result)) return;
    this.#plays.set(result.rule.id, (this.#plays.get(result.rule.id) ?? 0) + 1);
    const packets = packetsOf(result, this.#line);
    const tallies = new Map(PASSIVE_RULES.map(({ id }) => [id, new Tally()]));
    for (const connection of result.connections)
      judgeConnection(packets, connection, (id) => tallies.get(id)!);
    for (const [id, tally] of tallies) this.#all.get(id)?.add(result, tally);
  }

  /**
   * @param asked rules with a result in any case, `not testable` where the device had no occasion to break one
   * @returns a result for each rule that the device had an occasion to break; with the packets of a case in which it did
   */
  results(asked: readonly NamedRule[] = []): Result[] {
    return CASE_RULES.flatMap((rule) => {
      const tally = this.#all.get(rule.id)!;
      if (tally.occasions > 0) return [resultOf(rule, tally, this.#plays)];
      return asked.some(({ id }) => id === rule.id) ? [notTestable(rule)] : [];
    });
  }
}

/** `CaseJudge` for results that are all there. @param asked as there */
export function judgeCases(
  results: readonly Result[],
  line: Pick<Line, 'tester' | 'device'>,
  asked: readonly NamedRule[] = [],
): Result[] {
  const judge = new CaseJudge(line);
  for (const result of results) judge.add(result);
  return judge.results(asked);
}

const notTestable = (rule: NamedRule): Result => ({
  rule,
  verdict: 'not testable',
  why: ['no occasion to break it in the packets of the other rules'],
  notes: [],
  used: new Set(),
  entries: [],
  connections: [],
  ladder: '',
  time: 0,
});

/** `CRD-01, RD-01 (1 of 3 plays)`. */
function where(seen: ReadonlyMap<string, number>, plays: ReadonlyMap<string, number>): string {
  const named = [...seen].slice(0, MAX_CASES).map(([id, count]) => {
    const all = plays.get(id) ?? count;
    return count === all ? id : `${id} (${count} of ${all} plays)`;
  });
  return `${named.join(', ')}${seen.size > MAX_CASES ? ' …' : ''}`;
}

function resultOf(rule: NamedRule, { occasions, seen }: CaseTally, all: ReadonlyMap<string, number>): Result {
  const cases = [...seen].map(([text, { plays }]) => `${text}: in ${where(plays, all)}`);
  // The packets of the first one.
  const [{ first } = { first: undefined }] = seen.values();
  return {
    rule,
    verdict: seen.size > 0 ? 'deviation' : 'pass',
    why: [...seen.keys()].sort(),
    notes:
      seen.size > 0
        ? cases
        : [`${occasions} ${occasions === 1 ? 'occasion' : 'occasions'} in the packets of the other rules`],
    ...(seen.size > 0 && {
      seenIn: [...new Set([...seen.values()].flatMap(({ plays }) => [...plays.keys()]))],
    }),
    used: new Set(),
    entries: first?.entries ?? [],
    connections: first?.connections ?? [],
    ladder: first?.ladder ?? '',
    time: 0,
  };
}
