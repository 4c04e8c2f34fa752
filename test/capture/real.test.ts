/**
 * The analysis, held to captures of the real rxe with a known truth (test/evidence/captures-judged.md). Each run was recorded at both ends of its
 * link, so that each capture shows retransmissions near their sender and far from it.
 *
 * ROCE_CAPTURES_JUDGED=FILE writes each false statement into FILE.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import type { Analysis } from '@node-roce/capture';
import { beforeAll, describe, expect, test } from 'vitest';
import { type Judgement, judge, type Shares, statementsOf } from './real/judge.ts';
import { judgeVerdict, type VerdictJudgement } from './real/judge-verdict.ts';
// @ts-expect-error: plain JavaScript
import { readCapture } from './real/pcap.mjs';
// @ts-expect-error: plain JavaScript
import { isUnseen } from './real/runs.mjs';
// @ts-expect-error: plain JavaScript
import { deriveTruth, isTimely, truthJson, truthText } from './real/truth.mjs';
import { readTruth, type Tap, type Truth } from './real/truth-file.ts';

const captures = fileURLToPath(new URL('real/captures/', import.meta.url));
const names = readdirSync(captures)
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -5));
const TAPS = ['a', 'b'] as const satisfies Tap[];

const truths: Truth[] = [];
const judgements: Judgement[] = [];
const verdicts: (VerdictJudgement & { name: string; tap: Tap; text: string })[] = [];
/** Recoveries for a damaged packet that the tap shows, and whether the analysis names the damage. */
const damages: { recovery: string; isNamed: boolean }[] = [];

beforeAll(async () => {
  for (const name of names) {
    const truth = readTruth(`${captures}${name}.json`);
    truths.push(truth);
    const log = logOf(name);
    for (const tap of TAPS) {
      const path = `${captures}${name}-${tap}.pcap.gz`;
      const statements = await statementsOf(path);
      judgements.push(judge(truth, tap, statements, { log, frames: readCapture(path) }));
      const { verdict } = statements.analysis;
      verdicts.push({ name, tap, text: verdict.text, ...judgeVerdict(verdict, truth, tap) });
      damages.push(...damagesOf(truth, tap, statements.analysis));
    }
  }
  const file = process.env.ROCE_CAPTURES_JUDGED;
  if (file) writeFileSync(file, listed());
});

/** The link damaged the packet on its way to this tap, and one end asked for it: by a NAK, or as a response behind it came. */
function damagesOf({ name, events }: Truth, tap: Tap, { connections }: Analysis): typeof damages {
  const named = new Set(
    connections.flatMap(({ recoveries }) =>
      recoveries.filter(({ reason }) => reason === 'damaged').map(({ frame }) => frame),
    ),
  );
  return (
    events
      .filter(({ cause, lost: { fate, frame } }) => {
        const isAsked = cause === 'sequence-nak' || cause === 'implied-nak';
        return isAsked && fate === 'damaged' && frame !== undefined && frame.from !== tap;
      })
      .map(({ frames }) => frames.flatMap((packet) => packet[tap]))
      .filter((again) => again.length > 0)
      // Its first packet may be damaged again: then it begins with the next, as the tap shows it.
      .map((again) => ({
        recovery: `${name}-${tap} frame ${again[0]}`,
        isNamed: again.some((frame) => named.has(frame)),
      }))
  );
}

const witnessOf = (name: string) =>
  JSON.parse(gunzipSync(readFileSync(`${captures}${name}.witness.gz`)).toString());

/** The link's log: what became of each frame. */
const logOf = (name: string) =>
  (witnessOf(name).log as string)
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/** Every statement that is not right, by capture. Of captures that tuning may not look at: their number only. */
function listed(): string {
  const lines: string[] = [`Shares: ${JSON.stringify({ near: sum('near'), far: sum('far') })}`];
  for (const { name, tap, falseCauses, falsehoods, wrongGuesses, unjudged } of judgements) {
    if (isUnseen(name)) {
      if (falsehoods.length > 0)
        lines.push(`${name}-${tap} (not to be looked at): ${falsehoods.length} false`);
      continue;
    }
    for (const text of falseCauses) lines.push(`FALSE CAUSE ${name}-${tap} ${text}`);
    for (const text of falsehoods) lines.push(`FALSE ${name}-${tap} ${text}`);
    for (const text of wrongGuesses) lines.push(`likely, wrong ${name}-${tap} ${text}`);
    for (const text of unjudged) lines.push(`not judged ${name}-${tap} ${text}`);
  }
  return `${lines.join('\n')}\n`;
}

function sum(place: 'near' | 'far', some = judgements): Shares & { events: number } {
  const shares = { certain: 0, likely: 0, likelyWrong: 0, notShown: 0, missed: 0 };
  for (const judgement of some)
    for (const key of Object.keys(shares) as (keyof Shares)[]) shares[key] += judgement[place][key];
  return { ...shares, events: Object.values(shares).reduce((x, y) => x + y) };
}

const percent = (part: number, whole: number) => `${((100 * part) / Math.max(1, whole)).toFixed(1)} %`;

test('prints the shares of grades per tap', () => {
  for (const [title, some] of [
    ['all', judgements],
    ['not looked at', judgements.filter(({ name }) => isUnseen(name))],
  ] as const) {
    for (const place of ['near', 'far'] as const) {
      const { events, certain, likely, likelyWrong, notShown, missed } = sum(place, some);
      console.log(
        `${title}, tap at the ${place === 'near' ? 'sender' : 'receiver'}: ${events} events, certain ${percent(certain, events)}, ` +
          `likely ${percent(likely + likelyWrong, events)} (right ${percent(likely, likely + likelyWrong)}), ` +
          `not shown ${percent(notShown, events)}, missed ${percent(missed, events)}`,
      );
    }
  }
});

describe('the analysis', () => {
  test('no cause at grade certain is false', () => {
    expect(
      judgements.flatMap(({ name, tap, falseCauses }) => falseCauses.map((t) => `${name}-${tap} ${t}`)),
    ).toEqual([]);
  });

  test('no other statement is false', () => {
    expect(
      judgements.flatMap(({ name, tap, falsehoods }) => falsehoods.map((t) => `${name}-${tap} ${t}`)),
    ).toEqual([]);
  });

  test('19 of 20 causes at grade likely are right', () => {
    const { likely, likelyWrong } = sum('near');
    const far = sum('far');
    expect(likelyWrong + far.likelyWrong).toBeLessThanOrEqual(
      0.05 * (likely + likelyWrong + far.likely + far.likelyWrong),
    );
  });

  test('half of the events at the sender are certain', () => {
    const { certain, events } = sum('near');
    expect(certain / events).toBeGreaterThanOrEqual(0.5);
  });

  test('of at most a tenth of the events at the sender no cause is shown', () => {
    const { notShown, missed, events } = sum('near');
    expect((notShown + missed) / events).toBeLessThanOrEqual(0.1);
  });
});

test('the captures: at least 60, two a run, of both kernels', () => {
  expect(TAPS.length * names.length).toBeGreaterThanOrEqual(60);
  for (const kernel of ['6.1.', '6.12.'])
    expect(truths.filter(({ kernels }) => kernels.a.startsWith(kernel)).length).toBeGreaterThanOrEqual(15);
});

test('the captures: timely, and at most 20 MiB with the fixtures', () => {
  for (const truth of truths) expect([truth.name, isTimely(truth)]).toEqual([truth.name, true]);
  const size = [captures, fileURLToPath(new URL('../fixtures/captures/', import.meta.url))]
    .flatMap((folder) => readdirSync(folder).map((file) => statSync(folder + file).size))
    .reduce((x, y) => x + y);
  expect(size).toBeLessThanOrEqual(20 * 2 ** 20);
  for (const { name, unseen } of truths) expect([name, unseen]).toEqual([name, isUnseen(name)]);
});

test('the truth follows from its witnesses', () => {
  for (const name of names) {
    const { facts, traces } = witnessOf(name);
    const taps = Object.fromEntries(
      TAPS.map((tap) => [tap, readCapture(`${captures}${name}-${tap}.pcap.gz`)]),
    );
    const truth = truthJson(deriveTruth({ log: logOf(name), taps, traces, pathMtu: 1024 }), facts);
    expect(readFileSync(`${captures}${name}.json`, 'utf8')).toBe(truthText(truth));
  }
});

test('verdicts: 95 of 100 right, at most one of 100 wrong', () => {
  const of = (grade: string) => verdicts.filter((verdict) => verdict.grade === grade);
  const wrong = of('wrong').map(({ name, tap, text, truth }) => `${name}-${tap}: ${text} Truth: ${truth}`);
  console.log(`verdicts: ${of('right').length} right, ${of('partly').length} partly, ${wrong.length} wrong`);
  expect(wrong.length, wrong.join('\n')).toBeLessThanOrEqual(0.01 * verdicts.length);
  expect(of('right').length).toBeGreaterThanOrEqual(0.95 * verdicts.length);
});

test('damage is named in at least 45 of 47 recoveries that it made necessary, and that were asked for', () => {
  const unnamed = damages.filter(({ isNamed }) => !isNamed).map(({ recovery }) => recovery);
  console.log(`damage: ${damages.length - unnamed.length} of ${damages.length} recoveries named`);
  expect(damages.length).toBeGreaterThanOrEqual(47);
  expect(unnamed.length / damages.length, unnamed.join('\n')).toBeLessThanOrEqual(2 / 47);
});

test('test/evidence/captures-judged.md lists them', () => {
  const page = fileURLToPath(new URL('../evidence/captures-judged.md', import.meta.url));
  const text = readFileSync(page, 'utf8');
  const [before, between, after] = text.split(
    /(?<=<!-- (?:table|verdicts) -->\n)[\s\S]*?(?=<!-- end (?:table|verdicts) -->)/,
  );
  const current = `${before}${verdictTable()}${between}${table()}${after}`;
  if (process.env.ROCE_CAPTURES_JUDGED) writeFileSync(page, current);
  else expect(text).toBe(current);
});

/** A row a capture: the verdict, the truth, and the judgement. */
function verdictTable(): string {
  const rows = verdicts.map(({ name, tap, text, truth, grade }) => [
    `\`${name}-${tap}\`${isUnseen(name) ? ' *' : ''}`,
    text,
    truth,
    grade,
  ]);
  const heading = ['capture', 'verdict', 'truth', 'judged'];
  return [heading, heading.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

/** A row a run: the programs, the faults, and the truth. */
function table(): string {
  const rows = truths.map((truth) => {
    const { name, kernels, client, faults, frames, events } = truth;
    const causes = new Map<string, number>();
    for (const { cause } of events) causes.set(cause, (causes.get(cause) ?? 0) + 1);
    return [
      `\`${name}\`${isUnseen(name) ? ' *' : ''}`,
      kernels.a.split('-')[0],
      `\`${client.replace(/ -d rxe0| -x 1| -F| -e| -g \d| -m 1024| 10\.78\.0\.2/g, '')}\``,
      faults.join('; ') || 'none',
      `${frames.a} / ${frames.b}`,
      [...causes].map(([cause, count]) => `${count} ${cause}`).join(', ') || '–',
    ];
  });
  const heading = ['capture', 'Linux', 'client', 'faults', 'frames a / b', 'events'];
  return [heading, heading.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}
