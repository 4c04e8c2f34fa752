// node test/interop/um/kill.mjs [ROUNDS]: kills the interop suite by SIGKILL at random moments (10), and fails if anything of it is left.
//
// Of each run, 5 s after SIGKILL of run.mjs alone, there must be no process that descended from it, no process in one of its network and
// PID namespaces (a program of a guest is one: a freed one would run on here, as root), no network device, and no guest's memory file. The
// temporary directory is the next run's to remove. Root, as the suite; a kernel and an image are built first where there are none.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const RUN = fileURLToPath(new URL('../run.mjs', import.meta.url));
/** Files of the suite that keep programs in the guest busy. */
const FILES = ['rig', 'data', 'pingpong', 'cm-tools'];
/** ms of a run within which it is killed: both guests boot in the first few seconds. */
const LONGEST = 30_000;
/** ms until all is gone. */
const GRACE = 5000;
const rounds = Number(process.argv[2] ?? 10);

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

const devices = () =>
  spawnSync('ip', ['-brief', 'link'], { encoding: 'utf8' })
    .stdout.split('\n')
    .map((line) => line.split(/[\s@]/)[0])
    .filter((name) => /^(br|port|control)\d+/.test(name));

const memoryFiles = () => readdirSync('/dev/shm').filter((name) => name.startsWith('vm_file'));

/** Leftovers of a run: text, one line each. */
function leftovers(run, namespaces, before) {
  const lines = [];
  for (const { pid, started } of processes()) {
    const isOld = run.some((one) => one.pid === pid && one.started === started);
    const isInside = ['net', 'pid'].some((kind) => namespaces.has(namespaceOf(pid, kind)));
    if (isOld || isInside) lines.push(`process ${pid}: ${programOf(pid)}`);
  }
  for (const name of devices()) if (!before.devices.includes(name)) lines.push(`device ${name}`);
  for (const name of memoryFiles()) if (!before.files.includes(name)) lines.push(`/dev/shm/${name}`);
  return lines;
}

const own = new Set(['net', 'pid'].map((kind) => namespaceOf('self', kind)));
let failures = 0;
let directory;
for (let round = 1; round <= rounds; round++) {
  const before = { devices: devices(), files: memoryFiles() };
  const child = spawn(process.execPath, [RUN, ...FILES], {
    stdio: ['ignore', 'ignore', 'ignore'],
    detached: true,
  });
  const gone = new Promise((resolve) => child.on('exit', resolve));
  const moment = Math.round(Math.random() * LONGEST);
  await sleep(moment);
  const run = descendants(child.pid);
  const namespaces = new Set(run.flatMap(({ pid }) => ['net', 'pid'].map((kind) => namespaceOf(pid, kind))));
  for (const name of [...own, undefined]) namespaces.delete(name);
  process.kill(child.pid, 'SIGKILL');
  await gone;
  let left = leftovers(run, namespaces, before);
  for (const end = Date.now() + GRACE; left.length > 0 && Date.now() < end; await sleep(100))
    left = leftovers(run, namespaces, before);
  if (directory && existsSync(directory) && moment > LONGEST / 2)
    left.push(`${directory}, of the round before`);
  const mine = readdirSync(tmpdir()).find((name) => name.startsWith(`roce-interop-${child.pid}-`));
  directory = mine && join(tmpdir(), mine);
  console.log(`${round}: killed after ${moment} ms, ${run.length} processes: ${left.length} things left`);
  for (const line of left) console.log(`   ${line}`);
  failures += left.length > 0 ? 1 : 0;
}
console.log(`result: ${rounds} runs killed, ${failures} left something`);
process.exit(failures === 0 ? 0 : 1);
