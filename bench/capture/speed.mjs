#!/usr/bin/env node
/**
 * `roce flows` compared with tshark on a capture of path MTU 1024, with itself on a quarter of it, and with `roce export --parquet`:
 *
 *     node bench/capture/speed.mjs [--bytes 1073741824] [--rounds 5] [--json FILE] [--limits]
 *
 * In each round every contender reads the file once, in turn, from the page cache; its output goes nowhere. Wall and
 * processor time and peak memory (VmHWM) are those of its process. Figures are medians, ratios are taken round by round.
 * With --limits it ends with 1 unless tshark takes 10 times as long, the export at most twice as long, and `roce flows` at most 300 MiB.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ratio, summary } from '../statistics.mjs';
import { generateCapture } from './generate.mjs';

const ROCE = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));
/** The parts of an analysis that take time. */
const FIELDS = [
  ...['frame.number', 'frame.time_epoch', 'ip.src', 'ip.dst'],
  ...['opcode', 'destqp', 'psn', 'a'].map((name) => `infiniband.bth.${name}`),
  ...['syndrome', 'msn'].map((name) => `infiniband.aeth.${name}`),
  'infiniband.reth.dmalen',
];
const FLOWS = 'roce flows';
const SKIP = 'roce flows --icrc skip';
const QUARTER = 'roce flows, a quarter of the file';
const EXPORT = 'roce export --parquet';
const TSHARK = 'tshark -n -T fields';

/** Jiffies a second, as /proc/PID/stat counts. */
const TICKS = Number(spawnSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }).stdout) || 100;
/** ms between two samples of a process; its work after the last sample is not seen. */
const LOOK = 10;
/** Of --limits. */
const LEAST_RATIO = 10;
const MOST_MEMORY = 300;
const MOST_EXPORT = 2;

/** Seconds of wall and processor, and MiB at most. */
function measure(command, args) {
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (data) => {
      said += data;
    });
    let last = { cpu: 0, memory: 0 };
    const timer = setInterval(() => {
      last = look(child.pid) ?? last;
    }, LOOK);
    child.on('error', reject);
    child.on('exit', (code) => {
      clearInterval(timer);
      const seconds = (performance.now() - start) / 1000;
      if (code === 0) resolve({ seconds, ...last });
      else reject(new Error(`${command} ended with ${code}: ${said}`));
    });
  });
}

function look(pid) {
  try {
    // Behind the name in brackets: state is the first, user and system time are the 12th and 13th.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    const memory = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    if (memory === undefined) return undefined; // It has ended.
    return { cpu: (Number(fields[11]) + Number(fields[12])) / TICKS, memory: Number(memory) / 1024 };
  } catch {
    return undefined;
  }
}

function contenders(file, quarter, tables) {
  const all = {
    [FLOWS]: [process.execPath, [ROCE, 'flows', file]],
    [SKIP]: [process.execPath, [ROCE, 'flows', '--icrc', 'skip', file]],
    [QUARTER]: [process.execPath, [ROCE, 'flows', quarter]],
    [EXPORT]: [process.execPath, [ROCE, 'export', file, '--parquet', tables]],
  };
  const { status, stdout } = spawnSync('tshark', ['--version'], { encoding: 'utf8' });
  if (status !== 0) return { all, tshark: undefined };
  const fields = FIELDS.flatMap((name) => ['-e', name]);
  all[TSHARK] = ['tshark', ['-n', '-r', file, '-T', 'fields', ...fields]];
  return { all, tshark: stdout.split('\n')[0] };
}

const { values } = parseArgs({
  options: {
    bytes: { type: 'string', default: '1073741824' },
    rounds: { type: 'string', default: '5' },
    json: { type: 'string' },
    limits: { type: 'boolean', default: false },
  },
});
const bytes = Number(values.bytes);
const rounds = Number(values.rounds);
if (!(bytes >= 1e6 && rounds >= 1)) throw new Error('--bytes is a million or more, --rounds 1 or more');

const scratch = mkdtempSync(join(tmpdir(), 'roce-speed-'));
try {
  const [file, quarter, tables] = ['whole.pcap', 'quarter.pcap', 'tables'].map((name) => join(scratch, name));
  const made = generateCapture(file, { bytes });
  generateCapture(quarter, { bytes: bytes / 4 });
  const { all, tshark } = contenders(file, quarter, tables);
  const samples = Object.fromEntries(Object.keys(all).map((name) => [name, []]));
  const load = loadavg()[0];
  for (let round = 0; round < rounds; round++) {
    for (const [name, command] of Object.entries(all)) samples[name].push(await measure(...command));
    rmSync(tables, { recursive: true });
  }
  const of = (name, what) => samples[name].map((sample) => sample[what]);
  const results = Object.fromEntries(
    Object.keys(all).map((name) => [
      name,
      {
        ...Object.fromEntries(['seconds', 'cpu', 'memory'].map((what) => [what, summary(of(name, what))])),
        ...(tshark === undefined || name === TSHARK
          ? {}
          : {
              tsharkTakes: ratio(of(TSHARK, 'seconds'), of(name, 'seconds')),
              tsharkTakesCpu: ratio(of(TSHARK, 'cpu'), of(name, 'cpu')),
            }),
      },
    ]),
  );
  const machine = `${cpus()[0].model}, ${availableParallelism()} processors, Linux ${release()}, Node ${process.version}`;
  const [exportTakes, exportTakesCpu] = ['seconds', 'cpu'].map((what) =>
    ratio(of(EXPORT, what), of(FLOWS, what)),
  );
  const exported = { takes: exportTakes, takesCpu: exportTakesCpu };
  const report = {
    machine,
    load,
    tshark,
    bytes: made.bytes,
    packets: made.packets,
    rounds,
    results,
    exported,
  };
  console.log(`${machine}; load ${load.toFixed(1)} at the start; ${tshark ?? 'no tshark'}`);
  console.log(`${made.packets} packets, ${made.bytes} bytes; medians of ${rounds} rounds\n`);
  for (const [name, { seconds, cpu, memory, tsharkTakes, tsharkTakesCpu }] of Object.entries(results)) {
    const compared =
      tsharkTakes === undefined || name === QUARTER
        ? ''
        : `  tshark takes ${tsharkTakes.median.toFixed(1)} × as long (${tsharkTakes.min.toFixed(1)} … ${tsharkTakes.max.toFixed(1)}), ${tsharkTakesCpu.median.toFixed(1)} × the processor time`;
    console.log(
      `${name.padEnd(34)} ${seconds.median.toFixed(2).padStart(6)} s  ${cpu.median.toFixed(2).padStart(6)} s CPU  ${memory.median.toFixed(0).padStart(4)} MiB${compared}`,
    );
  }
  const { median, min, max } = exportTakes;
  console.log(
    `\nthe export takes ${median.toFixed(2)} × as long as ${FLOWS} (${min.toFixed(2)} … ${max.toFixed(2)}), ${exportTakesCpu.median.toFixed(2)} × the processor time`,
  );
  if (values.limits) {
    if (tshark === undefined) throw new Error('--limits: no tshark to compare with');
    const { tsharkTakes, memory } = results[FLOWS];
    console.log(
      `result: tshark takes ${tsharkTakes.median.toFixed(1)} × as long, ${memory.max.toFixed(0)} MiB`,
    );
    const isSlow = tsharkTakes.median < LEAST_RATIO || exportTakes.median > MOST_EXPORT;
    if (isSlow || memory.max > MOST_MEMORY) process.exitCode = 1;
  }
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, undefined, 2)}\n`);
} finally {
  rmSync(scratch, { recursive: true });
}
