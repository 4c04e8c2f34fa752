/** rdma-core's tests in Python (pyverbs): what came of each, and the list of those that do not pass. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** The reason in a list that a machine may lack. */
const NO_HUGE_PAGES = 'this machine has no huge pages';

/** Debian has the longer ones compressed. */
export function uncompress(folder: string): void {
  const compressed = readdirSync(folder).filter((name) => name.endsWith('.gz'));
  spawnSync('gunzip', compressed, { cwd: folder });
}

/** Outcomes by the name of the test: `ok`, `skipped`, `ERROR`, `FAIL`. Output of a test may stand before its outcome. */
export function outcomes(output: string): Map<string, string> {
  const lines = /^\w+ \((tests[\w.]+)\)[\s\S]*?\.\.\. [\s\S]*?(ok|skipped|ERROR|FAIL)\b(?: '.*'| ".*")?$/gm;
  return new Map([...output.matchAll(lines)].map(([, name, outcome]) => [name, outcome]));
}

/** Names of the tests of a release that do not pass, sorted: each has a reason in `rdma-core-RELEASE.txt`. */
export function notPassing(release: number): string[] {
  const list = readFileSync(new URL(`rdma-core-${release}.txt`, import.meta.url), 'utf8');
  const hasHugePages = Number(readFileSync('/proc/sys/vm/nr_hugepages', 'utf8')) > 0;
  return list
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(' | ') as [name: string, reason: string])
    .filter(([, reason]) => !(hasHugePages && reason === NO_HUGE_PAGES))
    .map(([name]) => name)
    .sort();
}
