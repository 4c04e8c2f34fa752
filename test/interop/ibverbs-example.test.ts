/** examples/ibv-rc-pingpong.mjs, a port line by line, and the unmodified ibv_rc_pingpong on a real rxe. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, inject, test } from 'vitest';
import { GID_INDEX, Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));
const { hostIp4, ip4 } = guest.address;
const example = fileURLToPath(new URL('../../examples/ibv-rc-pingpong.mjs', import.meta.url));
/** 1000 messages of 4096 bytes each way, by events: both programs' defaults but for `-e`. */
const tool = (port: number) => `ibv_rc_pingpong -d rxe0 -g ${GID_INDEX[4]} -p ${port} -e`;

function ours(port: number, ...args: string[]) {
  const env = { ...process.env, PORT: `${port}` };
  return promisify(execFile)(process.execPath, [example, ...args], { env });
}

test.each(['server', 'client'])('we are the %s', async (role) => {
  const port = role === 'server' ? 18801 : 18802;
  let mine: Promise<{ stdout: string }>;
  let theirs: ReturnType<Guest['exec']>;
  if (role === 'server') {
    mine = ours(port, hostIp4);
    const again = `for i in 1 2 3 4 5 6 7 8; do ${tool(port)} ${hostIp4} && break; sleep 0.3; done`;
    theirs = guest.exec(again, { timeout: 60_000 });
  } else {
    theirs = guest.exec(tool(port), { timeout: 60_000 });
    await guest.must(`for i in $(seq 50); do ss -ltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`);
    mine = ours(port, hostIp4, ip4);
  }
  expect((await mine).stdout).toBe('1000 sent, 1000 received; by events\n');
  const { code, stdout, stderr } = await theirs;
  expect(code, stderr).toBe(0);
  expect(stdout).toContain(`${2 * 4096 * 1000} bytes`);
});
