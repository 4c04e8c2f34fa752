// Stands in for `vitest` where tests run in one process, thousands of times: it collects the tests, and takes `expect` from
// vitest's own package. Only what the tests of packages/transport use is here; anything else fails to import.
import {
  ASYMMETRIC_MATCHERS_OBJECT,
  addCustomEqualityTesters,
  getState,
  JestAsymmetricMatchers,
  JestChaiExpect,
  JestExtend,
  setState,
} from '@vitest/expect';
import { fn, restoreAllMocks, spyOn } from '@vitest/spy';
import * as chai from 'chai';

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);
// Bytes are compared at once: element by element takes half of the time of all tests.
addCustomEqualityTesters([
  (a, b) => (a instanceof Uint8Array && b instanceof Uint8Array ? Buffer.compare(a, b) === 0 : undefined),
]);
export const expect = (value, message) => chai.expect(value, message);
Object.assign(expect, chai.expect, globalThis[ASYMMETRIC_MATCHERS_OBJECT]);
expect.getState = () => getState(expect);
expect.setState = (state) => setState(state, expect);
setState({ assertionCalls: 0, isExpectingAssertions: false, expectedAssertionsNumber: null }, expect);
globalThis[Symbol.for('expect-global')] = expect;

/** What `vi.stubGlobal` has replaced, by name. */
const globals = new Map();

export const vi = {
  fn,
  spyOn,
  restoreAllMocks,
  stubGlobal(name, value) {
    if (!globals.has(name)) globals.set(name, globalThis[name]);
    globalThis[name] = value;
  },
  unstubAllGlobals() {
    for (const [name, value] of globals) globalThis[name] = value;
    globals.clear();
  },
};

/**
 * Tests in the order of their definition: `{ id, file, run, restore }`; `run` throws or rejects where the test fails. `restore` calls the hooks
 * behind a test that was ended from outside: no `finally` ran.
 */
export const tests = [];
let file = '';
let names = [];
let hooks = { before: [], after: [] };

/** Tests from here on are those of a file, which reads this environment when it is loaded. */
export function beginFile(name, env) {
  file = name;
  hooks = { before: [], after: [] };
  for (const key of Object.keys(process.env)) if (key.startsWith('ROCE_SIM')) delete process.env[key];
  Object.assign(process.env, env);
}

function add(name, body, fails) {
  const id = `${file} > ${[...names, name].join(' > ')} #${tests.length}`;
  const steps = [...hooks.before, body];
  const { after } = hooks;
  const run = () => whole(fails ? () => failing(steps) : () => inTurn(steps), after);
  tests.push({ id, file, run, restore: () => inTurn(after) });
}

/** Calls them one after another; a promise only where one of them gives one, because a test can be ended up to its first. */
function inTurn(steps) {
  for (const [i, step] of steps.entries()) {
    const pending = step();
    if (pending instanceof Promise) return pending.then(() => inTurn(steps.slice(i + 1)));
  }
}

/** Calls the hooks behind a test whether it fails or not: the next one finds nothing that it has replaced. */
function whole(test, after) {
  let pending;
  try {
    pending = test();
  } finally {
    if (!(pending instanceof Promise)) inTurn(after);
  }
  return pending?.finally(() => inTurn(after));
}

async function failing(steps) {
  try {
    await inTurn(steps);
  } catch {
    return;
  }
  throw new Error('this test is expected to fail');
}

const bodyOf = (first, second) => (typeof first === 'function' ? first : second);

function eachOf(define) {
  return (cases) => (name, first, second) => {
    const body = bodyOf(first, second);
    cases.forEach((values, i) => {
      const list = Array.isArray(values) ? values : [values];
      define(`${name} [${i}]`, () => body(...list));
    });
  };
}

const define = (fails) => {
  const one = (name, first, second) => add(name, bodyOf(first, second), fails);
  one.each = eachOf((name, body) => add(name, body, fails));
  return one;
};
export const test = Object.assign(define(false), { fails: define(true) });
export const it = test;

function suite(name, body) {
  const outer = { names, hooks };
  names = [...names, name];
  hooks = { before: [...hooks.before], after: [...hooks.after] };
  body();
  ({ names, hooks } = outer);
}
export const describe = Object.assign((name, first, second) => suite(name, bodyOf(first, second)), {
  each: eachOf(suite),
});
export const beforeEach = (hook) => hooks.before.push(hook);
export const afterEach = (hook) => hooks.after.unshift(hook);
