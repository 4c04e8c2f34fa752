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

/** Of each test that ran, by its name: `ok`, `skipped`, `ERROR` or `FAIL`, and its lines. Output of a test may stand before its outcome. */
function cases(output: string): Map<string, { outcome: string; text: string }> {
  const lines = /^\w+ \((tests[\w.]+)\)[\s\S]*?\.\.\. [\s\S]*?(ok|skipped|ERROR|FAIL)\b(?: '.*'| ".*")?$/gm;
  return new Map([...output.matchAll(lines)].map(([text, name, outcome]) => [name, { outcome, text }]));
}

/** Rows of the list of a release, `rdma-core-RELEASE.txt`. */
function rows(release: number): string[][] {
  const list = readFileSync(new URL(`rdma-core-${release}.txt`, import.meta.url), 'utf8');
  const lines = list.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.map((line) => line.split(' | '));
}

const ONCE_MORE = 'once more';

/** Names of the tests of a release that do not pass, sorted: each has a reason in its list. */
export function notPassing(release: number): string[] {
  return rows(release)
    .filter(([, reason]) => reason !== ONCE_MORE && (HOLDS[reason]?.() ?? true))
    .map(([name]) => name)
    .sort();
}

/** Names of the tests that lost a race of their own: they failed with the words that the list has for it. */
export function lostRaces(output: string, release: number): string[] {
  const found = cases(output);
  const races = rows(release).filter(([, reason]) => reason === ONCE_MORE);
  const isLost = ([name, , words]: string[]) => {
    const { outcome, text = '' } = found.get(name) ?? {};
    return outcome === 'ERROR' && text.split('\n').some((line) => line.endsWith(words));
  };
  return races.filter(isLost).map(([name]) => name);
}

/**
 * Outcomes of all tests of a release, by their names. Those that lost a race of their own are played once more, by themselves.
 * @param play plays tests, all without names, and returns their output
 */
export async function outcomes(
  release: number,
  play: (...names: string[]) => Promise<string>,
): Promise<{ found: Map<string, string>; output: string }> {
  let output = await play();
  const all = cases(output);
  const lost = lostRaces(output, release);
  if (lost.length > 0) {
    const again = await play(...lost);
    for (const name of lost) all.set(name, cases(again).get(name) ?? { outcome: 'not played', text: '' });
    output += again;
  }
  return { found: new Map([...all].map(([name, { outcome }]) => [name, outcome])), output };
}
