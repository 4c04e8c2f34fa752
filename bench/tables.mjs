/**
 * `npm run bench -- --tables` measures what the tables of README.md and docs/performance.md have, and `--write FILE` writes them from its results. A
 * table is between the lines `<!-- table NAME of bench/results/FILE.json -->` and `<!-- end -->`. Without `of …`, it has no results yet.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { COUNTS, partsOf } from './cpu/many.mjs';
import { goalRows, ratioOf } from './goals.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Pages with tables, and what a link from the page to a file of the repository begins with. */
export const PAGES = [
  ['README.md', ''],
  ['docs/performance.md', '../'],
];
const TABLE = /<!-- table ([\w-]+)(?: of (bench\/results\/[\w/.-]+\.json))? -->\n[\s\S]*?<!-- end -->/g;

const find = (rows, name) => rows?.find((row) => row.name === name);
const contender = (row, name) => row?.results.find((result) => result.contender === name);

/** Three significant digits, and no fewer than those of the whole number. */
function digits(value) {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return value.toPrecision(3);
}

const spread = ({ median, min, max }, form = digits) => `${form(median)} (${form(min)} … ${form(max)})`;
const ratio = (value) => value.toFixed(2);
const line = (cells) => `| ${cells.join(' | ')} |`.replaceAll('|  |', '| |').replaceAll('|  |', '| |');
const table = (titles, rows) => [line(titles), `|${titles.map(() => '---').join('|')}|`, ...rows.map(line)];

const day = (date) =>
  new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' }).format(new Date(date));

const scaled = (figure, divisor) => ({
  median: figure.median / divisor,
  min: figure.min / divisor,
  max: figure.max / divisor,
});

/** A column of the table: what it shows of a contender of the row. */
const figureOf = (name) => (row, divisor) => {
  const found = contender(row, name);
  return found === undefined ? '' : digits(found.figure.median / divisor);
};
const spreadOf = (name) => (row, divisor) => {
  const found = contender(row, name);
  return found === undefined ? '' : spread(scaled(found.figure, divisor));
};
const ratioTo = (name) => (row) => {
  const found = contender(row, name)?.ratio;
  return found === undefined ? '' : spread(found, ratio);
};
const shortRatioTo = (name) => (row) => {
  const found = contender(row, name)?.ratio;
  return found === undefined ? '' : ratio(found.median);
};

/** A title of a first column: the day of the run, linked with its results. */
const DAY = Symbol('day');

/**
 * A table of rows of two processes.
 *
 * @param first the title of the first column, or `DAY`
 * @param columns by title: what the column has of a row
 * @param rows its title on the page → the name of the row, or the name and a divisor
 */
const rates = (first, columns, rows) => {
  const names = Object.entries(rows).map(([title, row]) => [title, ...[row].flat()]);
  return {
    rows: names.map(([, name]) => name),
    hasDay: first === DAY,
    render({ rows: measured, date }, link) {
      const lines = names.flatMap(([title, name, divisor = 1]) => {
        const row = find(measured, name);
        return row === undefined
          ? []
          : [[title, ...Object.values(columns).map((column) => column(row, divisor))]];
      });
      const title = first === DAY ? `[${day(date)}](${link})` : first;
      return lines.length === 0 ? undefined : table([title, ...Object.keys(columns)], lines);
    },
  };
};

const WRITE = 'WRITE 1 MiB, path MTU 4096';
const POLLED = 'round trip of 64 B, polled';
const EVENTS = 'round trip of 64 B, by events';
const VETH = ', receive processing on the receiver’s processor';
const SEND_LAT = 'ib_send_lat by roce run, round trip of 64 B (node-roce: of SENDs)';
const WRITE_LAT = 'ib_write_lat by roce run, round trip of 64 B (node-roce: of SENDs)';
const LOOP = 'round trip of 64 B between two queue pairs of one device, by roce run';

const LOSSES = [0.1, 1, 5];
const lossy = (operation, loss, suffix) =>
  `${operation} 1 MiB, path MTU 4096, ${loss} % lost both ways${suffix}`;
const LOSSY = {
  'WRITE, responder discards': ['WRITE', ''],
  'WRITE, responder keeps ahead': ['WRITE', ', responder keeps ahead'],
  READ: ['READ', ''],
};

const losses = {
  rows: Object.values(LOSSY).flatMap(([operation, suffix]) =>
    LOSSES.map((loss) => lossy(operation, loss, suffix)),
  ),
  render({ rows }) {
    const measured = LOSSES.filter((loss) => find(rows, lossy('READ', loss, '')) !== undefined);
    if (measured.length === 0) return undefined;
    const cell = (operation, loss, suffix) => {
      const found = find(rows, lossy(operation, loss, suffix));
      return found === undefined
        ? ''
        : spread(found.results[0].figure, (share) => share.toFixed(0)).replace(' (', ' % (');
    };
    return table(
      ['', ...measured.map((loss) => `${loss} % lost both ways`)],
      Object.entries(LOSSY).map(([title, [operation, suffix]]) => [
        title,
        ...measured.map((loss) => cell(operation, loss, suffix)),
      ]),
    );
  },
};

const CPU = [
  'SEND 64 B',
  'SEND 4 KiB',
  'WRITE 1 MiB',
  'READ 1 MiB',
  'round trip of 64 B',
  '1,000 queue pairs, a WRITE of 4 KiB on each',
];
const POSTED = {
  'by lists of objects that are made once': 'SEND 64 B',
  'the same, by `postBatch`': 'SEND 64 B, by postBatch',
  'by numbers, a call for each': 'SEND 64 B, by numbers',
  'by prepared lists': 'SEND 64 B, prepared',
  'by an object that is made for each': 'SEND 64 B, objects made for each',
};
const FROZEN = 'C of 17a937cf';

/** Rows of `--cpu`, by title. */
const byProcessor = (first, rows) => ({
  rows: [],
  render({ cpu, base }) {
    if (cpu === undefined) return undefined;
    const lines = Object.entries(rows).flatMap(([title, name]) => {
      const row = find(cpu, name);
      const own = contender(row, 'node-roce');
      if (own === undefined) return [];
      const ns = (other) => contender(row, other)?.ns;
      const shown = (value) => (value === undefined ? '' : digits(value));
      const c = ns(FROZEN);
      return [
        [title, ...[own.ns, ns(base), c, ns('C')].map(shown), c === undefined ? '' : ratio(c / own.ns)],
      ];
    });
    const other = base === undefined ? 'node-roce before' : `node-roce of ${base}`;
    return table(
      [first, 'node-roce', other, FROZEN, 'C of today', `speed of node-roce, divided by ${FROZEN}`],
      lines,
    );
  },
});

/** Whether the goals are met: a sentence and a table. */
const goals = {
  rows: [],
  render({ goals: all, base }) {
    if (all === undefined) return undefined;
    const judged = all
      .filter(({ figure }) => figure !== undefined)
      .map((one) => ({ ...one, other: one.other.replace('the commit of --compare', `commit ${base}`) }));
    const withGoal = judged.filter(({ met }) => met !== undefined);
    const missed = withGoal.filter(({ met }) => !met);
    const names = missed.map(({ name, other }) => `${name} (compared with ${other})`).join('; ');
    const bound = ({ atLeast, atMost }) => {
      if (atLeast !== undefined) return `at least ${ratio(atLeast)}`;
      return atMost === undefined ? '' : `at most ${ratio(atMost)}`;
    };
    const verdict = ({ met }) => (met === undefined ? '' : met ? 'met' : '**missed**');
    return [
      `**${withGoal.length - missed.length} of ${withGoal.length} goals are met.**${names ? ` Missed: ${names}.` : ''}`,
      '',
      ...table(
        ['row', 'compared with', 'ratio of', 'ratio', 'goal', ''],
        judged.map((one) => [one.name, one.other, ratioOf(one), ratio(one.figure), bound(one), verdict(one)]),
      ),
    ];
  },
};

const PARTS = {
  'one queue pair, one place of memory': 'one',
  '+ turns, ACKs and timers (64 queue pairs)': 'turns',
  '+ cold state (all queue pairs)': 'state',
  '+ cold payload (one place for each)': 'payload',
  '= a WRITE on each queue pair': 'all',
};

/** The parts of a message with many queue pairs, the working tree first. */
const parts = {
  rows: [],
  render({ many }) {
    if (many === undefined) return undefined;
    const columns = COUNTS.flatMap((count) =>
      many.toReversed().map(({ name, results }) => ({
        title: `${name}, ${count.toLocaleString('en')} queue pairs`,
        parts: partsOf(results, count),
      })),
    ).filter((column) => column.parts !== undefined);
    if (columns.length === 0) return undefined;
    return table(
      ['', ...columns.map(({ title }) => title)],
      Object.entries(PARTS).map(([title, part]) => [title, ...columns.map((one) => digits(one.parts[part]))]),
    );
  },
};

const start = {
  rows: [],
  render({ start: measured }) {
    if (measured === undefined) return undefined;
    const { megabytes, imports } = measured;
    return [
      `node-roce and all that npm installs with it: ${megabytes.toFixed(1)} MB.`,
      '',
      ...table(
        ['', 'import, ms', 'its process, ms', 'an empty process, ms', 'files'],
        imports.map(({ entry, files, milliseconds }) => [
          `\`import '${entry}'\``,
          ...['import', 'process', 'empty'].map((kind) => spread(milliseconds[kind])),
          `${files}`,
        ]),
      ),
    ];
  },
};

/** By name, as in the comment above each: `rows` of two processes that it needs, and its lines, undefined where the results have none of it. */
export const TABLES = {
  // A short table, with the day in place of the conditions.
  readme: rates(
    DAY,
    {
      'node-roce': figureOf('node-roce'),
      'C++ program, same sockets': figureOf('C limit'),
      ratio: shortRatioTo('C limit'),
      'TCP in Node': figureOf('Node TCP'),
      'TCP in C (iperf3)': figureOf('iperf3 TCP'),
      'UCX over TCP': figureOf('UCX over TCP'),
    },
    {
      'WRITE of 1 MiB, Gb/s': WRITE,
      'round trip of 64 bytes, polled, µs': POLLED,
      'round trip of 64 bytes, by events, µs': EVENTS,
    },
  ),
  rates: rates(
    'row',
    {
      'node-roce': figureOf('node-roce'),
      'C limit': figureOf('C limit'),
      'ratio (spread)': ratioTo('C limit'),
      'Node TCP': spreadOf('Node TCP'),
      'iperf3 TCP': spreadOf('iperf3 TCP'),
      'UCX over TCP': figureOf('UCX over TCP'),
    },
    {
      'WRITE 1 MiB, path MTU 4096, Gb/s': WRITE,
      'READ 1 MiB, path MTU 4096, Gb/s': 'READ 1 MiB, path MTU 4096',
      'SEND 4 KiB, path MTU 4096, Gb/s': 'SEND 4 KiB, path MTU 4096',
      'SENDs of 64 B, signaled every 16th, millions/s': ['messages of 64 B', 1e6],
      'the same, posted by numbers, millions/s': ['messages of 64 B, by numbers', 1e6],
      'SENDs of 64 B, 16 a call, millions/s': ['SEND 64 B, 16 a call', 1e6],
    },
  ),
  'round-trips': rates(
    'p50, µs',
    {
      'node-roce': figureOf('node-roce'),
      'C limit': figureOf('C limit'),
      'ratio (spread)': ratioTo('C limit'),
      'Node TCP': spreadOf('Node TCP'),
      'UCX over TCP': figureOf('UCX over TCP'),
      'libfabric over UDP (mean)': figureOf('fi_pingpong udp;ofi_rxd'),
      'libfabric over TCP (mean)': figureOf('fi_pingpong tcp;ofi_rxm'),
    },
    { [POLLED]: POLLED, [EVENTS]: EVENTS },
  ),
  goals,
  cpu: byProcessor('row', Object.fromEntries(CPU.map((name) => [name, name]))),
  posting: byProcessor('posted', POSTED),
  losses,
  parts,
  veth: rates(
    '',
    {
      'xdp, native': spreadOf('node-roce, xdp'),
      'xdp, generic': spreadOf('node-roce, xdp generic'),
      'UDP link': spreadOf('node-roce, udp'),
      'C program': spreadOf('C limit'),
      'xdp, native, divided by the UDP link': ratioTo('node-roce, udp'),
      'divided by the C program': ratioTo('C limit'),
    },
    {
      'WRITE 1 MiB, path MTU 1024, checksum 0, Gb/s': `WRITE 1 MiB over veth, path MTU 1024, checksum 0${VETH}`,
      'WRITE 1 MiB, path MTU 4096, checksum 0, Gb/s': `WRITE 1 MiB over veth, path MTU 4096, checksum 0${VETH}`,
      'round trip of 64 B, polled, p50, µs': `round trip of 64 B over veth, polled${VETH}`,
    },
  ),
  'programs-round-trips': rates(
    'p50, µs',
    {
      'by `roce run`': spreadOf('perftest by roce run'),
      '`roce perf`': spreadOf('roce perf'),
      'node-roce inline': spreadOf('node-roce'),
      'divided by `roce perf`': ratioTo('roce perf'),
      'divided by inline': ratioTo('node-roce'),
    },
    { '`ib_send_lat`, 64 B there and back': SEND_LAT, '`ib_write_lat`, the same': WRITE_LAT },
  ),
  'programs-loop': rates(
    'p50, µs',
    {
      'by `roce run`': spreadOf('C by roce run'),
      'node-roce inline': spreadOf('node-roce'),
      'divided by inline': ratioTo('node-roce'),
    },
    { 'two queue pairs of one device': LOOP },
  ),
  'programs-rate': rates(
    'Gb/s',
    {
      'by `roce run`': spreadOf('perftest by roce run'),
      '`roce perf`': spreadOf('roce perf'),
      'node-roce inline': spreadOf('node-roce'),
      'divided by `roce perf`': ratioTo('roce perf'),
      'divided by inline': ratioTo('node-roce'),
    },
    { '`ib_write_bw`, 1 MiB, path MTU 4096': 'ib_write_bw by roce run, 1 MiB, path MTU 4096' },
  ),
  worker: rates(
    '',
    {
      'engine in a worker': spreadOf('node-roce, worker'),
      'engine inline': spreadOf('node-roce, inline'),
      'worker, divided by inline': ratioTo('node-roce, inline'),
    },
    {
      'WRITE 1 MiB by events, Gb/s': 'WRITE 1 MiB by events, worker engines',
      'SENDs of 64 B by events, millions/s': ['SEND 64 B by events, worker engines', 1e6],
      'round trip of 64 B by events, p50, µs': 'round trip of 64 B by events, worker engines',
    },
  ),
  'queue-pairs': rates(
    'WRITEs of 4 KiB over',
    { 'speed, divided by that over one queue pair': (row) => spread(row.results[0].figure, ratio) },
    Object.fromEntries(
      [
        ['64', 1],
        ['64', 128],
        ['1,000', 1],
      ].map(([pairs, depth]) => [
        `${pairs} queue pairs, ${depth} outstanding on each`,
        `${pairs} queue pairs, WRITE 4 KiB in turn, ${depth} outstanding on each, compared with one queue pair`,
      ]),
    ),
  ),
  start,
};

/** The regular expression of the rows of two processes that the tables need, those of the goals included. */
export function tableRows() {
  const names = new Set(Object.values(TABLES).flatMap(({ rows }) => rows));
  const exact = [...names].map((name) => name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return `${goalRows()}|^(${exact.join('|')})$`;
}

/** A sentence: day, commit, machine and load of a run. */
function conditions({ date, commit, machine, load, rounds }, file, toRoot) {
  const { cpu, processors, kernel, node } = machine;
  const parts = [
    cpu.replaceAll(/\((R|TM)\)| Processor/g, ''),
    `${processors} processors`,
    `Linux ${/^\d+\.\d+/.exec(kernel)}`,
    `Node ${/\d+\.\d+/.exec(node)}`,
    ...(load === undefined ? [] : [`a load of ${load.toFixed(1)} at the start`]),
    ...(rounds === undefined ? [] : [`${rounds} rounds`]),
  ];
  return `Measured on ${day(date)} at ${commit}: ${parts.join(', ')} ([results](${toRoot}${file})).`;
}

/** @param path of a file of results, from the root of the repository */
const reportOf = (path) => JSON.parse(readFileSync(join(ROOT, path), 'utf8'));

/**
 * The text of a page with its tables of today.
 *
 * @param renew a file of results to take instead of those that the page names, for each table of which it has rows
 */
export function withTables(page, toRoot, renew) {
  let first;
  return page.replace(TABLE, (_, name, named) => {
    if (TABLES[name] === undefined)
      throw new Error(`no table ${name} (expected ${Object.keys(TABLES).join(', ')})`);
    const render = (file) =>
      file === undefined ? undefined : TABLES[name].render(reportOf(file), toRoot + file);
    const renewed = render(renew);
    const file = renewed === undefined ? named : renew;
    const lines = renewed ?? render(file);
    if (file === undefined) return `<!-- table ${name} -->\nNot measured yet.\n<!-- end -->`;
    if (lines === undefined) throw new Error(`${file} has nothing for the table ${name}`);
    const above =
      file === first ? 'The same run as [above](#what-came-out).' : conditions(reportOf(file), file, toRoot);
    first ??= file;
    const head = TABLES[name].hasDay ? [] : [above, ''];
    return [`<!-- table ${name} of ${file} -->`, ...head, ...lines, '<!-- end -->'].join('\n');
  });
}

/** Writes the tables of all pages from a file of results, where it has them. */
export function writeTables(given) {
  const file = relative(ROOT, resolve(given));
  if (reportOf(file).quick) throw new Error(`${given} is of a run with --quick: not for figures`);
  for (const [path, toRoot] of PAGES) {
    const place = join(ROOT, path);
    writeFileSync(place, withTables(readFileSync(place, 'utf8'), toRoot, file));
  }
}
