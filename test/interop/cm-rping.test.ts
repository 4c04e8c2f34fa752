/** rping of rdmacm-utils and `roce rping`, either as client and as server. */
import { describe, expect, inject, test } from 'vitest';
import { Guest } from './harness/guest.ts';
import { RoceCommand } from './harness/roce.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;

/** The text that the tool prints for ping `n` of 100 bytes. */
function pingData(n: number, size = 100): string {
  const heading = `rdma-ping-${n}: `;
  let text = heading;
  for (let i = heading.length; i < size - 1; i++)
    text += String.fromCharCode(65 + ((n + i - heading.length) % 58));
  return text;
}

/** A port of its own for each case. */
let port = 7200;

describe.each([4, 6] as const)('IPv%i', (version) => {
  const ours = version === 4 ? address.hostIp4 : address.hostIp6;
  const theirs = version === 4 ? address.ip4 : address.ip6;

  test('we are the client: every ping is right on both sides', async () => {
    port++;
    const server = guest.exec(`rping -s -a ${theirs} -p ${port} -C 5 -S 100 -v`, { timeout: 20_000 });
    await guest.must(
      `for i in $(seq 50); do rdma res show cm_id | grep -q LISTEN && exit 0; sleep 0.1; done; exit 1`,
    );
    await using client = new RoceCommand([
      'rping',
      '-c',
      '-a',
      theirs,
      '-I',
      ours,
      '-p',
      `${port}`,
      '-C',
      '5',
      '-S',
      '100',
      '-v',
      '-V',
    ]);
    const mine = await client.exited;
    expect(mine).toMatchObject({ code: 0, stderr: '' });
    expect(mine.stdout.trim().split('\n')).toEqual([0, 1, 2, 3, 4].map((n) => `ping data: ${pingData(n)}`));
    const { code, stdout, stderr } = await server;
    expect({ code, stderr }).toMatchObject({ code: 0 });
    for (let n = 0; n < 5; n++) expect(stdout).toContain(`server ping data: ${pingData(n)}`);
  });

  test('we are the server: every ping is right on both sides', async () => {
    port++;
    await using server = new RoceCommand(['rping', '-s', '-a', ours, '-p', `${port}`, '-S', '100', '-v']);
    await server.says('waiting');
    const { code, stdout, stderr } = await guest.exec(`rping -c -a ${ours} -p ${port} -C 5 -S 100 -v -V`);
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    for (let n = 0; n < 5; n++) expect(stdout).toContain(`ping data: ${pingData(n)}`);
    const mine = await server.exited;
    expect(mine.code, mine.stderr).toBe(0);
    expect(mine.stdout.trim().split('\n')).toEqual(
      [0, 1, 2, 3, 4].map((n) => `server ping data: ${pingData(n)}`),
    );
  });

  test('a port where nobody listens: both say so', async () => {
    port++;
    await using client = new RoceCommand([
      'rping',
      '-c',
      '-a',
      theirs,
      '-I',
      ours,
      '-p',
      `${port}`,
      '-C',
      '1',
    ]);
    const mine = await client.exited;
    expect(mine.code).toBe(1);
    expect(mine.stderr).toContain(`no program listens at port ${port} of ${theirs}`);
    // A server of another port, so that somebody answers.
    await using server = new RoceCommand(['rping', '-s', '-a', ours, '-p', `${port + 1000}`]);
    await server.says('waiting');
    const refused = await guest.exec(`rping -c -a ${ours} -p ${port} -C 1 -v`);
    expect(refused.code).toBe(255);
    expect(refused.stdout + refused.stderr).toContain('RDMA_CM_EVENT_REJECTED, error 8');
    server.interrupt();
    expect((await server.exited).code).toBe(0);
  });
});
