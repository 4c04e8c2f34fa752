/** A test: the choices of its caller, and the values that perftest derives where there is no choice. */
import { constants } from 'node:buffer';
import { RoceError } from '@node-roce/verbs-api';
import { broken } from './errors.ts';

export type Verb = 'send' | 'write' | 'read' | 'atomic';
export type Measure = 'bw' | 'lat';
export type Service = 'RC' | 'UC' | 'UD';
export type AtomicType = 'CMP_AND_SWAP' | 'FETCH_AND_ADD';

/** The peer answers requests with data (READ and atomics): no data of this side, no receives, and `outReads` at once. */
export const fetches = ({ verb }: { verb: Verb }): boolean => verb === 'read' || verb === 'atomic';

/** The choices of a caller. Both sides need the same, but for `margin`, `mtu`, `inline`, depths, `cqMod`, `outReads`, `events`, and those from `warmUp` on. */
export interface PerfOptions {
  verb: Verb;
  measure: Measure;
  /** RC unless given. UC has send and write, UD has send. */
  service?: Service;
  /** Bytes of a message: 65,536 for bandwidth, 2 for latency, 8 (and no other) of an atomic. */
  size?: number;
  /** Sizes 2, 4, … 8 MiB (UD: the path MTU) in turn. */
  all?: boolean;
  /** Messages on each queue pair, 5 at least; 1000, and 5000 for the bandwidth of WRITE. */
  iters?: number;
  /** Seconds to run for, in place of `iters`. */
  duration?: number;
  /** Seconds at the start and at the end of `duration` that do not count; a quarter of it, rounded down. */
  margin?: number;
  /** Queue pairs; 1. */
  qps?: number;
  /** Both sides send. Bandwidth only. */
  bidirectional?: boolean;
  /** Largest path MTU, bytes; the port's. */
  mtu?: number;
  /** Messages of so many bytes and fewer are posted inline; 0. */
  inline?: number;
  /** Send requests under way on each queue pair; 128, and 1 for latency. */
  txDepth?: number;
  /** Receives posted on each queue pair; 512, of UC and UD as many as there are messages, 16,000 at most. */
  rxDepth?: number;
  /** A completion for every so many send requests; 100, and 1 for messages above 8 KiB without `all` and `events`. */
  cqMod?: number;
  /** READs and atomics under way on each queue pair; 16. */
  outReads?: number;
  /** Sleep until a completion event instead of polling. */
  events?: boolean;
  /** FETCH_AND_ADD unless given. */
  atomic?: AtomicType;
  /** WRITE carries an immediate, and completes a receive of the peer. */
  writeWithImm?: boolean;
  /** Post `txDepth` messages before the run (bandwidth of write, read and atomic). */
  warmUp?: boolean;
  /** No peak bandwidth: a time is not taken at each message. */
  noPeak?: boolean;
  /** DSCP << 2 | ECN; 0. */
  trafficClass?: number;
  /** 0 … 15; 0. */
  sl?: number;
  /** Code of the ACK timeout; 14. */
  ackTimeout?: number;
}

/** A test with nothing left open. */
export interface Plan {
  readonly verb: Verb;
  readonly measure: Measure;
  readonly service: Service;
  /** The largest message. */
  readonly size: number;
  /** The caller chose it: then it does not shrink to what a datagram holds. */
  readonly sizeChosen: boolean;
  readonly all: boolean;
  /** 0 with a duration. */
  readonly iters: number;
  readonly duration: number | undefined;
  readonly margin: number;
  readonly qps: number;
  readonly bidirectional: boolean;
  readonly mtu: number | undefined;
  readonly inline: number;
  readonly txDepth: number;
  readonly rxDepth: number;
  readonly cqMod: number;
  readonly outReads: number;
  readonly events: boolean;
  readonly atomic: AtomicType;
  readonly writeWithImm: boolean;
  readonly warmUp: boolean;
  readonly peak: boolean;
  readonly trafficClass: number;
  readonly sl: number;
  readonly ackTimeout: number;
  /** The peer's receives are consumed. */
  readonly consumesReceives: boolean;
}

/** Largest message of perftest (`MAX_SIZE`), 2^23: the last of `all`. */
const MAX_SIZE = 2 ** 23;
const MIN_ITERS = 5;
const ATOMIC_BYTES = 8;
const MAX_UNRELIABLE_RECEIVES = 16_000;
/** Above it, each message raises a completion. */
const MODERATED_SIZE = 8192;
/** Above it perftest finds no peak. */
const MAX_PEAK_ITERS = 20_000;
/** Of a run each message of which leaves a time. */
const MAX_TIMED = 50_000_000;
/** Entries of a device's completion queue. */
const MAX_CQES = 2 ** 20;

/** EINVAL for an option. */
export function refuse(
  attribute: keyof PerfOptions | keyof PlayOptions | 'timeout',
  what: string,
  expected: string,
): RoceError {
  return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `${attribute}: ${what}`, {
    errno: 'EINVAL',
    attribute,
    expected,
  });
}

/** The options that are whole numbers: the least and the largest of each. */
const WHOLE = {
  ...{ size: [1], iters: [1], qps: [1], txDepth: [1], rxDepth: [1], cqMod: [1], outReads: [1], inline: [0] },
  ...{ trafficClass: [0, 255], sl: [0, 15], ackTimeout: [0, 31] },
} as const satisfies Partial<Record<keyof PerfOptions, readonly [number, number?]>>;

/** Throws EINVAL for values that no test has, whichever it is. */
function checkValues(options: PerfOptions): void {
  const { verb, measure, service = 'RC', atomic = 'FETCH_AND_ADD', mtu = 4096 } = options;
  const choices: [attribute: keyof PerfOptions, value: unknown, of: readonly unknown[]][] = [
    ['verb', verb, ['send', 'write', 'read', 'atomic'] satisfies Verb[]],
    ['measure', measure, ['bw', 'lat'] satisfies Measure[]],
    ['service', service, ['RC', 'UC', 'UD'] satisfies Service[]],
    ['atomic', atomic, ['CMP_AND_SWAP', 'FETCH_AND_ADD'] satisfies AtomicType[]],
    ['mtu', mtu, [256, 512, 1024, 2048, 4096]],
  ];
  for (const [attribute, value, of] of choices)
    if (!of.includes(value)) throw refuse(attribute, `${value}`, of.join(', '));
  for (const [name, [least, largest]] of Object.entries(WHOLE)) {
    const value = options[name as keyof typeof WHOLE] ?? least;
    if (!(Number.isSafeInteger(value) && value >= least && value <= (largest ?? value)))
      throw refuse(
        name as keyof typeof WHOLE,
        `${value}`,
        `a whole number from ${least} ${largest ? `to ${largest}` : 'on'}`,
      );
  }
  const { duration = 1, margin = 0 } = options;
  if (!(duration > 0 && Number.isFinite(duration)))
    throw refuse('duration', `${duration}`, 'seconds above 0');
  if (!(margin >= 0)) throw refuse('margin', `${margin}`, 'seconds from 0 on');
}

/** Options of one side that some tests refuse. */
export interface PlayOptions {
  /** Connect by the connection manager (`-R`). */
  rdmaCm?: boolean;
  /** Count latencies by powers of two. */
  histogram?: boolean;
}

/**
 * Throws EINVAL for options that perftest does not have, or refuses with this test, since they would have no effect. Those that
 * perftest ignores, its command lines may have: `cqMod` and `txDepth` with latency, `rxDepth` with WRITE, `warmUp` of SEND and latency.
 */
function check(options: PerfOptions, { rdmaCm, histogram }: PlayOptions): void {
  const { verb, measure, service = 'RC', size, all, iters, duration, margin } = options;
  const name = `${verb} ${measure}`;
  if (service === 'UD' && verb !== 'send') throw refuse('service', `UD has no ${verb}`, 'RC');
  if (service === 'UC' && verb !== 'send' && verb !== 'write')
    throw refuse('service', `UC has no ${verb}`, 'RC');
  if (service === 'UC' && rdmaCm) throw refuse('service', 'the connection manager has no UC', 'RC or UD');
  if (verb === 'atomic' && (all || (size ?? ATOMIC_BYTES) !== ATOMIC_BYTES))
    throw refuse('size', 'an atomic has 8 bytes', 'no size');
  if (duration === undefined && margin !== undefined)
    throw refuse('margin', 'it belongs to a duration', 'a duration');
  if (duration !== undefined) {
    if (iters !== undefined) throw refuse('duration', 'it takes the place of iters', 'one of both');
    if (all) throw refuse('duration', 'not with all sizes', 'one size');
    if (options.events) throw refuse('duration', 'not with events', 'polling');
    if (duration <= 2 * (margin ?? Math.floor(duration / 4)))
      throw refuse('duration', 'it is not longer than both margins', 'more than twice the margin');
  }
  if (measure === 'lat') {
    if (options.bidirectional) throw refuse('bidirectional', 'for bandwidth only', 'bw');
    if ((options.qps ?? 1) !== 1) throw refuse('qps', `${name} has one queue pair`, '1');
    if (options.events && verb === 'write' && !options.writeWithImm)
      throw refuse('events', 'write lat polls memory, which raises none', 'polling');
    if (options.noPeak) throw refuse('noPeak', `${name} has no peak`, 'bw');
  }
  checkVerb(options);
  if (histogram && (measure === 'bw' || duration !== undefined))
    throw refuse('histogram', 'for latencies, of which a duration keeps none', 'lat without a duration');
  if (options.writeWithImm && verb !== 'write') throw refuse('writeWithImm', 'for write only', 'write');
  if (measure === 'lat' && (iters ?? 0) > MAX_TIMED)
    throw refuse('iters', `${iters}`, `${MAX_TIMED} at most, or a duration`);
  if (iters !== undefined && iters < MIN_ITERS) throw refuse('iters', `${iters}`, `${MIN_ITERS} or more`);
}

/** Throws EINVAL for options of another verb. */
function checkVerb({ verb, inline, rxDepth = 1, outReads, atomic }: PerfOptions): void {
  if (fetches({ verb })) {
    if (inline !== undefined) throw refuse('inline', `a request of ${verb} carries no data`, 'send or write');
    if (rxDepth > 1) throw refuse('rxDepth', `${verb} consumes no receives`, 'send');
  } else if (outReads !== undefined) throw refuse('outReads', `${verb} has no READs`, 'read or atomic');
  if (atomic !== undefined && verb !== 'atomic') throw refuse('atomic', `${verb} has no atomics`, 'atomic');
}

/** Fills in the values that perftest derives where its caller leaves the choice open. @throws RoceError EINVAL */
export function planOf(options: PerfOptions, side: PlayOptions = {}): Plan {
  checkValues(options);
  check(options, side);
  const { verb, measure, service = 'RC', all = false, duration, events = false } = options;
  const { writeWithImm = false } = options;
  const defaultSize = verb === 'atomic' ? ATOMIC_BYTES : measure === 'bw' ? 65_536 : 2;
  const size = all ? MAX_SIZE : (options.size ?? defaultSize);
  const timed = duration !== undefined;
  const iters = timed ? 0 : (options.iters ?? (verb === 'write' && measure === 'bw' ? 5000 : 1000));
  const most = timed ? Number.POSITIVE_INFINITY : iters;
  const txDepth = measure === 'bw' ? Math.min(options.txDepth ?? 128, most) : 1;
  const unreliable = service !== 'RC';
  const receives = unreliable ? Math.min(most, MAX_UNRELIABLE_RECEIVES) : 512;
  const rxDepth = Math.min(options.rxDepth ?? receives, most);
  const moderated = size <= MODERATED_SIZE || service === 'UD' || all || events;
  const cqMod = Math.min(options.cqMod ?? (moderated ? 100 : 1), txDepth);
  const plan: Plan = {
    ...{ verb, measure, service, size, all, iters, duration, events, writeWithImm, txDepth, rxDepth, cqMod },
    sizeChosen: options.size !== undefined && !all,
    margin: timed ? (options.margin ?? Math.floor(duration / 4)) : 0,
    qps: options.qps ?? 1,
    bidirectional: options.bidirectional ?? false,
    mtu: options.mtu,
    inline: options.inline ?? 0,
    outReads: fetches(options) ? (options.outReads ?? 16) : 1,
    atomic: options.atomic ?? 'FETCH_AND_ADD',
    warmUp: (options.warmUp ?? false) && measure === 'bw' && verb !== 'send' && !writeWithImm,
    peak: !(options.noPeak ?? false) && !timed && iters <= MAX_PEAK_ITERS,
    trafficClass: options.trafficClass ?? 0,
    sl: options.sl ?? 0,
    ackTimeout: options.ackTimeout ?? 14,
    consumesReceives: verb === 'send' || writeWithImm,
  };
  checkSizes(plan);
  return plan;
}

/** Completions that may wait at once. */
export const cqesOf = ({ txDepth, rxDepth, consumesReceives, qps }: Plan): number =>
  (txDepth + (consumesReceives ? rxDepth : 1) + 2) * qps;

/** Throws EINVAL for more than a completion queue or an array holds. */
function checkSizes(plan: Plan): void {
  const { qps, size } = plan;
  const cqes = cqesOf(plan);
  if (cqes > MAX_CQES)
    throw refuse('qps', `${cqes} completions on ${qps} queue pairs`, `${MAX_CQES} at most: smaller depths`);
  const timed = plan.peak && plan.measure === 'bw' ? plan.iters * qps : 0;
  if (timed > MAX_TIMED)
    throw refuse('iters', `a time of each of ${timed} messages`, `noPeak, or ${MAX_TIMED} at most`);
  // Those to send from, and those that the peer reaches. A datagram shrinks to the path MTU.
  const bytes = plan.service === 'UD' && !plan.sizeChosen ? 0 : 2 * qps * size;
  if (bytes > constants.MAX_LENGTH)
    throw refuse('size', `${bytes} bytes of messages in all`, `${constants.MAX_LENGTH} at most`);
}

/**
 * The plan at a path MTU: a datagram holds no more than that.
 *
 * @param own the largest of this side
 * @throws RoceError for a chosen size above it: EINVAL; ERR_ROCE_EXCHANGE where only the peer's is too small
 */
export function planAt(plan: Plan, pathMtu: number, own: number): Plan {
  if (plan.service !== 'UD' || plan.size <= pathMtu) return plan;
  if (plan.sizeChosen && plan.size <= own)
    throw broken(`the peer takes datagrams of ${pathMtu} bytes at most, its path MTU: not of ${plan.size}`);
  if (plan.sizeChosen)
    throw refuse('size', `a datagram of ${plan.size} bytes`, `${pathMtu} at most, the path MTU`);
  return { ...plan, size: pathMtu };
}

/** Throws EINVAL for an MTU that a connection of the connection manager does not have: it has that of the port. */
export function checkMtu({ service, mtu }: Plan, activeMtu: number): void {
  if (service === 'RC' && mtu !== undefined && mtu < activeMtu)
    throw refuse('mtu', 'the connection manager connects at the MTU of the port', `${activeMtu}`);
}

/** The sizes of the runs, in order. */
export function sizesOf({ all, size }: Plan): number[] {
  if (!all) return [size];
  const sizes: number[] = [];
  for (let bytes = 2; bytes <= size; bytes *= 2) sizes.push(bytes);
  return sizes;
}

/** Whether this side measures the run, and does not only wait for the peer's report. */
export const measuresHere = (
  { verb, measure, bidirectional, writeWithImm }: Plan,
  isClient: boolean,
): boolean =>
  isClient || bidirectional || verb === 'send' || (verb === 'write' && measure === 'lat') || writeWithImm;
