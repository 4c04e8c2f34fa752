/** rdma-core's tests in Python (pyverbs): what came of each, and the list of those that do not pass. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

const CAP_NET_RAW = 13n;

/** Reasons in a list that do not hold everywhere. */
const HOLDS: Record<string, () => boolean> = {
  'this machine has no huge pages': () => readFileSync('/proc/sys/vm/nr_hugepages', 'utf8').trim() === '0',
  'this process has no CAP_NET_RAW': () => {
    const [, effective] = /^CapEff:\s*(\w+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))!;
    return ((BigInt(`0x${effective}`) >> CAP_NET_RAW) & 1n) === 0n;
  },
};

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
  return list
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(' | ') as [name: string, reason: string])
    .filter(([, reason]) => HOLDS[reason]?.() ?? true)
    .map(([name]) => name)
    .sort();
}
