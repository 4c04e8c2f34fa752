/**
 * Every cell of the state table: type × from × to × each attribute present or missing, on the engine, against
 * the reference (state-table/reference.ts). Where a step is refused, the error names the attribute and nothing
 * has changed.
 */
import { type QpAttr, type QpState, type QpType, type RoceError, transition } from '@node-roce/transport';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Bench, pick, type Trial } from './state-table/in-state.ts';
import {
  type Cell,
  cellOf,
  goodValues,
  type Mask,
  MEMBERS,
  NOT_OFFERED,
  RELIABLE,
  STATES,
  TYPES,
  WITHOUT_QUEUES,
} from './state-table/reference.ts';

type Name = keyof QpAttr;

const bench = new Bench();
const namesOf = (bits: readonly Mask[]): Name[] => bits.flatMap((bit) => MEMBERS[bit]);
/** Every attribute but the state itself; `sqDraining` is in the struct, and no bit sets it. */
const ALL: readonly Name[] = [...namesOf(Object.keys(MEMBERS) as Mask[]), 'sqDraining'];
const REFUSED = namesOf(NOT_OFFERED);
/** Refused by name in every step. */
const isNotOffered = (type: QpType, name: Name) =>
  REFUSED.includes(name) || (WITHOUT_QUEUES.includes(type) && (name === 'cap' || name === 'rateLimit'));

/** The error that a modify call ends with, after which all is as it was; undefined if it was taken. */
function attempt(qp: Trial, attr: QpAttr): RoceError | undefined {
  const before = qp.query();
  try {
    qp.modify(attr);
    return undefined;
  } catch (error) {
    expect(qp.query(), 'nothing has changed').toEqual(before);
    return error as RoceError;
  }
}

/** One modify call on a fresh queue pair. */
function step(type: QpType, from: QpState, to: QpState | undefined, names: readonly Name[]) {
  return bench.with(type, from, (qp) => {
    const attr = pick(names, from, to, true);
    const error = attempt(qp, attr);
    return { type, error, attr, after: qp.query().attr };
  });
}

function expectRefusal(error: RoceError | undefined, expected: Partial<RoceError>, what: string): void {
  expect(error, what).toMatchObject({ name: 'RoceError', ...expected });
  expect(error!.message, what).toContain(expected.attribute);
}

/** A query shows each value that was set, where it is valid in the state that was reached. */
function expectTaken({ type, error, attr, after }: ReturnType<typeof step>, to: QpState, what: string): void {
  expect(error, what).toBeUndefined();
  expect(after.qpState, what).toBe(to);
  for (const [name, value] of Object.entries(attr)) {
    if (name === 'curQpState' || name === 'enSqdAsyncNotify') continue;
    // A query shows the rate limit from RTS on.
    let shown = name === 'rateLimit' && to === 'RTR' ? undefined : value;
    // An initiator has no receive queue.
    if (name === 'cap' && type === 'XRC_INI') shown = { ...attr.cap, maxRecvWr: 0, maxRecvSge: 0 };
    expect(after[name as Name], `${what}: ${name}`).toEqual(shown);
  }
}

function walkAllowed(type: QpType, from: QpState, to: QpState, cell: Cell): void {
  const required = namesOf(cell.required);
  const optional = namesOf(cell.optional);
  const offered = optional.filter((name) => !REFUSED.includes(name));
  // Without a state in the mask, it is the step to the state that it is in.
  for (const target of from === to ? [to, undefined] : [to]) {
    expectTaken(step(type, from, target, required), to, 'all that is required');
    expectTaken(step(type, from, target, [...required, ...offered]), to, 'all that is optional');
    for (const missing of required) {
      const left = required.filter((name) => name !== missing);
      const expected = { code: 'ERR_ROCE_MISSING_ATTRIBUTE', errno: 'EINVAL', attribute: missing } as const;
      expectRefusal(step(type, from, target, left).error, expected, `without ${missing}`);
      expectRefusal(step(type, from, target, [...left, ...offered]).error, expected, `without ${missing}`);
    }
    for (const name of ALL.filter((n) => !required.includes(n))) {
      const tried = step(type, from, target, [...required, name]);
      if (offered.includes(name)) expectTaken(tried, to, `with ${name}`);
      else if (isNotOffered(type, name)) {
        expectRefusal(
          tried.error,
          { code: 'ERR_ROCE_NOT_SUPPORTED', errno: 'EOPNOTSUPP', attribute: name },
          `with ${name}`,
        );
      } else expectRefusal(tried.error, { errno: 'EINVAL', attribute: name }, `with ${name}`);
    }
  }
}

describe.each(TYPES)('%s', (type) => {
  const reachable = STATES.filter((state) => state !== 'SQE' || !RELIABLE.includes(type));

  test.each(reachable.flatMap((from) => STATES.map((to) => [from, to] as const)))('%s to %s', (from, to) => {
    const cell = cellOf(type, from, to);
    if (cell) {
      walkAllowed(type, from, to, cell);
      return;
    }
    const named = { code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute: 'qpState' } as const;
    expectRefusal(step(type, from, to, []).error, named, 'the state alone');
    expectRefusal(step(type, from, to, ALL).error, named, 'with all attributes');
    for (const name of ALL) expectRefusal(step(type, from, to, [name]).error, named, `with ${name}`);
  });

  test.each(reachable)('cur_qp_state that is not %s is refused', (state) => {
    for (const other of STATES.filter((s) => s !== state)) {
      bench.with(type, state, (qp) => {
        const error = attempt(qp, { qpState: 'RESET', curQpState: other });
        expectRefusal(error, { errno: 'EINVAL', attribute: 'curQpState', expected: state }, other);
      });
    }
  });

  test('any set of attributes, at any step', () => {
    const anyStep = fc.record({
      from: fc.constantFrom(...reachable),
      to: fc.constantFrom(...STATES),
      names: fc.subarray(ALL as Name[]),
    });
    fc.assert(
      fc.property(anyStep, ({ from, to, names }) => {
        const cell = cellOf(type, from, to);
        const { error, after } = step(type, from, to, names);
        if (!cell) return error?.attribute === 'qpState';
        const required = namesOf(cell.required);
        const may = [...required, ...namesOf(cell.optional)].filter((name) => !REFUSED.includes(name));
        const wrong: (string | undefined)[] = [
          ...required.filter((name) => !names.includes(name)),
          ...names.filter((name) => !may.includes(name)),
        ];
        return wrong.length === 0 ? !error && after.qpState === to : wrong.includes(error?.attribute);
      }),
      { numRuns: 1000 },
    );
  });
});

test('an RC queue pair never comes to SQE: a send that fails is the end', () => {
  bench.with('RC', 'RTS', (qp) => {
    qp.failSend();
    expect(qp.state).toBe('ERR');
  });
  const ways = STATES.filter((to) => transition('RC', 'SQE', to));
  expect(ways).toEqual(['RESET', 'ERR']);
});

describe.each(TYPES)('%s of a device whose paths migrate', (type) => {
  const migrating = new Bench('apm');
  const reachable = STATES.filter((state) => state !== 'SQE' || !RELIABLE.includes(type));
  const steps = reachable.flatMap((from) => STATES.map((to) => [from, to] as const));

  test.each(steps.filter(([from, to]) => cellOf(type, from, to)))('%s to %s', (from, to) => {
    const cell = cellOf(type, from, to) as Cell;
    const tried = (names: readonly Name[]) =>
      migrating.with(type, from, (qp) => {
        const attr = pick([...namesOf(cell.required), ...names], from, to, true);
        return { type, attr, error: attempt(qp, attr), after: qp.query().attr };
      });
    for (const bit of NOT_OFFERED) {
      const names = MEMBERS[bit];
      if (!cell.optional.includes(bit)) {
        for (const name of names) {
          expectRefusal(tried([name]).error, { errno: 'EINVAL', attribute: name }, `with ${name}`);
        }
        continue;
      }
      expectTaken(tried(names), to, `with ${bit}`);
      for (const missing of names.length > 1 ? names : []) {
        const expected = { code: 'ERR_ROCE_MISSING_ATTRIBUTE', errno: 'EINVAL', attribute: missing } as const;
        expectRefusal(tried(names.filter((name) => name !== missing)).error, expected, `without ${missing}`);
      }
    }
    if (!NOT_OFFERED.every((bit) => cell.optional.includes(bit))) return;
    const armed = migrating.with(type, from, (qp) => {
      qp.modify({
        ...pick([...namesOf(cell.required), ...MEMBERS.ALT_PATH], from, to),
        pathMigState: 'REARM',
      });
      return qp.query().attr;
    });
    expect(armed).toMatchObject({
      qpState: to,
      pathMigState: 'REARM',
      altTimeout: goodValues(to).altTimeout,
    });
  });
});

test('an attribute that is not offered is refused with the name of its capability', () => {
  for (const name of REFUSED) {
    const { error } = step('RC', 'SQD', 'SQD', [name]);
    expect(error?.message).toContain('IBV_DEVICE_AUTO_PATH_MIG');
    expect(error?.attribute).toBe(name);
  }
  expect(goodValues('RTS').cap).toBeDefined();
});
