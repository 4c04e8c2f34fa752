import { describe, expect, test } from 'vitest';
import { BrokenDevice } from '../testing/broken-device.ts';
import { MUTANTS } from '../testing/mutants/all.ts';
import type { Case } from './case.ts';
import { LISTS } from './known/lists.ts';
import { compare, isNews, learn, parseKnownList, signature } from './known.ts';
import { CASE_RULES, judgeCases } from './passive/cases.ts';
import { junit, resultsJson, resultText, totalsText } from './report.ts';
import { rule } from './rule.ts';
import { RULES, rules } from './rules/all.ts';
import { play, type Result, run } from './run.ts';
import { adapterBench, MODEL_OPTIONS, modelBench } from './virtual/bench.ts';
import { acceptFrame } from './virtual/line.ts';

const [deviation] = await run(rules('OPC-01'), () =>
  adapterBench(
    (options) => new BrokenDevice({ ...options, ...MODEL_OPTIONS }, MUTANTS['reserved opcodes are dropped']),
    { accept: acceptFrame },
  ),
);
const [passed] = await run(rules('PSN-01'), modelBench);
const of = (verdict: Result['verdict'], result = deviation): Result => ({ ...result, verdict });

test('a deviation on the list is known, another one changed, one that is gone mended', () => {
  const { deviations } = learn([deviation, passed], 'model');
  expect(deviations).toEqual({ 'OPC-01': { is: signature(deviation), because: '' } });
  const list = { device: 'model', deviations };
  expect(compare([deviation], list)[0].verdict).toBe('known');
  expect(compare([{ ...deviation, why: ['another'] }], list)[0].verdict).toBe('changed');
  expect(compare([of('pass')], list)[0].verdict).toBe('mended');
  const sometimes = { 'OPC-01': { ...deviations['OPC-01'], sometimes: true } };
  expect(compare([of('pass')], { device: 'model', deviations: sometimes })[0].verdict).toBe('pass');
  expect(compare([of('not testable')], list)[0].verdict).toBe('not testable');
  expect(compare([passed], list)[0].verdict).toBe('pass');
});

test('a deviation that the list has as one seen sometimes is known where repetitions differ', () => {
  const unsteady = {
    ...deviation,
    verdict: 'unsteady' as const,
    why: ['deviation in 1 of 3 plays', ...deviation.why],
  };
  const list = (sometimes: boolean, is = signature(deviation)) => ({
    device: 'model',
    deviations: { 'OPC-01': { is, because: 'x', sometimes } },
  });
  expect(compare([unsteady], list(true))[0].verdict).toBe('known');
  expect(compare([unsteady], list(false))[0].verdict).toBe('unsteady');
  expect(compare([unsteady], list(true, 'another'))[0].verdict).toBe('unsteady');
  expect(isNews(unsteady)).toBe(false);
  expect(isNews(unsteady, true)).toBe(true);
});

test('a list that is learned again keeps its reasons, and what was not played', () => {
  const is = signature(deviation);
  const before = {
    device: 'mine',
    deviations: {
      'OPC-01': { is, because: 'a reason' },
      'PSN-01': { is: 'gone', because: 'mended' },
      'KEY-01': { is: 'x', because: 'not played' },
    },
  };
  expect(learn([deviation, passed], 'model', before)).toEqual({
    device: 'mine',
    deviations: { 'OPC-01': { is, because: 'a reason' }, 'KEY-01': { is: 'x', because: 'not played' } },
  });
  const { deviations } = learn([{ ...deviation, why: ['another'] }], 'model', before);
  expect(deviations['OPC-01']).toEqual({ is: 'another', because: '' });
});

test('a deviation from a disputed rule is news with strict only, a change of one always', () => {
  expect(isNews(deviation)).toBe(false);
  expect(isNews(deviation, true)).toBe(true);
  expect(isNews(of('changed'))).toBe(true);
  expect(isNews(of('deviation', passed))).toBe(true);
  expect(isNews(of('broken', passed))).toBe(false);
});

test('a file that is no list is refused with what was expected', () => {
  for (const text of [
    'null',
    '[]',
    '{"device":"x"}',
    '{"device":"x","deviations":null}',
    '{"device":"x","deviations":{"PSN-01":{"because":"y"}}}',
    '{"device":"x","deviations":{"TRC-01":{"is":"y","because":"z","in":"PSN-01"}}}',
  ]) {
    expect(() => parseKnownList(text), text).toThrow(/expected/);
  }
  expect(() => parseKnownList('{')).toThrow(SyntaxError);
});

test('each shipped list names rules that there are, each with a reason', () => {
  for (const { device, deviations } of Object.values(LISTS)) {
    for (const [id, { is, because }] of Object.entries(deviations)) {
      const where = `${device}: ${id}`;
      expect(
        [...RULES, ...CASE_RULES].map((rule) => rule.id),
        where,
      ).toContain(id);
      expect(is, where).not.toBe('');
      expect(because.length, where).toBeGreaterThan(10);
    }
  }
});

test('results as text, JSON and JUnit', () => {
  const results = [passed, of('deviation', { ...passed, why: ['a < b & "c"'] }), of('known'), of('broken')];
  expect(totalsText(results)).toBe('4 rules: 1 pass, 1 deviation, 1 known, 1 broken');
  expect(resultText(deviation)).toContain('wanted NAK 0x61 (invalid) psn+0, got silence');
  expect(resultsJson(results, { name: 'model' })).toMatchObject({
    device: { name: 'model' },
    results: [{ id: 'PSN-01', verdict: 'pass', severity: 'must' }, {}, { severity: 'should' }, {}],
  });
  const xml = junit(results, { name: 'a "device"' });
  expect(xml).toContain('tests="4" failures="1" errors="1"');
  expect(xml).toContain('&#60; b &#38; &#34;c');
  expect(xml.match(/<skipped/g)).toHaveLength(1);
});

test('repeated with other verdicts, a rule is unsteady', async () => {
  let plays = 0;
  const [rule] = rules('PSN-01');
  const sometimes = {
    ...rule,
    play: async (t: Parameters<typeof rule.play>[0]) => {
      plays++;
      t.want(plays !== 2, 'the second time');
    },
  };
  const [result] = await run([sometimes], modelBench, { repeat: 3 });
  expect(result.verdict).toBe('unsteady');
  expect(result.why).toEqual(['deviation in 1 of 3 plays', 'the second time']);
});

describe('a deviation that is confirmed', () => {
  /** A rule that deviates in these of its playings, and the patience of each. */
  function sometimes(deviating: readonly number[]) {
    const patience: number[] = [];
    const play = async (t: Case) => {
      patience.push(t.waits.patience);
      t.want(!deviating.includes(patience.length), `at ${patience.length}`);
    };
    return { rule: rule('OWN-01', { title: '', section: '', needs: [], text: '' }, play), patience };
  }
  const confirms = () => true;

  test('is one if the rule deviates again, with more patience', async () => {
    const { rule, patience } = sometimes([1, 2]);
    const bench = modelBench();
    const played: Result[] = [];
    const [result] = await run([rule], bench, { confirms, onPlayed: (each) => played.push(each) });
    expect(result).toMatchObject({ verdict: 'deviation', why: ['at 2'] });
    expect(patience).toEqual([800, 3200]);
    expect([bench.waits.patience, played.length]).toEqual([800, 2]);
  });

  test('is unsteady if the rule passes then', async () => {
    const [result] = await run([sometimes([1]).rule], modelBench(), { confirms });
    expect(result).toMatchObject({ verdict: 'unsteady', why: ['deviation in 1 of 2 plays', 'at 1'] });
  });

  test('stays one if the rule cannot be played again', async () => {
    const { rule } = sometimes([1]);
    let plays = 0;
    const again = { ...rule, play: (t: Case) => (++plays > 1 ? t.skip('gone') : rule.play(t)) };
    const [result] = await run([again], modelBench(), { confirms });
    expect([plays, result.verdict]).toEqual([2, 'deviation']);
  });

  test.each(['deviates', 'is broken'])(
    'is not played again where that took half a minute: it %s',
    async (then) => {
      const slow = Array.from({ length: 12 }, () => {
        let plays = 0;
        const play = async (t: Case) => {
          await t.pass(++plays * t.waits.patience);
          if (plays > 1 && then === 'is broken') throw new Error('hung');
          t.want(false, 'never');
        };
        return {
          rule: rule('OWN-01', { title: '', section: '', needs: [], text: '' }, play),
          count: () => plays,
        };
      });
      const results = await run(
        slow.map((each) => each.rule),
        modelBench(),
        { confirms },
      );
      expect(results.map(({ verdict }) => verdict)).toEqual(slow.map(() => 'deviation'));
      expect(slow.map(({ count }) => count())).toEqual([2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
    },
  );

  test('is not played again where nobody asks for it, nor one that passes', async () => {
    const known = sometimes([1]);
    await run([known.rule], modelBench(), { confirms: () => false });
    const passing = sometimes([]);
    await run([passing.rule], modelBench(), { confirms });
    expect([known.patience.length, passing.patience.length]).toEqual([1, 1]);
  });
});

test('an error of a rule is broken, and its connections are closed', async () => {
  const [rule] = rules('PSN-01');
  const wrong = { ...rule, play: async () => Promise.reject(new Error('the agent is gone')) };
  const { verdict, why } = await play(wrong, modelBench());
  expect([verdict, why]).toEqual(['broken', ['the agent is gone']]);
});

test('an aborted run ends with what it has', async () => {
  const abort = new AbortController();
  const results = await run(rules('PSN'), modelBench, {
    signal: abort.signal,
    onResult: () => abort.abort(),
  });
  expect(results).toHaveLength(1);
});

test('a selector is a rule or an area, and not the beginning of an id', () => {
  expect(rules('psn-01').map(({ id }) => id)).toEqual(['PSN-01']);
  expect(rules('RD').every(({ id }) => id.startsWith('RD-'))).toBe(true);
  for (const name of ['PSN-', 'PSN-0', 'P', 'KEY-1', '-', 'PSN-01 '])
    expect(() => rules(name), name).toThrow('no area');
});

test('an empty selector is no rule, and does not stand for all', () => {
  expect(() => rules('PSN-01', '')).toThrow('an empty name');
});

test('a run in virtual time ends where its signal is aborted by an event, and counts no rule that it has not repeated', async () => {
  const controller = new AbortController();
  setImmediate(() => controller.abort());
  const chosen = rules('PSN-01', 'PSN-02');
  expect(await run(chosen, modelBench, { signal: controller.signal, repeat: 1000 })).toEqual([]);
});

/** Results of a broken model, and those of the passive rules over its packets. */
async function judged(mutant: string, ...names: string[]): Promise<Result[]> {
  const options = { accept: acceptFrame };
  const bench = () =>
    adapterBench((o) => new BrokenDevice({ ...o, ...MODEL_OPTIONS }, MUTANTS[mutant]), options);
  const results = await run(rules(...names), bench);
  return [...results, ...judgeCases(results, bench().line)];
}
const verdictOf = (results: readonly Result[], id: string) =>
  results.find(({ rule }) => rule.id === id)?.verdict;

// It shows in the packets of one of the rules only.
test('the deviation of a passive rule is mended only where the rules were played that showed it', async () => {
  const [how, id] = ['an atomic again with other operands', 'TRC-03'];
  const [all, some] = [
    ['RD-01', 'ATO-11'],
    ['RD-01', 'REQ-07', 'TMO-01'],
  ];
  const list = learn(await judged(how, ...all), 'dev');
  expect(list.deviations[id].in).toEqual(['ATO-11']);
  const part = await judged(how, ...some);
  expect(verdictOf(part, id)).toBe('pass');
  expect(verdictOf(compare(part, list), id)).toBe('pass');
  expect(learn(part, 'dev', list).deviations[id]).toEqual(list.deviations[id]);
  // A list written by hand does not name where it was seen.
  const bare = { device: 'dev', deviations: { [id]: { is: list.deviations[id].is, because: 'x' } } };
  expect(verdictOf(compare(part, bare), id)).toBe('pass');
  expect(verdictOf(compare(await judged(how, ...all), list), id)).toBe('known');
  const mended = await run(rules(...all), modelBench);
  const whole = [...mended, ...judgeCases(mended, modelBench().line)];
  expect(verdictOf(compare(whole, list), id)).toBe('mended');
  expect(learn(whole, 'dev', list).deviations).not.toHaveProperty(id);
  const untested = whole.map((each) =>
    each.rule.id === 'ATO-11' ? { ...each, verdict: 'not testable' as const } : each,
  );
  expect(verdictOf(compare(untested, list), id)).toBe('pass');
});

test('a part of the known deviation of a passive rule is known, and the entry stays', () => {
  const [rule] = CASE_RULES;
  const result = { ...of('deviation', passed), rule, why: ['left out PSNs'] };
  const entry = { is: 'another | left out PSNs', because: 'x', in: ['PSN-01'] };
  const list = { device: 'dev', deviations: { [rule.id]: entry } };
  expect(compare([result], list)[0].verdict).toBe('known');
  expect(learn([result], 'dev', list)).toEqual(list);
  expect(compare([{ ...result, why: ['left out PSNs', 'new'] }], list)[0].verdict).toBe('changed');
});
