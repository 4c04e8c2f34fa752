/** Connections by address over real sockets: the engine in this thread and in a worker, and `roce rping` as two programs. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answerRequests, Client, CmId, connect, listen, Table } from '@node-roce/rdmacm';
import { afterEach, describe, expect, test } from 'vitest';

const roce = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  test.each([
    ['127.0.72.1', '127.0.72.2'],
    ['127.0.72.3', '127.0.72.3'],
  ])('%s to %s', async (from, to) => {
    const options = { deviceOptions: { engine } };
    await using listener = new CmId(options);
    await listener.listen({ address: to, port: 0 });
    await using client = new CmId(options);
    await client.resolveAddr({ host: to, port: listener.localAddress!.port, source: from });
    await client.resolveRoute();
    const equip = async (id: CmId) => {
      const pd = await id.device.allocPd();
      const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)), {
        access: { remoteRead: true },
      });
      return { mr, qp: await id.createQp(pd, { sendCq: await id.device.createCq(64) }) };
    };
    const ours = await equip(client);
    const connecting = client.connect();
    await using server = await listener.getRequest();
    expect(server.remoteAddress).toEqual(client.localAddress);
    const theirs = await equip(server);
    await Promise.all([server.accept(), connecting]);
    const arrived = theirs.qp.receive(theirs.mr);
    await ours.qp.send(new TextEncoder().encode('hello'));
    expect(Buffer.from(theirs.mr.bytes(0, (await arrived).byteLen)).toString()).toBe('hello');
    await client.disconnect();
    await server.disconnected;
  });
});

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

async function run(...args: string[]) {
  const child = spawn(process.execPath, [roce, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (data) => {
    said.stdout += data;
  });
  child.stderr.on('data', (data) => {
    said.stderr += data;
  });
  const code = new Promise<number | null>((resolve) => child.on('close', resolve));
  return { child, said, ended: code.then((value) => ({ code: value, ...said })) };
}

test('roce flows follows a connection that the connection manager made', async () => {
  const trace = join(mkdtempSync(join(tmpdir(), 'roce-cm-')), 'trace.pcapng');
  await using listener = await listen({ address: '127.0.72.31', port: 0 });
  const options = { source: '127.0.72.32', deviceOptions: { trace } };
  const connection = await connect(`127.0.72.31:${listener.port}`, options);
  const server = await listener.accept();
  for (let i = 0; i < 5; i++) {
    await connection.send('x'.repeat(5000));
    await server.receive();
  }
  await connection.close();
  await server.close();
  const flows = await run('flows', '--json', trace);
  const { code, stdout } = await flows.ended;
  expect(code).toBe(0);
  const { connections, unconnected } = JSON.parse(stdout);
  // REQ, REP, RTU, DREQ and DREP.
  expect(unconnected).toBe(5);
  expect(connections).toMatchObject([
    {
      pairing: 'cm',
      a: { address: '127.0.72.32', qpn: connection.qp.qpNum },
      b: { address: '127.0.72.31', qpn: server.qp.qpNum },
    },
  ]);
  rmSync(dirname(trace), { recursive: true });
});

test('roce ping: round trips, and statistics of them', async () => {
  const server = await run('rping', '-s', '-P', '-a', '127.0.72.21');
  await expect.poll(() => server.said.stderr).toContain('waiting');
  const target = ['-c', '3', '-i', '0.01', '-I', '127.0.72.22', '127.0.72.21'];
  const client = await run('ping', ...target);
  expect(await client.ended).toMatchObject({ code: 0, stderr: '' });
  const lines = client.said.stdout.trim().split('\n');
  expect(lines[0]).toBe('PING 127.0.72.21 (127.0.72.21) port 7174: 64 bytes by RDMA READ and WRITE');
  expect(lines[3]).toMatch(/^64 bytes from 127.0.72.21: seq=3 time=\d+\.\d{3} ms$/);
  expect(lines[6]).toMatch(/^3 packets transmitted, 3 received, 0% packet loss, time \d+ms$/);
  expect(lines[7]).toMatch(/^rtt min\/avg\/max\/mdev = [\d.]+\/[\d.]+\/[\d.]+\/[\d.]+ ms$/);
  const json = await run('ping', '--json', ...target);
  expect(JSON.parse((await json.ended).stdout)).toMatchObject({ transmitted: 3, received: 3 });
});

describe('roce rping', () => {
  test('a server for one client, data checked', async () => {
    const server = await run('rping', '-s', '-a', '127.0.72.11', '-v');
    await expect.poll(() => server.said.stderr).toContain('waiting');
    const client = await run('rping', '-c', '-a', '127.0.72.11', '-I', '127.0.72.12', '-C', '2', '-v', '-V');
    const text = 'rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs';
    expect(await client.ended).toMatchObject({ code: 0, stderr: '' });
    expect(client.said.stdout).toContain(`ping data: ${text}\n`);
    expect((await server.ended).code).toBe(0);
    expect(server.said.stdout).toContain(`server ping data: ${text}\n`);
  });

  test('a persistent server, several clients at once, until it is interrupted', async () => {
    const server = await run('rping', '-s', '-P', '-a', '127.0.72.13', '-S', '5000');
    await expect.poll(() => server.said.stderr).toContain('waiting');
    const clients = await Promise.all(
      [14, 15].map((last) =>
        run('rping', '-c', '-a', '127.0.72.13', '-I', `127.0.72.${last}`, '-C', '20', '-S', '5000', '-V'),
      ),
    );
    for (const { ended } of clients) expect(await ended).toMatchObject({ code: 0, stderr: '' });
    server.child.kill('SIGINT');
    expect((await server.ended).code).toBe(0);
  });

  test('a server with a smaller -S: the client prints the options to compare', async () => {
    const server = await run('rping', '-s', '-a', '127.0.72.18');
    await expect.poll(() => server.said.stderr).toContain('waiting');
    const client = await run('rping', '-c', '-a', '127.0.72.18', '-I', '127.0.72.19', '-S', '100', '-C', '1');
    expect(await client.ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the same -S on both'),
    });
    expect(await server.ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('-S of at least that'),
    });
  });

  test('nobody listens: an error with the remedy', async () => {
    const server = await run('rping', '-s', '-P', '-a', '127.0.72.16');
    await expect.poll(() => server.said.stderr).toContain('waiting');
    const client = await run(
      'rping',
      '-c',
      '-a',
      '127.0.72.16',
      '-I',
      '127.0.72.17',
      '-p',
      '7999',
      '-C',
      '1',
    );
    expect(await client.ended).toMatchObject({ code: 1, stdout: '' });
    expect(client.said.stderr).toContain(
      'no program listens at port 7999 of 127.0.72.16: start the server first',
    );
    server.child.kill('SIGINT');
    await server.ended;
  });
});

describe.each([
  ['worker', 'inline'],
  ['inline', 'worker'],
  ['worker', 'worker'],
] as const)('a table at an engine %s, read by an engine %s', (serverEngine, clientEngine) => {
  test('has its entries while the server changes them', async () => {
    const table = new Table({ entries: 64, entrySize: 512 });
    const value = (round: number) => `${round} `.repeat(60);
    for (let key = 0; key < 64; key++) table.set(`key ${key}`, value(0));
    const address = '127.0.72.91';
    const listener = await listen({ address, port: 7, deviceOptions: { engine: serverEngine } });
    const serving = (async () => {
      const connection = await listener.accept();
      await answerRequests(connection, () => '', { table }).finally(() => connection.close());
    })();
    // No deadline: the verdict must not depend on how long a busy machine takes to start a thread.
    const deadlines = { connectTimeout: 0, requestTimeout: 0 };
    const options = { source: '127.0.72.92', deviceOptions: { engine: clientEngine }, ...deadlines };
    const client = new Client(`${address}:7`, options);
    for (let round = 1; round <= 8; round++) {
      const reads = Array.from({ length: 64 }, (_, key) => client.get(`key ${key}`));
      for (let key = 0; key < 64; key++) table.set(`key ${key}`, value(round));
      for (const read of reads) {
        const found = new TextDecoder().decode(await read);
        expect([value(round - 1), value(round)]).toContain(found);
      }
      expect(new TextDecoder().decode(await client.get(`key ${round}`))).toBe(value(round));
    }
    expect(await client.get('no key')).toBeUndefined();
    await client.close();
    await serving;
    await listener.close();
  });
});
