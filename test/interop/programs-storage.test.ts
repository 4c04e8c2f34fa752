/** Storage, and machines that move: programs of this machine, on rxe in the guest, and on `roce run` here. */
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, test } from 'vitest';
import { machineAt, migrate } from '../programs/qemu.ts';
import { Guest } from './harness/guest.ts';
import type { Playing } from './harness/programs.ts';
import { bothEndWell, MINUTES, ready, type Side, twoSides } from './harness/two-sides.ts';

const { folder, HERE, THERE, gone, carried } = twoSides(new Guest(inject('guest9000')));

/** Where the server is, or what is like it; then that side and the other one. */
const ROLES = [
  ['here', HERE, THERE],
  ['in the guest', THERE, HERE],
] as const;

const path = (name: string) => join(folder, name);
const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
/** Expects a file to have these bytes. */
const expectFile = (name: string, bytes: Uint8Array) =>
  expect(digest(readFileSync(path(name)))).toBe(digest(bytes));

/** Compiles a source in C, where both sides see it. */
function compile(source: string, ...options: string[]): string {
  const compiled = path(basename(source, '.c'));
  const file = fileURLToPath(new URL(source, import.meta.url));
  const { stderr } = spawnSync('cc', [file, '-o', compiled, ...options], { encoding: 'utf8' });
  expect(stderr).toBe('');
  return compiled;
}

test.each(ROLES)(
  'a program of librpma reads, writes and flushes memory of another, which is %s',
  { timeout: 10 * MINUTES },
  async (_, server, client) => {
    const program = compile('../programs/persistent.c', '-lrpma', '-libverbs');
    // Each compares all bytes. 64 KiB are read, 32 KiB written.
    await carried(8, async () => {
      const serving = server.start(`${program} server ${server.address}`);
      await ready(serving, server.listensRdma());
      await bothEndWell(serving, client.start(`${program} client ${server.address}`), /^ok$/m);
    });
    await gone();
  },
);

describe('iSER', () => {
  const NAME = 'iqn.2026-11.test:disk';
  const bytes = randomBytes(64 << 20);

  test.each(ROLES)(
    'qemu-img copies a disk of 64 MiB from tgtd, which is %s',
    { timeout: 20 * MINUTES },
    async (_, server, client) => {
      writeFileSync(path('disk'), bytes);
      const ipc = 'env TGT_IPC_SOCKET=/run/roce-tgt';
      // tgtd locks a file so that there is only one of it, and the guest's kernel has no such locks.
      const locked = server === THERE ? `LD_PRELOAD=${compile('locks.c', '-shared', '-fPIC')}` : '';
      // A pool of 1 GiB, as it has by default, is larger than the guest's memory. It takes no smaller one than 128 MiB.
      // With its pings (nop), a client of a busy machine once lost its connection by RNR NAKs.
      const target = server.start(
        `sh -c 'echo $$ > ${path('pid')}; exec ${ipc} ${locked} /usr/sbin/tgtd -f --iser nop=off,pool_sz_mb=128'`,
      );
      await ready(target, server.listensRdma());
      const administer = async (words: string) => {
        const { code, output } = await server.start(`${ipc} /usr/sbin/tgtadm --lld iser --mode ${words}`)
          .ended;
        expect(code, output).toBe(0);
      };
      await administer(`target --tid 1 --op new --targetname ${NAME}`);
      await administer(`logicalunit --tid 1 --op new --lun 1 --backing-store ${path('disk')}`);
      await administer('target --tid 1 --op bind --initiator-address ALL');
      // QEMU's name.
      await administer('target --tid 1 --op bind --initiator-name iqn.2008-11.org.linux-kvm');
      // libiscsi refuses reads of more than 256 KiB, which qemu-img would make.
      const image = [
        ...['driver=blkdebug,max-transfer=131072', 'image.driver=iscsi', 'image.transport=iser'],
        ...[`image.portal=${server.address}`, `image.target=${NAME}`, 'image.lun=1'],
      ].join();
      writeFileSync(path('copy'), '');
      truncateSync(path('copy'), bytes.length);
      const copy = `driver=raw,file.driver=file,file.locking=off,file.filename=${path('copy')}`;
      await carried(512, async () => {
        const convert = `qemu-img convert -n --image-opts ${image} --target-image-opts ${copy}`;
        let { code, output } = await client.start(convert).ended;
        // libiscsi 1.19 gives up the commands by which it opens a disk, if an answer takes a second (event_loop in its sync.c passes no
        // events to its iser.c, which takes that for an error): on a busy machine, again.
        for (let tries = 1; tries < 5 && output.includes('revents is not POLLIN'); tries++)
          ({ code, output } = await client.start(convert).ended);
        expect(code, output).toBe(0);
      });
      expectFile('copy', bytes);
      // It ignores SIGTERM.
      await server.start(`sh -c 'kill -KILL $(cat ${path('pid')})'`).ended;
      await target.ended;
      await gone();
    },
  );
});

describe('QEMU', () => {
  /** Where the memory of the machine has the file, and its bytes: firmware uses what is below 1 MiB, and higher addresses. */
  const AT = 8 << 20;
  const bytes = randomBytes(4 << 20);

  /** Starts a machine that takes commands at this TCP port. */
  const start = ({ address, start }: Side, type: string, port: number, more: string) =>
    start(
      `qemu-system-x86_64 -machine ${type},accel=tcg -m 32 -nodefaults -display none ` +
        `-qmp tcp:${address}:${port},server=on,wait=off ${more}`,
    );
  /** Its commands. @throws if it has ended */
  const commandsOf = (machine: Playing, { address }: Side, port: number) =>
    Promise.race([
      machineAt({ host: address, port }),
      machine.ended.then(({ output }) => Promise.reject(new Error(`QEMU has ended: ${output}`))),
    ]);

  describe.each(['pc', 'none'])('migrates a machine of type %s by RDMA', (type) => {
    test.each(ROLES)('whose target is %s', { timeout: 20 * MINUTES }, async (_, there, here) => {
      writeFileSync(path('memory'), bytes);
      const target = start(there, type, 4445, `-incoming rdma:${there.address}:4444`);
      await ready(target, there.listensRdma());
      const source = start(here, type, 4446, `-device loader,file=${path('memory')},addr=${AT},force-raw=on`);
      const to = await commandsOf(target, there, 4445);
      const from = await commandsOf(source, here, 4446);
      await carried(16, () => migrate(from, to, `rdma:${there.address}:4444`));
      await to('pmemsave', { val: AT, size: bytes.length, filename: path('moved') });
      expectFile('moved', bytes);
      for (const ask of [from, to]) await ask('quit');
      for (const { code, output } of [await source.ended, await target.ended]) expect(code, output).toBe(0);
      await gone();
    });
  });
});

describe('fio', () => {
  /** The server is the one whose job reads, whatever the verb is. */
  const job = (address: string, verb: string, rw: string) =>
    [
      ...['[job]', 'ioengine=rdma', 'thread', `hostname=${address}`, 'port=7301', `verb=${verb}`],
      // fio does not try a SEND again for which there is no receive: no more of them than its receiver posts before the first.
      ...['bs=64k', 'size=1m', `rw=${rw}`, 'iodepth=16'],
      // Of a SEND, its receiver knows what it should be.
      ...(verb === 'send' ? ['verify=sha256'] : []),
    ].join('\n');

  describe.each(['write', 'read', 'send'])('verb=%s', (verb) => {
    test.each(ROLES)('its server %s', { timeout: 10 * MINUTES }, async (_, server, client) => {
      const [reads, writes] = ['read', 'write'].map((rw) => {
        writeFileSync(path(rw), job(server.address, verb, rw));
        return path(rw);
      });
      await carried(2, async () => {
        const serving = server.start(`fio ${reads}`);
        await ready(serving, server.listensRdma());
        await bothEndWell(serving, client.start(`fio ${writes}`), /WRITE: .* io=1024KiB/);
      });
      await gone();
    });
  });
});
