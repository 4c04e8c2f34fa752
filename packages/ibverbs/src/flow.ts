/** Flows of raw packet queue pairs: ibv_create_flow(3). */
import { type FrameCount, type FrameRule, invalid, RoceError } from '@node-roce/transport';
import * as c from './constants.ts';
import { ibv_counters, unsupported } from './counters.ts';
import { pointer, status } from './errno.ts';
import { flowRules } from './flow-rules.ts';
import type { ibv_flow_attr, ibv_flow_spec } from './flow-specs.ts';
import { checkKind, given, type ibv_context, ibv_qp, verbsOf } from './objects.ts';

/** `struct ibv_flow`. */
export class ibv_flow {
  readonly context: ibv_context;
  readonly comp_mask = 0;
  /** @internal */
  readonly qp: ibv_qp;
  /** @internal */
  readonly rules: readonly FrameRule[];
  readonly counters: ibv_counters | undefined;
  /** Counted by filters that are not set any more. */
  readonly #before: FrameCount = { frames: 0, bytes: 0 };

  constructor(qp: ibv_qp, rules: readonly FrameRule[], counters: ibv_counters | undefined) {
    this.context = qp.context;
    this.qp = qp;
    this.rules = rules;
    this.counters = counters;
  }

  /** Adds what the filter before the present one has counted by its rules. @internal */
  add(counts: readonly FrameCount[]): void {
    for (const { frames, bytes } of counts) {
      this.#before.frames += frames;
      this.#before.bytes += bytes;
    }
  }

  /** All that it has counted, with what its rules have since. @internal */
  total(now: readonly FrameCount[]): FrameCount {
    const all = [this.#before, ...now];
    return {
      frames: all.reduce((sum, { frames }) => sum + frames, 0),
      bytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }
}

/** The flows of a queue pair as its filter has them, and changes of them in their turn. */
class Steering {
  #flows: readonly ibv_flow[] = [];
  #last: Promise<unknown> = Promise.resolve();

  /** Sets other flows. @param change of those that there are when it is its turn */
  set(qp: ibv_qp, change: (flows: readonly ibv_flow[]) => readonly ibv_flow[]): Promise<void> {
    return this.#inTurn(async () => {
      const next = change(this.#flows);
      const rules = next.flatMap((flow) => flow.rules);
      const counts = await verbsOf('qp', qp).setFilter(rules, {
        count: next.some(({ counters }) => counters),
      });
      this.#share(counts, (flow, own) => flow.add(own));
      this.#flows = next;
    });
  }

  /** Frames that a flow has counted. */
  count(flow: ibv_flow): Promise<FrameCount> {
    return this.#inTurn(async () => {
      let total = flow.total([]);
      this.#share(await verbsOf('qp', flow.qp).frameCounts(), (each, own) => {
        if (each === flow) total = flow.total(own);
      });
      return total;
    });
  }

  /** Closes the queue pair. Flows that are created later find it closed. @throws EBUSY while it has flows */
  async close(close: () => Promise<void>): Promise<void> {
    const { closing } = await this.#inTurn(async () => {
      if (this.#flows.length > 0)
        throw new RoceError('ERR_ROCE_BUSY', `the queue pair has ${this.#flows.length} flows`, {
          errno: 'EBUSY',
        });
      // Not waited for in this turn: it ends when the program has acknowledged its events.
      return { closing: close() };
    });
    await closing;
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(act);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Hands each flow the counts of its rules; none where nothing was counted. */
  #share(counts: readonly FrameCount[], take: (flow: ibv_flow, counts: readonly FrameCount[]) => void): void {
    let at = 0;
    for (const flow of counts.length > 0 ? this.#flows : []) {
      take(flow, counts.slice(at, at + flow.rules.length));
      at += flow.rules.length;
    }
  }
}

const steering = new WeakMap<ibv_qp, Steering>();

function steeringOf(qp: ibv_qp): Steering {
  const found = steering.get(qp);
  if (found) return found;
  const flows = new Steering();
  steering.set(qp, flows);
  return flows;
}

/** Closes a queue pair. @throws EBUSY while it has flows */
export async function closeWithoutFlows(qp: ibv_qp, close: () => Promise<void>): Promise<void> {
  await (steering.get(qp)?.close(close) ?? close());
}

/**
 * ibv_create_flow(3), IBV_QPT_RAW_PACKET: the queue pair takes in what its flows let pass; before the first, all that the interface does;
 * after the last, nothing. A RESET keeps them. Flows of several queue pairs do not compete: each gets its own copy of a frame.
 *
 * EOPNOTSUPP for other types of queue pairs, IBV_FLOW_ATTR_SNIFFER, egress, tunnels and actions but IBV_FLOW_SPEC_ACTION_COUNT.
 */
export function ibv_create_flow(qp: ibv_qp, flow_attr: ibv_flow_attr): Promise<ibv_flow | null> {
  return pointer(async () => {
    checkKind('qp', qp, ibv_qp);
    if (qp.qp_type !== c.IBV_QPT_RAW_PACKET)
      throw unsupported('qp', 'datagrams and connections have their own addresses', 'IBV_QPT_RAW_PACKET');
    const { comp_mask = 0, type, port = 1, flags = 0, specs = [], ...more } = given('flow_attr', flow_attr);
    const { num_of_specs = specs.length } = more;
    if (comp_mask !== 0) throw invalid('comp_mask', `0x${comp_mask.toString(16)}`, '0');
    if (port !== 1) throw invalid('port', `no port ${port}`, '1');
    if ((flags & ~c.IBV_FLOW_ATTR_FLAGS_DONT_TRAP) !== 0)
      throw unsupported('flags', `0x${flags.toString(16)}`, 'IBV_FLOW_ATTR_FLAGS_DONT_TRAP');
    if (!(Number.isInteger(num_of_specs) && num_of_specs >= 0 && num_of_specs <= specs.length))
      throw invalid('num_of_specs', `${num_of_specs}`, `0 … ${specs.length}, the elements of specs`);
    const taken = specs.slice(0, num_of_specs);
    const counters = countersOf(taken);
    const flow = new ibv_flow(qp, rulesOf(type, taken), counters);
    await steeringOf(qp).set(qp, (flows) => [...flows, flow]);
    counters?.flows.set(flow, () => steeringOf(qp).count(flow));
    return flow;
  });
}

function countersOf(specs: readonly ibv_flow_spec[]): ibv_counters | undefined {
  const [first, second] = specs.flatMap((spec, i) =>
    spec?.type === c.IBV_FLOW_SPEC_ACTION_COUNT ? [{ i, counters: spec.counters }] : [],
  );
  if (second) throw invalid(`specs[${second.i}].type`, 'a second counters handle', 'one');
  if (first) checkKind(`specs[${first.i}].counters`, first.counters, ibv_counters);
  return first?.counters;
}

/** A bit of the destination address marks frames for many (IEEE 802.3 §3.2.3). */
const TO_MANY: FrameRule = [{ offset: 0, value: Uint8Array.of(1), mask: Uint8Array.of(1) }];

function rulesOf(type: number, specs: readonly ibv_flow_spec[]): readonly FrameRule[] {
  const rules = flowRules(specs);
  if (type === c.IBV_FLOW_ATTR_NORMAL) return rules;
  if (type !== c.IBV_FLOW_ATTR_ALL_DEFAULT && type !== c.IBV_FLOW_ATTR_MC_DEFAULT)
    throw unsupported(
      'type',
      `${type}: the interface is not promiscuous`,
      'IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT',
    );
  if (rules.some((rule) => rule.length > 0))
    throw invalid('specs', 'a default flow asks for nothing', 'none');
  return [type === c.IBV_FLOW_ATTR_ALL_DEFAULT ? [] : TO_MANY];
}

/** ibv_destroy_flow(3): what it has counted stays with its counters. EINVAL where it is destroyed already. */
export function ibv_destroy_flow(flow_id: ibv_flow): Promise<number> {
  return status(async () => {
    checkKind('flow_id', flow_id, ibv_flow);
    const { qp, counters } = flow_id;
    await steeringOf(qp).set(qp, (flows) => {
      if (!flows.includes(flow_id)) throw invalid('flow_id', 'it is destroyed', 'a flow');
      return flows.filter((flow) => flow !== flow_id);
    });
    if (counters?.flows.delete(flow_id)) counters.keep(flow_id.total([]));
  });
}
