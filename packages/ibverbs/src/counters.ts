/** Counters of flows: ibv_create_counters(3), ibv_read_counters(3). */
import { type FrameCount, invalid, RoceError } from '@node-roce/transport';
import * as c from './constants.ts';
import { pointer, status } from './errno.ts';
import { checkKind, given, ibv_context } from './objects.ts';

/** `struct ibv_counters_init_attr`. */
export interface ibv_counters_init_attr {
  /** 0. */
  comp_mask?: number;
}

/** `struct ibv_counter_attach_attr`. */
export interface ibv_counter_attach_attr {
  /** IBV_COUNTER_PACKETS or IBV_COUNTER_BYTES. */
  counter_desc: number;
  /** Which of the values. */
  index: number;
  /** 0. */
  comp_mask?: number;
}

/** Values that `index` may name. */
const MAX_INDEX = 1023;

/** `struct ibv_counters`. */
export class ibv_counters {
  readonly context: ibv_context;
  /** Counted values, and where each is added. @internal */
  readonly points: { desc: number; index: number }[] = [];
  /** Flows that it counts, with what asks for their counts. @internal */
  readonly flows = new Map<object, () => Promise<FrameCount>>();
  /** Of flows that are destroyed. */
  readonly #gone: FrameCount = { frames: 0, bytes: 0 };

  constructor(context: ibv_context) {
    this.context = context;
  }

  /** A flow is destroyed, which had counted so much. @internal */
  keep({ frames, bytes }: FrameCount): void {
    this.#gone.frames += frames;
    this.#gone.bytes += bytes;
  }

  /** Counts of its flows, those that are destroyed among them. @internal */
  async counts(): Promise<FrameCount[]> {
    // Looked at first: a flow that is destroyed meanwhile still gives all that it has counted.
    const gone = { ...this.#gone };
    return [gone, ...(await Promise.all([...this.flows.values()].map((count) => count())))];
  }
}

/** EOPNOTSUPP for the value of an attribute. */
export function unsupported(attribute: string, what: string, expected: string): RoceError {
  return new RoceError('ERR_ROCE_NOT_SUPPORTED', `${attribute}: ${what}`, {
    errno: 'EOPNOTSUPP',
    attribute,
    expected,
  });
}

/** ibv_create_counters(3). */
export function ibv_create_counters(
  context: ibv_context,
  init_attr: ibv_counters_init_attr,
): Promise<ibv_counters | null> {
  return pointer(() => {
    checkKind('context', context, ibv_context);
    const { comp_mask = 0 } = given('init_attr', init_attr);
    if (comp_mask !== 0) throw invalid('init_attr.comp_mask', `0x${comp_mask.toString(16)}`, '0');
    return new ibv_counters(context);
  });
}

/** ibv_destroy_counters(3): EBUSY while flows count with it. */
export function ibv_destroy_counters(counters: ibv_counters): Promise<number> {
  return status(() => {
    checkKind('counters', counters, ibv_counters);
    checkUnbound(counters);
  });
}

function checkUnbound({ flows }: ibv_counters): void {
  if (flows.size > 0)
    throw new RoceError('ERR_ROCE_BUSY', `${flows.size} flows count with it`, { errno: 'EBUSY' });
}

/**
 * ibv_attach_counters_point_flow(3): adds what flows with these counters (IBV_FLOW_SPEC_ACTION_COUNT) take in to the value at `index`. EBUSY
 * once a flow counts with it; EOPNOTSUPP for a flow that there is already.
 */
export function ibv_attach_counters_point_flow(
  counters: ibv_counters,
  attr: ibv_counter_attach_attr,
  flow: object | null,
): Promise<number> {
  return status(() => {
    checkKind('counters', counters, ibv_counters);
    const { counter_desc: desc, index, comp_mask = 0 } = given('attr', attr);
    if (flow !== null) throw unsupported('flow', 'flows count from the start or not at all', 'NULL');
    if (comp_mask !== 0) throw invalid('attr.comp_mask', `0x${comp_mask.toString(16)}`, '0');
    if (desc !== c.IBV_COUNTER_PACKETS && desc !== c.IBV_COUNTER_BYTES)
      throw unsupported('attr.counter_desc', `${desc}`, 'IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES');
    if (!(Number.isInteger(index) && index >= 0 && index <= MAX_INDEX))
      throw invalid('attr.index', `${index}`, `0 … ${MAX_INDEX}`);
    checkUnbound(counters);
    counters.points.push({ desc, index });
  });
}

/** ibv_read_counters(3): fills the first `ncounters` elements of `counters_value`, bigints. The flags change nothing: nothing is cached. */
export function ibv_read_counters(
  counters: ibv_counters,
  counters_value: bigint[],
  ncounters: number,
  flags: number,
): Promise<number> {
  return status(async () => {
    checkKind('counters', counters, ibv_counters);
    given('counters_value', counters_value);
    if ((flags & ~c.IBV_READ_COUNTERS_ATTR_PREFER_CACHED) !== 0)
      throw invalid('flags', `0x${flags.toString(16)}`, 'IBV_READ_COUNTERS_ATTR_PREFER_CACHED');
    if (!(Number.isInteger(ncounters) && ncounters >= 0 && ncounters <= MAX_INDEX + 1))
      throw invalid('ncounters', `${ncounters}`, `0 … ${MAX_INDEX + 1}`);
    const counts = await counters.counts();
    const sum = (member: keyof FrameCount) =>
      BigInt(counts.reduce((total, count) => total + count[member], 0));
    const values = [sum('frames'), sum('bytes')];
    for (let i = 0; i < ncounters; i++) counters_value[i] = 0n;
    for (const { desc, index } of counters.points)
      if (index < ncounters) counters_value[index] += values[desc === c.IBV_COUNTER_BYTES ? 1 : 0];
  });
}
