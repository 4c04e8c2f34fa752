/** A guest with a real rdma_rxe, on a bridge of this network namespace. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { GuestProcess, type Result } from './exec.ts';

export const LOGS = fileURLToPath(new URL('../logs/', import.meta.url));

/** What a test needs to reach a guest that another process started. Plain data. */
export interface GuestAddress {
  /** TCP port of the exec daemon, on loopback of the namespace. */
  execPort: number;
  /** Addresses of the guest's eth0 and of our end of the bridge. */
  ip4: string;
  ip6: string;
  hostIp4: string;
  hostIp6: string;
  bridge: string;
  mtu: number;
}

/** GID index on rxe0 by IP version. */
export const GID_INDEX = { 4: 1, 6: 2 } as const;

const BOOT_TIMEOUT = 90_000;

const ip = (...args: string[]): void => {
  execFileSync('ip', args, { stdio: 'pipe' });
};

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts a guest; `number` tells several in one namespace apart. */
export class GuestMachine {
  readonly address: GuestAddress;
  readonly #qemu: ChildProcess;
  readonly #directory: string;
  readonly #name: string;

  private constructor(address: GuestAddress, qemu: ChildProcess, directory: string, name: string) {
    this.address = address;
    this.#qemu = qemu;
    this.#directory = directory;
    this.#name = name;
  }

  static async start({ mtu, number = 1 }: { mtu: number; number?: number }): Promise<GuestMachine> {
    const image = process.env.ROCE_GUEST_IMAGE;
    if (!image || !existsSync(join(image, 'vmlinuz')))
      throw new Error('no guest image: run `npm run test:interop`');
    const name = `guest${number}-mtu${mtu}`;
    const net = `10.77.${number}`;
    const net6 = `fd77:${number}`;
    const address: GuestAddress = {
      execPort: await freePort(),
      ip4: `${net}.2`,
      ip6: `${net6}::2`,
      hostIp4: `${net}.1`,
      hostIp6: `${net6}::1`,
      bridge: `br${number}`,
      mtu,
    };
    const { bridge, execPort } = address;
    const tap = `tap${number}`;
    ip('link', 'set', 'lo', 'up');
    ip('link', 'add', bridge, 'type', 'bridge', 'mcast_snooping', '0');
    ip('tuntap', 'add', tap, 'mode', 'tap');
    ip('link', 'set', tap, 'mtu', String(mtu), 'master', bridge, 'up');
    ip('link', 'set', bridge, 'address', `52:54:00:77:${hex(number)}:01`, 'mtu', String(mtu), 'up');
    ip('addr', 'add', `${address.hostIp4}/24`, 'dev', bridge);
    ip('-6', 'addr', 'add', `${address.hostIp6}/64`, 'dev', bridge, 'nodad');

    const directory = mkdtempSync(join(tmpdir(), 'rxe-guest-'));
    const console_ = join(directory, 'console.log');
    const log = openSync(join(directory, 'qemu.log'), 'w');
    // All offloads of the guest's network card are off: the bridge sees what a wire would carry.
    const off = ['csum', 'gso', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ecn', 'guest_ufo']
      .concat(['host_tso4', 'host_tso6', 'host_ecn', 'host_ufo'])
      .map((feature) => `${feature}=off`)
      .join(',');
    const append = [
      'console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=nowatchdog',
      `guest.ip4=${address.ip4}/24 guest.ip6=${address.ip6}/64 guest.mtu=${mtu}`,
    ].join(' ');
    const qemu = spawn(
      'qemu-system-x86_64',
      [
        // Emulated: /dev/kvm of a cloud machine is often there and seldom usable.
        ['-machine', 'q35,accel=tcg', '-cpu', 'max', '-smp', '1', '-m', '768'],
        ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-name', name],
        ['-kernel', join(image, 'vmlinuz'), '-initrd', join(image, 'initramfs.cpio'), '-append', append],
        ['-serial', `file:${console_}`],
        ['-netdev', `tap,id=n0,ifname=${tap},script=no,downscript=no,vhost=off`],
        [
          '-device',
          `virtio-net-pci,netdev=n0,mac=52:54:00:77:${hex(number)}:02,host_mtu=${mtu},${off},romfile=`,
        ],
        ['-netdev', `user,id=n1,restrict=on,hostfwd=tcp:127.0.0.1:${execPort}-10.0.2.15:2000`],
        ['-device', `virtio-net-pci,netdev=n1,mac=52:54:00:78:${hex(number)}:02,romfile=`],
        ['-device', 'virtio-rng-pci'],
      ].flat(),
      { stdio: ['ignore', log, log] },
    );
    const guest = new GuestMachine(address, qemu, directory, name);
    const end = Date.now() + BOOT_TIMEOUT;
    while (!(existsSync(console_) && readFileSync(console_, 'latin1').includes('GUEST-READY'))) {
      if (qemu.exitCode !== null || Date.now() > end) {
        guest.keepLogs();
        await guest.stop();
        throw new Error(`guest ${name} did not start; see ${LOGS}`);
      }
      await sleep(100);
    }
    return guest;
  }

  /** Copies console and QEMU's messages to where they outlive the run. */
  keepLogs(): void {
    mkdirSync(LOGS, { recursive: true });
    cpSync(this.#directory, join(LOGS, this.#name), { recursive: true });
  }

  async stop(): Promise<void> {
    if (this.#qemu.exitCode === null && this.#qemu.signalCode === null) {
      const gone = new Promise((resolve) => this.#qemu.once('exit', resolve));
      this.#qemu.kill('SIGTERM');
      await Promise.race([gone, sleep(3000)]);
      this.#qemu.kill('SIGKILL');
    }
    rmSync(this.#directory, { recursive: true, force: true });
    for (const link of [`tap${this.address.bridge.slice(2)}`, this.address.bridge]) {
      try {
        ip('link', 'delete', link);
      } catch {
        // Gone with the namespace, or never made.
      }
    }
  }
}

const hex = (n: number) => n.toString(16).padStart(2, '0');

/** A guest that runs, as tests use it. */
export class Guest {
  readonly address: GuestAddress;

  constructor(address: GuestAddress) {
    this.address = address;
  }

  spawn(command: string): GuestProcess {
    return new GuestProcess(this.address.execPort, command);
  }

  /** Runs a shell command to its end; killed after `timeout` ms (code −1). */
  async exec(command: string, { timeout = 30_000 }: { timeout?: number } = {}): Promise<Result> {
    const process = this.spawn(command);
    process.endInput();
    const timer = setTimeout(() => process.kill(), timeout);
    try {
      return await process.exited;
    } catch (error) {
      return { stdout: process.output, stderr: String(error), code: -1 };
    } finally {
      clearTimeout(timer);
    }
  }

  /** As `exec`, and throws unless the command succeeds. */
  async must(command: string, options?: { timeout?: number }): Promise<string> {
    const { stdout, stderr, code } = await this.exec(command, options);
    if (code !== 0) throw new Error(`in the guest: ${command}\nended with ${code}\n${stdout}${stderr}`);
    return stdout;
  }

  /** rxe's own counters (`hw_counters`). */
  async counters(): Promise<Record<string, number>> {
    const text = await this.must('cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *');
    return Object.fromEntries(
      text
        .trim()
        .split('\n')
        .map((line) => line.split(':'))
        .map(([name, value]) => [name, Number(value)]),
    );
  }

  /** Spoils what the guest sends, with netem (`loss 5%`, `delay 2ms reorder 25%`); '' mends it. */
  async netem(what: string): Promise<void> {
    if (what === '') await this.exec('tc qdisc del dev eth0 root');
    else await this.must(`tc qdisc replace dev eth0 root netem limit 10000 ${what}`);
  }
}

/** What changed between two readings. */
export function difference(
  before: Record<string, number>,
  after: Record<string, number>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after)
      .map(([name, value]) => [name, value - (before[name] ?? 0)] as const)
      .filter(([, change]) => change !== 0),
  );
}
