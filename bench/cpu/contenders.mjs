/** The contenders of `--cpu`: each is opened for a row, and then runs so many messages and reports the processor time, ns each. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { compile } from '../contenders/c-limit.mjs';
import { pinned } from '../pinning.mjs';
import { nextPort, SideProcess } from '../sides/process.mjs';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const ROOT = at('../..');
const OUT = at('../build');
/** The native sources that the goals are compared with: later ones make the C program quicker, too. */
const FROZEN = '17a937cf';

/** The C program of today with the native sources of `FROZEN`. @returns the reason why it can't be built, or nothing */
function compileFrozen(output) {
  const root = `${OUT}/${FROZEN}`;
  mkdirSync(`${root}/bench`, { recursive: true });
  const archive = spawnSync('git', ['-C', ROOT, 'archive', FROZEN, 'native/src'], { maxBuffer: 1 << 26 });
  if (archive.status !== 0) return `commit ${FROZEN} is not here`;
  const { status } = spawnSync('tar', ['-x', '-C', root], { input: archive.stdout });
  if (status !== 0) return 'no tar';
  cpSync(at('../c-limit'), `${root}/bench/c-limit`, { recursive: true });
  return compile('one-thread', output, root);
}

const C = (name, build) => {
  const program = `${OUT}/one-thread ${name}`;
  let reason;
  return {
    name,
    missing() {
      reason ??= build(program);
      return reason;
    },
    async open({ c }) {
      if (c === undefined) throw new Error('not in C');
      const [command, args] = pinned(0, program, [c.mode, c.length, nextPort()].map(String));
      const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
      const lines = createInterface({ input: child.stdout });
      const ended = once(child, 'exit');
      return {
        async run(count) {
          child.stdin.write(`${count * c.packets}\n`);
          const failed = ended.then(() => Promise.reject(new Error('the C program ended')));
          const [line] = await Promise.race([once(lines, 'line'), failed]);
          return Number(line) * c.packets;
        },
        async close() {
          child.stdin.end();
          await ended;
        },
      };
    },
  };
};

/** The C program with the sources of the first commit, and with those of today. */
export const frozenC = C(`C of ${FROZEN}`, compileFrozen);
export const todaysC = C('C', (output) => compile('one-thread', output));

/** The build in the directory `root`. */
export const nodeRoce = (name, root) => ({
  name,
  missing: () => undefined,
  async open({ kind, plan }) {
    const side = new SideProcess(0, ['--expose-gc'], root);
    try {
      const options = { ...plan, port: nextPort() };
      if (kind === 'many') await side.call('openMany', options);
      else await side.call('openInThread', { ...options, kind });
    } catch (error) {
      side.kill();
      throw error;
    }
    return {
      async run(count) {
        if (kind !== 'many') return side.call('inThread', { count });
        const rounds = Math.max(1, Math.round(count / (plan.queuePairs * (plan.depth ?? 1))));
        return (await side.call('many', { rounds })).cpuNsPerMessage;
      },
      close: () => side.close(),
    };
  },
});
