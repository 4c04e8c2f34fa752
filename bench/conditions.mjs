/** Conditions that the figures of a run depend on: the machine and its load, the commit, the time. */
import { arch, cpus, loadavg, release } from 'node:os';
import { workingTree } from './compare/builds.mjs';
import { pinning } from './pinning.mjs';

/** Undefined where there is no repository. */
function commit() {
  try {
    return workingTree().name;
  } catch {
    return undefined;
  }
}

/** As they are now: at the start of a run, before it loads the machine itself. */
export function conditions() {
  return {
    date: new Date().toISOString(),
    commit: commit(),
    machine: {
      cpu: cpus()[0].model,
      processors: cpus().length,
      kernel: release(),
      arch: arch(),
      node: process.version,
    },
    /** Processes that ran or wanted to, averaged over the last minute. */
    load: loadavg()[0],
    pinning,
  };
}

/** One line of text. */
export function describe({ date, commit, machine, load, pinning }) {
  const { cpu, processors, kernel, node } = machine;
  const parts = [
    `${cpu}, ${processors} processors, Linux ${kernel}, Node ${node}`,
    commit === undefined ? 'no commit' : `commit ${commit}`,
    date.slice(0, 10),
    load === undefined ? 'load not recorded' : `load ${load.toFixed(1)} at the start`,
    pinning,
  ];
  return parts.join('; ');
}
