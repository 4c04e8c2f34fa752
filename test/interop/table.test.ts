/** A `Client` that reads a table of a program in C on rxe: the question is a SEND, and each `get` a READ that rxe serves. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Table } from '@node-roce/rdmacm';
import { expect, inject, test } from 'vitest';
import { guestListens } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));
const SOURCE = fileURLToPath(new URL('table/server.c', import.meta.url));
const PORT = 7690;

/** Compiles the server here, which has a compiler, and copies it to the guest. */
async function installServer(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'roce-table-'));
  try {
    const program = join(folder, 'server');
    const args = ['-Wall', '-Wextra', '-O2', SOURCE, '-o', program, '-lrdmacm', '-libverbs'];
    const { status, stderr } = spawnSync('cc', args, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    const stdin = readFileSync(program).toString('base64');
    await guest.must('base64 -d > /tmp/table-server && chmod +x /tmp/table-server', { stdin });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('client.get reads each key of a table on rxe, and misses the others', async () => {
  await installServer();
  const table = new Table({ entries: 200, entrySize: 400 });
  const textOf = (i: number) => `${i} `.repeat(1 + (i % 60));
  for (let i = 0; i < 200; i++) table.set(`key ${i}`, textOf(i));
  for (let i = 0; i < 200; i += 3) table.delete(`key ${i}`);
  const rows = Buffer.concat([Buffer.from(`${table.rows}\n${table.rowSize}\n`), table.memory]);
  await guest.must('base64 -d > /tmp/rows', { stdin: rows.toString('base64') });
  const { ip4, hostIp4 } = guest.address;
  const running = guest.exec(`/tmp/table-server ${ip4} ${PORT} < /tmp/rows`, { timeout: 60_000 });
  await guestListens(guest, PORT);
  const client = new Client(`${ip4}:${PORT}`, { source: hostIp4 });
  const found = await Promise.all(Array.from({ length: 210 }, (_, i) => client.get(`key ${i}`)));
  for (const [i, value] of found.entries())
    expect(value && new TextDecoder().decode(value), `key ${i}`).toBe(
      i < 200 && i % 3 !== 0 ? textOf(i) : undefined,
    );
  await client.close();
  expect(await running).toMatchObject({ stdout: 'ok\n', code: 0 });
});
