// npm run bench -- [--all] [--only PATTERN] [--rounds N] [--quick] [--profile] [--json FILE|-]
// npm run bench -- --compare REV [--only PATTERN] [--rounds N] [--quick] [--json FILE|-]
// npm run bench -- --cpu [--compare REV] [--only PATTERN] [--quick] [--json FILE|-]
// npm run bench -- --many [--compare REV] [--only PATTERN] [--quick] [--json FILE|-]
// npm run bench -- --goals [--compare REV] [--rounds N] [--quick] [--json FILE|-]
// npm run bench -- --tables [FOLDER] [--compare REV] [--rounds N] [--quick] [--json FILE|-]
// npm run bench -- --start [FOLDER] [--json FILE|-]
// npm run bench -- --write RESULT.json
// npm run bench -- --page FILE [RESULT.json ...]
//
// With --compare: the working tree and another commit (bench/compare). With --cpu: processor time in one thread (bench/cpu). With --many: the parts of that
// with many queue pairs (cpu/many.mjs). With --goals: both kinds of rows that have goals, and whether these are met (goals.mjs). With --tables: what the tables of
// the pages have, and with --write, these tables (tables.mjs). With --start: import and size of the packed package (start.mjs). Else it measures node-roce and
// others, all in one run: in each round every contender of a row has its turn, one after the other, so that what the machine does to one it does to all. Figures are medians of rounds;
// ratios are taken round by round. docs/performance.md documents the rows.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { compare } from './compare/compare.mjs';
import { conditions, describe } from './conditions.mjs';
import { measureCpu } from './cpu/cpu.mjs';
import { measureMany } from './cpu/many.mjs';
import { goalLines, goalRows, judge } from './goals.mjs';
import { profile } from './profile.mjs';
import { lines } from './report.mjs';
import { rows } from './rows.mjs';
import { measureStart } from './start.mjs';
import { ratio, summary } from './statistics.mjs';
import { tableRows, writeTables } from './tables.mjs';

const USAGE = `usage: npm run bench -- [--all] [--only PATTERN] [--rounds N] [--quick] [--profile] [--json FILE|-]
       npm run bench -- --compare REV|DIRECTORY [--only PATTERN] [--rounds N] [--quick] [--json FILE|-]
       npm run bench -- --cpu [--compare REV|DIRECTORY] [--only PATTERN] [--quick] [--json FILE|-]
       npm run bench -- --many [--compare REV|DIRECTORY] [--only PATTERN] [--quick] [--json FILE|-]
       npm run bench -- --goals [--compare REV|DIRECTORY] [--rounds N] [--quick] [--json FILE|-]
       npm run bench -- --tables [FOLDER] [--compare REV|DIRECTORY] [--rounds N] [--quick] [--json FILE|-]
       npm run bench -- --start [FOLDER] [--json FILE|-]
       npm run bench -- --write RESULT.json
       npm run bench -- --page FILE [RESULT.json ...]`;

function options() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        page: { type: 'string' },
        compare: { type: 'string' },
        cpu: { type: 'boolean', default: false },
        many: { type: 'boolean', default: false },
        goals: { type: 'boolean', default: false },
        tables: { type: 'boolean', default: false },
        start: { type: 'boolean', default: false },
        write: { type: 'string' },
        all: { type: 'boolean', default: false },
        only: { type: 'string' },
        rounds: { type: 'string' },
        quick: { type: 'boolean', default: false },
        profile: { type: 'boolean', default: false },
        json: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      console.log(USAGE);
      process.exit(0);
    }
    if (values.compare !== undefined && values.profile) throw new Error('--compare takes no --profile');
    const folders = Number(values.start || values.tables);
    const operands = values.page === undefined ? folders : Number.POSITIVE_INFINITY;
    if (positionals.length > operands) throw new Error(`unexpected argument '${positionals[operands]}'`);
    const ofProcessor = values.cpu ? '--cpu' : values.many ? '--many' : undefined;
    if (ofProcessor !== undefined && (values.profile || values.all || values.rounds))
      throw new Error(`${ofProcessor} takes no --all, --profile or --rounds`);
    const chooses = values.goals || values.tables;
    if (chooses && (values.cpu || values.profile || values.all || values.only !== undefined))
      throw new Error(`--${values.goals ? 'goals' : 'tables'} takes no --all, --cpu, --only or --profile`);
    const least = values.compare === undefined || chooses ? 1 : 5;
    const rounds = Number(values.rounds ?? (values.quick ? least : 5));
    if (!Number.isInteger(rounds) || rounds < least)
      throw new Error(`--rounds is a count of ${least} or more`);
    return { ...values, files: positionals, rounds };
  } catch (error) {
    console.error(`${error.message}\n${USAGE}`);
    process.exit(2);
  }
}

const say = (line) => process.stderr.write(`${line}\n`);

function extra(samples) {
  const last = samples.at(-1);
  const parts = [];
  if (last.p99 !== undefined) parts.push(`p99 ${summary(samples.map((s) => s.p99)).median.toFixed(1)} µs`);
  if (last.p999 !== undefined)
    parts.push(`p99.9 ${summary(samples.map((s) => s.p999)).median.toFixed(1)} µs`);
  if (last.mean) parts.push('mean');
  if (last.cpuNsPerPacket !== undefined) {
    parts.push(`${Math.round(summary(samples.map((s) => s.cpuNsPerPacket)).median)} ns CPU/packet`);
  }
  if (last.cpuSecondsPerGigabyte !== undefined) {
    parts.push(`${summary(samples.map((s) => s.cpuSecondsPerGigabyte)).median.toFixed(2)} s CPU/GB`);
  }
  if (last.youngCollections !== undefined && last.bytesPerMessage !== undefined) {
    parts.push(`young collections ${last.youngCollections.join(' + ')}`);
  }
  return parts.join(', ');
}

async function measure(row, rounds) {
  const missing = [];
  const present = [];
  for (const contender of row.contenders) {
    const reason = contender.missing();
    if (reason) missing.push({ contender: contender.name, reason });
    else present.push({ contender, samples: [] });
  }
  for (let round = 0; round < rounds; round++) {
    for (const { contender, samples } of [...present]) {
      try {
        samples.push(await contender[row.kind](row.plan));
      } catch (error) {
        // Another's failure is a result; that of the first is a defect.
        if (contender === row.contenders[0]) throw error;
        const [reason] = error.message.split('\n');
        missing.push({ contender: contender.name, reason: `failed in round ${round + 1}: ${reason}` });
        present.splice(
          present.findIndex((other) => other.contender === contender),
          1,
        );
      }
    }
  }
  const own = present[0].samples.map((s) => s[row.figure]);
  const results = present.map(({ contender, samples }, i) => {
    const values = samples.map((s) => s[row.figure]);
    return {
      contender: contender.name,
      figure: summary(values),
      // The figure of the first contender divided by that of this one.
      ratio: i === 0 ? undefined : ratio(own, values),
      extra: extra(samples),
      samples,
    };
  });
  const { name, unit, lessIsBetter = false, figure } = row;
  return { name, unit, figure, lessIsBetter, plan: row.plan, results, missing };
}

const chosen = options();
if (chosen.page !== undefined) {
  const { renderPage } = await import('./page/page.mjs');
  writeFileSync(chosen.page, await renderPage(chosen.files));
  process.exit();
}
if (chosen.write !== undefined) {
  await orNothing(() => writeTables(chosen.write));
  process.exit();
}
const start = conditions();
say(describe(start));
async function besideOthers(only = chosen.only) {
  const report = { ...start, rounds: chosen.rounds, quick: chosen.quick, rows: [] };
  for (const row of rows({ ...chosen, only })) {
    const result = await measure(row, chosen.rounds);
    report.rows.push(result);
    for (const line of lines(result)) say(line);
  }
  if (chosen.profile) report.profile = await profile(say);
  return report;
}

async function towardsGoals(only) {
  const { rows: cpu, base } = await measureCpu(chosen, say);
  const report = await besideOthers(only);
  const goals = judge({ cpu, base, rates: report.rows });
  for (const line of goalLines(goals)) say(line);
  return { ...report, cpu, base, goals };
}

/** The import first: what follows fills the caches. */
async function forPages() {
  const imports = measureStart(chosen.files[0], say);
  return { ...(await towardsGoals(tableRows())), start: imports };
}

/** Ends the program with 2 where nothing can be measured. */
async function orNothing(measure) {
  try {
    return await measure();
  } catch (error) {
    console.error(error.message);
    process.exit(2);
  }
}

const measures = chosen.cpu ? measureCpu : chosen.many ? measureMany : compare;
const besideCommit = async () => ({ ...start, ...(await measures(chosen, say)) });
const ofStart = async () => ({ ...start, start: measureStart(chosen.files[0], say) });

async function measured() {
  if (chosen.start) return orNothing(ofStart);
  if (chosen.tables) return forPages();
  if (chosen.goals) return towardsGoals(goalRows());
  return measures !== compare || chosen.compare !== undefined ? orNothing(besideCommit) : besideOthers();
}

const report = await measured();
if (chosen.json === '-') console.log(JSON.stringify(report));
else if (chosen.json) writeFileSync(chosen.json, `${JSON.stringify(report, undefined, 1)}\n`);
if (report.slower?.length > 0 || report.broken?.length > 0) process.exitCode = 1;
