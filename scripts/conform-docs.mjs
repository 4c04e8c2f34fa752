// Writes test/evidence/conform-results.md, and the table of docs/quirks.md between its markers, from the rules and the known lists of packages/conform:
// `npm run docs:conform`. `--check` writes nothing and fails where a page is not current.
//
// The tests play the rules against each of these devices, and fail where one does something else than its list has: so a rule that
// is not on a list passes.
//
// `node scripts/conform-docs.mjs --ladders LIST FILE...` writes test/evidence/conform/LIST.md: the packets of each rule, from the output of
// `roce conform --json` against the device of this list.
// `node scripts/conform-docs.mjs --runs LIST WAY FILE...` compares such output of several runs on one tree, and writes what differs into
// test/evidence/conform/runs.json, of which conform-results.md has a table.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CASE_RULES, isServedBy, LISTS, RULES as PLAYED } from '../packages/conform/dist/index.js';

const BEGIN = '<!-- conform: begin, written by scripts/conform-docs.mjs -->';
const END = '<!-- conform: end -->';

const RULES = [...PLAYED, ...CASE_RULES];

/** The agent, or the connection manager: the others are rules of virtual time. */
const isPlayed = (rule) => isServedBy(rule, 'agent') || isServedBy(rule, 'cm');

const page = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const cell = (text) => text.replaceAll('|', '\\|').replaceAll(/([<>])/g, '\\$1');
const row = (...cells) => `| ${cells.join(' | ')} |`;
const table = (head, rows) => [row(...head), row(...head.map(() => '---')), ...rows].join('\n');

/** A reason, with links to the pages that it names. @param docs the folder of these pages, from that of the page */
const reason = (because, docs) => cell(because).replaceAll(/docs\/([\w-]+\.md)/g, `[$1](${docs}$1)`);

const DEVICES = Object.entries(LISTS);

/** The page with the packets of a device. */
function ladderPage(name) {
  return `test/evidence/conform/${name}.md`;
}

/** Lines of packets that a page shows of a rule. */
const MOST_LINES = 24;

function shortened(ladder) {
  const lines = ladder.split('\n');
  if (lines.length <= MOST_LINES) return ladder;
  const half = MOST_LINES / 2;
  return [
    ...lines.slice(0, half),
    `… ${lines.length - MOST_LINES} lines left out …`,
    ...lines.slice(-half),
  ].join('\n');
}

/** @param files output of `roce conform --json`, of one run each: by the agent, by the connection manager */
function ladders(name, files) {
  const { device, seen } = LISTS[name];
  const played = files.flatMap((file) => JSON.parse(readFileSync(file, 'utf8')).results);
  const byId = new Map(played.map((result) => [result.id, result]));
  const parts = RULES.flatMap(({ id, title }) => {
    const result = byId.get(id);
    if (result === undefined) return [];
    const { verdict, why, notes, ladder } = result;
    const reasons = [...why, ...notes.map((note) => `note: ${note}`)].map((reason) => `- ${cell(reason)}`);
    const packets = ladder ? [`\`\`\`text\n${shortened(ladder)}\n\`\`\``] : [];
    const list = reasons.length > 0 ? [reasons.join('\n')] : [];
    return [[`## ${id}`, `${cell(title)}: **${verdict}**`, ...list, ...packets].join('\n\n')];
  });
  return `# Packets of roce conform: ${name}

<!-- Written by scripts/conform-docs.mjs --ladders. -->

The packets of each rule in one run of [roce conform](../../../docs/conform.md) against ${device} (${seen}). PSNs count from the first of their side. Of a rule with
many packets, the first and the last ones are shown. [All devices](../conform-results.md).

${parts.join('\n\n')}
`;
}

const RUNS = page('test/evidence/conform/runs.json');

/** What is alike in several runs, and what is not. @param files output of `roce conform --json`, of one run each */
function compared(name, way, files) {
  const runs = files.map((file) => JSON.parse(readFileSync(file, 'utf8')).results);
  const seen = new Map();
  for (const { id, verdict } of runs.flat()) seen.set(id, [...(seen.get(id) ?? []), verdict]);
  const differ = [...seen].filter(
    ([, verdicts]) => new Set(verdicts).size > 1 || verdicts.length < runs.length,
  );
  const seconds = runs.map((run) =>
    Math.round(run.reduce((sum, { milliseconds }) => sum + milliseconds, 0) / 1000),
  );
  const date = new Date().toISOString().slice(0, 10);
  return {
    device: name,
    way,
    date,
    results: runs.map(({ length }) => length),
    seconds,
    differ: Object.fromEntries(differ),
  };
}

function runsTable() {
  const rows = JSON.parse(readFileSync(RUNS, 'utf8')).map(
    ({ device, way, date, results, seconds, differ }) => {
      const others = Object.entries(differ).map(([id, verdicts]) => {
        const mark = LISTS[device].deviations[id]?.sometimes ? ' (at times)' : '';
        return `${id}${mark}: ${verdicts.join(', ')}`;
      });
      return row(device, way, date, results.join(', '), others.join('; ') || 'none', seconds.join(', '));
    },
  );
  return table(['device', 'way', 'date', 'verdicts of each run', 'that differ', 'seconds of each run'], rows);
}

/** Area of a rule: `PSN` of `PSN-01`. */
const areaOf = (id) => id.split('-')[0];

function verdict({ deviations, untestable = {} }, rule) {
  const { id } = rule;
  if (!isPlayed(rule)) return '–';
  const known = deviations[id];
  if (id in untestable) return 'not testable';
  if (known === undefined) return 'pass';
  return known.sometimes ? '**deviates** at times' : '**deviates**';
}

/** Rules whose packets a device's page has. */
function shown(name) {
  const file = page(ladderPage(name));
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  return new Set([...text.matchAll(/^## ([A-Z]+-\d+)$/gm)].map(([, id]) => id));
}

/** A verdict, with the packets behind it. */
function linked(name, shown, id, text) {
  if (!shown.has(id)) return text;
  const anchor = `conform/${name}.md#${id.toLowerCase()}`;
  const [, stars, rest] = /^(?:\*\*(\w+)\*\*)?(.*)$/.exec(text);
  return stars === undefined ? `[${text}](${anchor})` : `[**${stars}**](${anchor})${rest}`;
}

function results() {
  const pages = new Map(DEVICES.map(([name]) => [name, shown(name)]));
  const heads = ['rule', 'requirement', ...DEVICES.map(([name]) => name)];
  const rows = RULES.map((rule) => {
    const mark = rule.should ? ' (should)' : '';
    const cells = DEVICES.map(([name, list]) => linked(name, pages.get(name), rule.id, verdict(list, rule)));
    return row(rule.id, `${cell(rule.title)}${mark}`, ...cells);
  });
  const count = (entries = {}) => Object.keys(entries).length;
  const totals = DEVICES.map(([name, { device, seen, deviations, untestable }]) => {
    const passed = RULES.filter(isPlayed).length - count(deviations) - count(untestable);
    return row(name, `${device} (${seen})`, `${passed}`, `${count(deviations)}`, `${count(untestable)}`);
  });
  const areas = new Set(RULES.map(({ id }) => areaOf(id)));
  const details = DEVICES.map(([name, list]) => {
    const entries = RULES.filter(({ id }) => id in list.deviations).map(({ id, title }) => {
      const { is, because } = list.deviations[id];
      return row(id, cell(title), cell(is), reason(because, '../../docs/'));
    });
    const untestable = Object.entries(list.untestable ?? {});
    const lacks = [...new Set(untestable.map(([, because]) => because))].map((because) => {
      const ids = untestable.filter(([, other]) => other === because).map(([id]) => id);
      return `\nNot testable: ${ids.join(', ')}. Reason: ${reason(because, '../../docs/')}\n`;
    });
    const known = table(['rule', 'requirement', 'seen instead', 'reason'], entries);
    return `## ${list.device}\n\n\`--device ${name}\`\n\n${known}\n${lacks.join('')}`;
  });
  return `# Results of roce conform

<!-- Written by scripts/conform-docs.mjs: \`npm run docs:conform\`. -->

Results of [roce conform](../../docs/conform.md) against the devices that this project's tests have: ${PLAYED.length} rules, and ${CASE_RULES.length} rules about packets, in ${areas.size} areas.

- The gate tests rxe of Linux 6.1 with all rules except the hostile and the slow ones, and node-roce with the basic rules and those of the connection manager. The long tier tests all
  three devices with all rules. A test fails if its device does not behave as this page states.
- Rules without a verdict (–) cannot be tested through the agent or the connection manager. They are tested in virtual time.
- Each verdict is a link to its packets. They are from one run; the head of their page has the version and the date.
- The packets of your own device: \`roce conform HOST -o FOLDER\`, or \`--html FILE\`.

${table(['device', 'is', 'pass', 'deviate', 'not testable'], totals)}

## Runs that were repeated

Each row: several runs, one after the other, on the same commit, each with exit code 0. A rule may differ between runs if the list of the device has its deviation *at times*. *Seconds* are the sum of the rules' times, most of which are waits. On the 29th, the tester itself used 2 to 3 s of processor time in a run of the agent's rules, and 1 s in one by the connection manager or perftest.

${runsTable()}

## Rules

${table(heads, rows)}

${details.join('\n')}`;
}

function quirks(text) {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error('docs/quirks.md has not the markers of conform');
  const rxe = DEVICES.filter(([name]) => name.startsWith('rxe-'));
  const ids = RULES.map(({ id }) => id).filter((id) => rxe.some(([, { deviations }]) => id in deviations));
  const rows = ids.map((id) => {
    const having = rxe.filter(([, { deviations }]) => id in deviations);
    const releases =
      having.length === rxe.length ? 'all' : having.map(([name]) => name.replace('rxe-', '')).join(', ');
    const { is, because } = having[0][1].deviations[id];
    return row(id, releases, cell(is), reason(because, ''));
  });
  const body = table(['rule', 'Linux', 'seen', 'reason'], rows);
  return `${text.slice(0, begin)}${BEGIN}\n\n${body}\n\n${text.slice(end)}`;
}

const [, , command, list, ...files] = process.argv;
if (command === '--ladders' || command === '--runs') {
  if (!Object.hasOwn(LISTS, list ?? '') || files.length === 0)
    throw new Error(`expected ${command} ${Object.keys(LISTS).join('|')} FILE...`);
  mkdirSync(page('test/evidence/conform'), { recursive: true });
}
if (command === '--ladders') writeFileSync(page(ladderPage(list)), ladders(list, files));
if (command === '--runs') {
  const [way, ...outputs] = files;
  const others = JSON.parse(readFileSync(RUNS, 'utf8')).filter(
    (run) => run.device !== list || run.way !== way,
  );
  const runs = [...others, compared(list, way, outputs)].sort((a, b) =>
    `${a.device} ${a.way}`.localeCompare(`${b.device} ${b.way}`),
  );
  writeFileSync(RUNS, `${JSON.stringify(runs, null, 2)}\n`);
}

const PAGES = {
  'test/evidence/conform-results.md': () => results(),
  'docs/quirks.md': () => quirks(readFileSync(page('docs/quirks.md'), 'utf8')),
};

for (const [name, write] of Object.entries(PAGES)) {
  const text = write();
  if (!process.argv.includes('--check')) writeFileSync(page(name), text);
  else if (readFileSync(page(name), 'utf8') !== text) {
    console.error(`${name} is not current: npm run docs:conform`);
    process.exitCode = 1;
  }
}
