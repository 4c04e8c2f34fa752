/** The passive rules over the packets of active ones: each sees a device that breaks it while another rule is played. */
import { psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { BrokenDevice, type Mutant } from '../../testing/broken-device.ts';
import { MUTANTS } from '../../testing/mutants/all.ts';
import { isAck } from '../../testing/mutants/altering.ts';
import { rules } from '../rules/all.ts';
import { play, run } from '../run.ts';
import { adapterBench, MODEL_OPTIONS, modelBench } from '../virtual/bench.ts';
import { CaseJudge, judgeCases } from './cases.ts';

const FAR_ACK: Mutant = {
  seenBy: [],
  send: (packet) => [isAck(packet) ? { ...packet, psn: psnAdd(packet.psn, 5000) } : packet],
};

/** A passive rule, the way in which the device is broken, and the rule that is played. */
const ROWS: readonly (readonly [string, Mutant | string, string, string])[] = [
  ['TRC-01', 'packets of half the path MTU', 'REQ-07', 'left out PSNs'],
  [
    'TRC-02',
    'a READ takes one PSN',
    'REQ-07',
    'went back to a packet behind the first one that is not acknowledged',
  ],
  ['TRC-03', 'a READ again from its beginning', 'RD-01', 'a READ again that asks for something else'],
  ['TRC-03', 'an atomic again with other operands', 'ATO-11', 'an atomic again with other operands'],
  ['TRC-04', 'RETH with the length of the packet', 'REQ-02', 'a WRITE of another length than its RETH has'],
  ['TRC-06', 'credits ignored', 'CRD-01', 'SENDs without credit'],
  ['TRC-11', FAR_ACK, 'ACK-01', 'an answer to a packet that was not sent'],
  ['TRC-12', 'sequence NAK with the PSN that came', 'PSN-01', 'acknowledged a packet that is missing'],
  ['TRC-13', 'repetition acknowledged with its own PSN', 'DUP-02', 'an ACK before an earlier one'],
  ['TRC-14', 'every NAK twice', 'PSN-01', 'a second NAK for the same gap'],
  ['TRC-14', 'no sequence NAK', 'PSN-01', 'no NAK for a gap'],
  ['TRC-15', 'MSN counts packets', 'MSN-01', 'an MSN that is not the number of messages'],
  ['TRC-16', 'a range outside is moved into the region', 'LEN-13', 'a LAST before the end'],
  ['TRC-17', 'ACKs before READ responses', 'ACK-03', 'an ACK before the READ responses in front of it'],
];

test.each(ROWS)('%s sees a device that breaks it (%#)', async (id, how, played, text) => {
  const mutant = typeof how === 'string' ? MUTANTS[how] : how;
  const bench = adapterBench((options) => new BrokenDevice({ ...options, ...MODEL_OPTIONS }, mutant));
  const result = await play(rules(played)[0], bench);
  const found = judgeCases([result], bench.line).find(({ rule }) => rule.id === id);
  expect(found, result.ladder).toMatchObject({ verdict: 'deviation' });
  expect(found?.why).toContain(text);
  expect(found?.notes).toContain(`${text}: in ${played}`);
});

test('of a rule that is repeated, each playing is judged', async () => {
  let playing = 0;
  // Its MSNs are wrong the second time only, which ACK-01 does not look at.
  const bench = () =>
    adapterBench((options) => {
      const mutant: Mutant = ++playing === 2 ? MUTANTS['MSN counts packets'] : { seenBy: [] };
      return new BrokenDevice({ ...options, ...MODEL_OPTIONS }, mutant);
    });
  const judge = new CaseJudge(modelBench().line);
  const results = await run(rules('ACK-01'), bench, { repeat: 3, onPlayed: (each) => judge.add(each) });
  expect([playing, results.map(({ verdict }) => verdict)]).toEqual([3, ['pass']]);
  expect(judge.results().find(({ rule }) => rule.id === 'TRC-15')).toMatchObject({
    verdict: 'deviation',
    notes: ['an MSN that is not the number of messages: in ACK-01 (1 of 3 plays)'],
    seenIn: ['ACK-01'],
  });
});

test('each passive rule that judges cases has a row', async () => {
  const bench = modelBench();
  const results = [];
  for (const rule of rules()) results.push(await play(rule, modelBench()));
  const judged = judgeCases(results, bench.line);
  expect(judged.filter(({ verdict }) => verdict !== 'pass')).toEqual([]);
  expect(judged.map(({ rule }) => rule.id)).toEqual([...new Set(ROWS.map(([id]) => id))]);
});

test('a connection whose packets are not whole is not judged, nor packets of a forger', async () => {
  const bench = modelBench();
  const result = await play(rules('HDR-10')[0], bench);
  expect(judgeCases([result], bench.line).every(({ verdict }) => verdict === 'pass')).toBe(true);
  expect(judgeCases([{ ...result, connections: [] }], bench.line)).toEqual([]);
  const mutated = await play(rules('FUZ-01')[0], modelBench());
  expect(mutated.connections).not.toEqual([]);
  expect(judgeCases([mutated], bench.line)).toEqual([]);
});
