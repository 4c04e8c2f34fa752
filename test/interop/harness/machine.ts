/** Starts and stops guests: QEMU with the image that guest/build.sh made. */
import type { ChildProcess } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Bridge, bridgeOf, dropBridge, macOf, raiseBridge } from './bridge.ts';
import type { GuestAddress } from './guest.ts';
import { keep, LOGS } from './logs.ts';
import { PATIENCE } from './patience.ts';
import { end, spawnTethered } from './process.ts';

type Accelerator = 'kvm' | 'tcg';

/** ms from power on to GUEST-READY. KVM takes a second or two where it works, and often does not in a cloud machine. */
const BOOT_TIMEOUT: Record<Accelerator, number> = { kvm: 8_000, tcg: 90_000 * PATIENCE };
const CPU: Record<Accelerator, string> = { kvm: 'host', tcg: 'max' };

/** Whether KVM gave a guest; unknown until it was tried. */
let kvmWorks: boolean | undefined;

/** An emulated kernel panics in one start of some dozens: the next one boots. */
const TCG: Accelerator[] = ['tcg', 'tcg', 'tcg'];

/** Starts to try, in this order. `ROCE_GUEST_ACCEL=kvm|tcg` allows only that accelerator. */
function starts(): Accelerator[] {
  const wanted = process.env.ROCE_GUEST_ACCEL;
  if (wanted === 'kvm') return ['kvm'];
  if (wanted === 'tcg') return TCG;
  if (wanted) throw new Error(`ROCE_GUEST_ACCEL: kvm or tcg, not ${wanted}`);
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK);
    return kvmWorks === false ? TCG : ['kvm', ...TCG];
  } catch {
    return TCG;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export interface MachineOptions {
  /** Of the network, in bytes: 1500 (rxe's path MTU 1024) or 9000 (4096). */
  mtu: number;
  /** 1 … 250, one per guest of this namespace. */
  number: number;
}

/** The QEMU process of a guest. */
export class GuestMachine {
  readonly address: GuestAddress;
  readonly accelerator: Accelerator;
  readonly #qemu: ChildProcess;
  readonly #bridge: Bridge;

  private constructor(address: GuestAddress, accelerator: Accelerator, qemu: ChildProcess, bridge: Bridge) {
    this.address = address;
    this.accelerator = accelerator;
    this.#qemu = qemu;
    this.#bridge = bridge;
  }

  /** Boots a guest and waits until rxe0 is up and commands are taken. */
  static async start({ mtu, number }: MachineOptions): Promise<GuestMachine> {
    const image = process.env.ROCE_GUEST_IMAGE;
    if (!image || !existsSync(join(image, 'vmlinuz')))
      throw new Error('no guest image: run `npm run test:interop`');
    const bridge = bridgeOf(number);
    const name = `guest${number}-mtu${mtu}`;
    const logs = mkdtempSync(join(tmpdir(), 'rxe-guest-'));
    const address: GuestAddress = { ...bridge, execPort: await freePort(), mtu, logs };
    raiseBridge(bridge, mtu);
    const started = performance.now();
    for (const accelerator of starts()) {
      const qemu = launch(image, name, accelerator, address);
      const trouble = await booted(qemu, consoleOf(address), BOOT_TIMEOUT[accelerator]);
      if (accelerator === 'kvm') kvmWorks = !trouble;
      if (!trouble) {
        const seconds = ((performance.now() - started) / 1000).toFixed(1);
        console.error(`${name}: ready after ${seconds} s (${accelerator})`);
        return new GuestMachine(address, accelerator, qemu, bridge);
      }
      await end(qemu);
      console.error(`${name}: no guest with ${accelerator}: ${trouble}`);
    }
    keep(logs, name);
    dropBridge(bridge);
    throw new Error(`${name} did not start; see ${LOGS}`);
  }

  /** Copies console, QEMU's messages and the record of commands to where they outlive the run. */
  keepLogs(): void {
    keep(this.address.logs, `guest${this.#bridge.number}-mtu${this.address.mtu}`);
  }

  async stop(): Promise<void> {
    await end(this.#qemu);
    rmSync(this.address.logs, { recursive: true, force: true });
    dropBridge(this.#bridge);
  }
}

const consoleOf = ({ logs }: GuestAddress) => join(logs, 'console.log');

function launch(image: string, name: string, accelerator: Accelerator, address: GuestAddress): ChildProcess {
  const { number, tap, mtu, execPort } = address;
  rmSync(consoleOf(address), { force: true });
  // All offloads of the guest's network card are off: the bridge sees what a wire would carry.
  const off = ['csum', 'gso', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ecn', 'guest_ufo']
    .concat(['host_tso4', 'host_tso6', 'host_ecn', 'host_ufo'])
    .map((feature) => `${feature}=off`)
    .join(',');
  const append = [
    // no_timer_check: on a busy machine the emulated timer is late, and the kernel would take it for broken.
    'console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=nowatchdog no_timer_check',
    `guest.ip4=${address.ip4}/24 guest.ip6=${address.ip6}/64 guest.mtu=${mtu}`,
  ].join(' ');
  const card = (id: string, kind: 0 | 1) =>
    `virtio-net-pci,netdev=${id},mac=${macOf(number, kind, 2)},romfile=`;
  const args = [
    // Two CPUs: on one, a program that polls keeps rxe's softirqs waiting until timers have expired.
    ['-machine', `q35,accel=${accelerator}`, '-cpu', CPU[accelerator], '-smp', '2', '-m', '768'],
    ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-name', name],
    ['-kernel', join(image, 'vmlinuz'), '-initrd', join(image, 'initramfs.cpio'), '-append', append],
    ['-serial', `file:${consoleOf(address)}`],
    ['-netdev', `tap,id=rdma,ifname=${tap},script=no,downscript=no,vhost=off`],
    ['-device', `${card('rdma', 0)},host_mtu=${mtu},${off}`],
    ['-netdev', `user,id=control,restrict=on,hostfwd=tcp:127.0.0.1:${execPort}-10.0.2.15:2000`],
    ['-device', card('control', 1)],
    ['-device', 'virtio-rng-pci'],
  ].flat();
  const log = openSync(join(address.logs, `qemu-${accelerator}.log`), 'w');
  const qemu = spawnTethered('qemu-system-x86_64', args, { stdio: ['ignore', log, log] });
  closeSync(log);
  return qemu;
}

/** The console's line of a panic, and where the kernel was. */
function panicOf(text: string): string {
  const lines = text.split(/\r?\n/).filter((line) => /Kernel panic|BUG:|RIP:/.test(line));
  return lines.map((line) => line.replace(/^\[ *[\d.]+\] /, '')).join('; ');
}

/** Waits for the guest's last line of its start. Returns what went wrong, or undefined. */
async function booted(qemu: ChildProcess, console_: string, timeout: number): Promise<string | undefined> {
  for (const end = Date.now() + timeout; Date.now() < end; await sleep(50)) {
    const text = existsSync(console_) ? readFileSync(console_, 'latin1') : '';
    if (text.includes('GUEST-READY')) return undefined;
    if (text.includes('Kernel panic')) return panicOf(text);
    if (qemu.exitCode !== null) return `QEMU ended with ${qemu.exitCode}`;
    if (qemu.signalCode !== null) return `QEMU was ended by ${qemu.signalCode}`;
  }
  return `not ready after ${timeout / 1000} s`;
}
