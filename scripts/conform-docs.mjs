// Writes test/evidence/conform-results.md, and the table of docs/quirks.md between its markers, from the rules and the known lists of packages/conform:
// `npm run docs:conform`. `--check` writes nothing and fails where a page is not current.
//
// The tests play the rules against each of these devices, and fail where one does something else than its list has: so a rule that
// is not on a list passes.
import { readFileSync, writeFileSync } from 'node:fs';
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

function results() {
  const heads = ['rule', 'requirement', ...DEVICES.map(([name]) => name)];
  const rows = RULES.map((rule) => {
    const mark = rule.should ? ' (should)' : '';
    const cells = DEVICES.map(([, list]) => verdict(list, rule));
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
    const lacks = Object.entries(list.untestable ?? {}).map(
      ([id, because]) => `\nNot testable: ${id}, as ${because}\n`,
    );
    const known = table(['rule', 'requirement', 'seen instead', 'reason'], entries);
    return `## ${list.device}\n\n\`--device ${name}\`\n\n${known}\n${lacks.join('')}`;
  });
  return `# Results of roce conform

<!-- Written by scripts/conform-docs.mjs: \`npm run docs:conform\`. -->

Results of [roce conform](../../docs/conform.md), ${PLAYED.length} rules that are played and ${CASE_RULES.length} that judge their packets, in ${areas.size} areas, against devices that this project's tests have. The gate plays rxe of
Linux 6.1 without the hostile rules, and of node-roce the first rules and those of the connection manager; the long tier plays every rule against all three. Both fail where a
device does something else than here. Rules without a verdict (–) need what the agent has not: they are played in virtual time. The packets of a deviation: \`roce conform HOST --rule ID -o FOLDER\`.

${table(['device', 'is', 'pass', 'deviate', 'not testable'], totals)}

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
