/**
 * The time that a step's processors spent, with all that the step started.
 *
 * The shell's `time` misses processes that ended with their PID namespace, and so each test file: the kernel reaps those itself, and
 * nobody waits for them. A control group counts every process. Version 2 has the time in cpu.stat, version 1 in a file of its
 * controller cpuacct (Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpuacct.rst).
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';

const PREFIX = 'roce-step-';
/** By version of control groups: the folder below the root of their file systems, and the file with the time. */
const HIERARCHIES = [
  { below: '', file: 'cpu.stat', seconds: (text) => /^usage_usec (\d+)/m.exec(text)?.[1] / 1e6 },
  { below: '/cpuacct', file: 'cpuacct.usage', seconds: (text) => Number(text) / 1e9 },
];
/** ms after which the group of a run that was killed is removed. Younger ones may be about to get their first process. */
const LEFT_BEHIND = 3600_000;

let made = 0;

/**
 * A new control group. Undefined where none can be made: for an ordinary user, or without their file systems.
 *
 * @returns {{ processes: string, end: () => number } | undefined} `processes`: the file that takes the id of a process; `end` removes
 *   the group if no process is left in it, and returns the seconds.
 */
export function processorGroup(root = '/sys/fs/cgroup') {
  for (const { below, file, seconds } of HIERARCHIES) {
    const folder = `${root}${below}`;
    const group = `${folder}/${PREFIX}${Date.now()}-${process.pid}-${made++}`;
    try {
      removeOld(folder);
      mkdirSync(group);
    } catch {
      continue;
    }
    const end = () => {
      const spent = seconds(readFileSync(`${group}/${file}`, 'utf8'));
      remove(group);
      return spent;
    };
    if (existsSync(`${group}/${file}`)) return { processes: `${group}/cgroup.procs`, end };
    remove(group); // `root` belongs to the other version.
  }
  return undefined;
}

function removeOld(folder) {
  for (const name of readdirSync(folder).filter((entry) => entry.startsWith(PREFIX)))
    if (Date.now() - Number(name.slice(PREFIX.length).split('-')[0]) > LEFT_BEHIND)
      remove(`${folder}/${name}`);
}

function remove(group) {
  try {
    rmdirSync(group);
  } catch {
    // A process of it is still ending. A later run removes the group.
  }
}
