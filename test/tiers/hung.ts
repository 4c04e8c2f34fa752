/**
 * What programs are doing whose run does not end: evidence of who has to go on. Of each thread its state, its processor time now and a second
 * later, and where it waits in the kernel.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** For sh, here or in a guest: a line for each thread, `PROCESS THREAD STATE TICKS WAITS-IN NAME`; all of them, twice. Not those of the kernel. */
export const LOOK_TWICE = `
look() {
  for thread in /proc/[0-9]*/task/[0-9]*; do
    { read -r line < $thread/stat && read -r name < $thread/comm; } 2>/dev/null || continue
    set -- \${line##*) }
    [ $(($7 & 0x200000)) -eq 0 ] || continue
    waits=
    { read -r waits < $thread/wchan; } 2>/dev/null
    process=\${thread#/proc/}
    echo "\${process%%/*} \${thread##*/} $1 $((\${12} + \${13})) \${waits:-0} $name"
  done
}
look; sleep 1; look`;

/** Ticks of a second: USER_HZ, on every machine that there is. */
const HZ = 100;
/** Shells and tools that hold a run together, and that look. */
const OTHERS = /^(sh|sleep|unshare|setpriv|cat|init|execd|bash)$/;

interface Thread {
  name: string;
  state: string;
  waitsIn: string;
  ticks: number[];
}

/**
 * The lines of a report, one for each thread that was looked at.
 *
 * @param looks what `LOOK_TWICE` printed
 */
export function threadsOf(looks: string): string[] {
  const threads = new Map<string, Thread>();
  for (const line of looks.split('\n')) {
    const [, process, thread, state, ticks, waitsIn, name] =
      /^(\d+) (\d+) (\w) (\d+) (\S+) (.*)$/.exec(line) ?? [];
    if (process === undefined || OTHERS.test(name)) continue;
    const key = process === thread ? process : `${process}/${thread}`;
    const earlier = threads.get(key)?.ticks ?? [];
    threads.set(key, { name, state, waitsIn, ticks: [...earlier, Number(ticks)] });
  }
  return [...threads]
    .filter(([key, { state, ticks }]) => !key.includes('/') || state === 'R' || Math.max(...ticks) > 0)
    .map(([key, { name, state, waitsIn, ticks }]) => {
      const seconds = ticks.map((count) => (count / HZ).toFixed(2)).join(', then ');
      return `${key} ${name}: ${state}, ${seconds} s of processor time, ${waitsIn === '0' ? 'in no wait' : `waits in ${waitsIn}`}`;
    });
}

/** The report of the processes that this one sees. */
export async function threadsHere(): Promise<string[]> {
  const { stdout } = await promisify(execFile)('sh', ['-c', LOOK_TWICE]);
  return threadsOf(stdout);
}
