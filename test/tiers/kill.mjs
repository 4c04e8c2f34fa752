// node test/tiers/kill.mjs interop|gate [ROUNDS [SECONDS]]: kills runs of the interop suite, or of .ci/run, by SIGKILL at random moments, and fails
// if anything of them is left. 10 rounds, each within the first 30 s, or 120 s of the gate.
//
// Of each run, 5 s after SIGKILL of the one process that was started, there must be no process that descended from it, no process in one of its
// network and PID namespaces (a program of a guest is one: a freed one would run on here, as root), no network device, no mount, no
// network namespace with a name, no guest's memory file, and as many huge pages as before. Temporary directories are the next runs' to
// remove. Root, as the runs; interop builds a kernel and an image first where there are none.
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const RUNS = {
  // Files that keep programs in the guest busy. Both guests boot in the first few seconds.
  interop: {
    command: [process.execPath, 'test/interop/run.mjs', 'rig', 'data', 'pingpong', 'cm-tools'],
    seconds: 30,
  },
  gate: { command: ['.ci/run'], seconds: 120 },
};
/** ms until all is gone. */
const GRACE = 5000;
const [what, rounds = 10, seconds = RUNS[what]?.seconds] = process.argv.slice(2);
if (!(what in RUNS)) {
  console.error(`kill.mjs: expected ${Object.keys(RUNS).join(' or ')}, not "${what ?? ''}"`);
  process.exit(2);
}
const [program, ...args] = RUNS[what].command;
/** ms of a run within which it is killed. */
const longest = 1000 * seconds;

/** Parent and start time of a process (a PID may be used again), from /proc/PID/stat; undefined if it has ended, even as a zombie. */
function statOf(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return fields[0] === 'Z' ? undefined : { parent: Number(fields[1]), started: fields[19] };
  } catch {
    return undefined;
  }
}

function namespaceOf(pid, kind) {
  try {
    return readlinkSync(`/proc/${pid}/ns/${kind}`);
  } catch {
    return undefined;
  }
}

const programOf = (pid) => {
  try {
    return (
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').slice(0, 80) ||
      readlinkSync(`/proc/${pid}/exe`)
    );
  } catch {
    return '?';
  }
};

function processes() {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => ({ pid: Number(pid), ...statOf(pid) })).filter(({ started }) => started);
}

/** All that descend from a process. Within a PID namespace, orphans become children of its first process, so none is missing. */
function descendants(root) {
  const all = processes();
  const found = new Set([root]);
  for (let before = 0; before !== found.size; ) {
    before = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return all.filter(({ pid }) => found.has(pid));
}

const read = (path) => readFileSync(path, 'utf8').trim();
const namesIn = (folder) => (existsSync(folder) ? readdirSync(folder) : []);

/** Things that a run may leave on the machine, a text each. */
const traces = () => [
  ...namesIn('/sys/class/net')
    .filter((name) => /^(br|port|control|roce)\d/.test(name))
    .map((name) => `device ${name}`),
  ...namesIn('/dev/shm')
    .filter((name) => name.startsWith('vm_file'))
    .map((name) => `/dev/shm/${name}`),
  ...namesIn('/run/netns').map((name) => `network namespace ${name}`),
  // Without numbers, which change when a mount is made anew.
  ...read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => `mount ${line.split(' ').slice(3, 5).join(' on ')}`),
  `huge pages: ${read('/proc/sys/vm/nr_hugepages')}`,
];

/** Leftovers of a run: text, one line each. */
function leftovers(run, namespaces, before) {
  const lines = [];
  for (const { pid, started } of processes()) {
    const isOld = run.some((one) => one.pid === pid && one.started === started);
    const isInside = ['net', 'pid'].some((kind) => namespaces.has(namespaceOf(pid, kind)));
    if (isOld || isInside) lines.push(`process ${pid}: ${programOf(pid)}`);
  }
  return [...lines, ...traces().filter((trace) => !before.includes(trace))];
}

const own = new Set(['net', 'pid'].map((kind) => namespaceOf('self', kind)));
let failures = 0;
let directory;
for (let round = 1; round <= rounds; round++) {
  const before = traces();
  const child = spawn(program, args, {
    cwd: root,
    stdio: ['ignore', 'ignore', 'ignore'],
    detached: true,
  });
  const gone = new Promise((resolve) => child.on('exit', resolve));
  const moment = Math.round(Math.random() * longest);
  await sleep(moment);
  const run = descendants(child.pid);
  const namespaces = new Set(run.flatMap(({ pid }) => ['net', 'pid'].map((kind) => namespaceOf(pid, kind))));
  for (const name of [...own, undefined]) namespaces.delete(name);
  process.kill(child.pid, 'SIGKILL');
  await gone;
  let left = leftovers(run, namespaces, before);
  for (const end = Date.now() + GRACE; left.length > 0 && Date.now() < end; await sleep(100))
    left = leftovers(run, namespaces, before);
  if (directory && existsSync(directory) && moment > longest / 2)
    left.push(`${directory}, of the round before`);
  const mine = readdirSync(tmpdir()).find((name) => name.startsWith(`roce-interop-${child.pid}-`));
  directory = mine && join(tmpdir(), mine);
  console.log(`${round}: killed after ${moment} ms, ${run.length} processes: ${left.length} things left`);
  for (const line of left) console.log(`   ${line}`);
  failures += left.length > 0 ? 1 : 0;
}
console.log(`result: ${rounds} runs killed, ${failures} left something`);
process.exit(failures === 0 ? 0 : 1);
