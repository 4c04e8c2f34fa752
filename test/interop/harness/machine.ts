/** Starts and stops guests: under User-Mode Linux or QEMU, with the image that guest/build.sh made. */
import type { ChildProcess } from 'node:child_process';
import {
  accessSync,
  appendFileSync,
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PATIENCE } from '../../tiers/patience.mjs';
import { EXEC_PORT, isTracingRefused, umCommand } from '../um/guest.mjs';
import { bridgeOf, dropBridge, guestEnd, macOf, raiseBridge } from './bridge.ts';
import type { GuestAddress } from './guest.ts';
import { keep, LOGS } from './logs.ts';
import { end, spawnTethered } from './process.ts';

/** User-Mode Linux (the kernel as a program), emulation by QEMU, or QEMU with KVM. */
type Accelerator = 'um' | 'tcg' | 'kvm';

/** ms from power on to GUEST-READY. KVM takes a second or two where it works, and often does not in a cloud machine. */
const BOOT_TIMEOUT: Record<Accelerator, number> = {
  um: 60_000 * PATIENCE,
  tcg: 90_000 * PATIENCE,
  kvm: 8_000,
};
const CPU = { kvm: 'host', tcg: 'max' };

/** An emulated kernel panics in one start of some dozens, and a busy machine delays any: the next one boots. */
const STARTS = 3;

/** A guest that ends while tests run is started again so often. */
const REVIVALS = 3;

/** Accelerators that gave no guest in this process. */
const failed = new Set<Accelerator>();

/** No start with that accelerator any more, if there is a choice. */
function giveUp(accelerator: Accelerator): void {
  if (process.env.ROCE_GUEST_ACCEL) return;
  failed.add(accelerator);
  // Nor in the processes of the tests, which start guests of their own.
  if (accelerator === 'um') delete process.env.ROCE_GUEST_UM;
}

/** Starts to try, in this order. `ROCE_GUEST_ACCEL=um|tcg|kvm` allows only that accelerator. */
function starts(): Accelerator[] {
  const wanted = process.env.ROCE_GUEST_ACCEL;
  const often = (accelerator: Accelerator) => new Array<Accelerator>(STARTS).fill(accelerator);
  if (wanted === 'um' || wanted === 'tcg') return often(wanted);
  if (wanted === 'kvm') return ['kvm'];
  if (wanted) throw new Error(`ROCE_GUEST_ACCEL: um, tcg or kvm, not ${wanted}`);
  const fast = [...(process.env.ROCE_GUEST_UM ? often('um') : []), ...kvm()];
  return [...fast.filter((accelerator) => !failed.has(accelerator)), ...often('tcg')];
}

function kvm(): Accelerator[] {
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK);
    return ['kvm'];
  } catch {
    return [];
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
  /** ms until the guest is there; that of its accelerator unless given. */
  timeout?: number;
}

/** Why a guest did not start. */
interface Trouble {
  reason: string;
  /** The same would happen again. */
  final?: boolean;
}

/** A guest that runs. */
export class GuestMachine {
  readonly address: GuestAddress;
  readonly accelerator: Accelerator;
  readonly #launch: () => ChildProcess;
  #process: ChildProcess;
  #stops = false;
  #revivals = 0;

  private constructor(address: GuestAddress, accelerator: Accelerator, launch: () => ChildProcess) {
    this.address = address;
    this.accelerator = accelerator;
    this.#launch = launch;
    this.#process = launch();
  }

  /** Boots a guest and waits until rxe0 is up and commands are taken. */
  static async start({ mtu, number, timeout }: MachineOptions): Promise<GuestMachine> {
    const image = process.env.ROCE_GUEST_IMAGE;
    if (!image || !existsSync(join(image, 'vmlinuz')))
      throw new Error('no guest image: run `npm run test:interop`');
    const bridge = bridgeOf(number);
    const logs = mkdtempSync(join(tmpdir(), 'rxe-guest-'));
    const started = performance.now();
    const name = nameOf({ number, mtu });
    const troubles: string[] = [];
    const plan = starts();
    for (let accelerator = plan.shift(); accelerator; accelerator = plan.shift()) {
      const um = accelerator === 'um';
      const exec = um
        ? { execHost: bridge.guestControl, execPort: EXEC_PORT }
        : { execHost: '127.0.0.1', execPort: await freePort() };
      const address: GuestAddress = { ...bridge, ...exec, mtu, logs };
      raiseBridge(bridge, mtu, um);
      const machine = new GuestMachine(address, accelerator, () =>
        accelerator === 'um' ? launchUm(image, name, address) : launchQemu(image, name, accelerator, address),
      );
      const trouble = await booted(machine.#process, address, timeout ?? BOOT_TIMEOUT[accelerator]);
      if (!trouble) {
        const seconds = ((performance.now() - started) / 1000).toFixed(1);
        console.error(`${name}: ready after ${seconds} s (${accelerator})`);
        // For the last line of the run.
        if (process.env.ROCE_GUEST_STARTS) appendFileSync(process.env.ROCE_GUEST_STARTS, `${accelerator}\n`);
        return machine;
      }
      await end(machine.#process, 'SIGKILL');
      dropBridge(bridge);
      const { reason, final } = trouble;
      console.error(`${name}: no guest with ${accelerator}: ${reason}`);
      troubles.push(`${accelerator}: ${reason}\n${lastLines(consoleOf(address))}`);
      while (final && plan[0] === accelerator) plan.shift();
      if (plan[0] !== accelerator) giveUp(accelerator);
    }
    keep(logs, name);
    throw new Error(`${name} did not start; see ${LOGS}\n${troubles.join('\n')}`);
  }

  /**
   * From now on, starts the guest again where it ends by itself, three times in all: the test that it ended in fails, and those after it do
   * not. Its console is printed, and kept in the logs.
   */
  revive(): void {
    this.#process.once('exit', () => {
      if (this.#stops) return;
      const name = nameOf(this.address);
      this.#revivals++;
      console.error(`${name} ended:\n${lastLines(consoleOf(this.address))}`);
      keep(this.address.logs, `${name}-ended-${this.#revivals}`);
      if (this.#revivals > REVIVALS) return;
      this.#process = this.#launch();
      this.revive();
    });
  }

  /** Copies console, QEMU's messages and the record of commands to where they outlive the run. */
  keepLogs(): void {
    keep(this.address.logs, nameOf(this.address));
  }

  async stop(): Promise<void> {
    this.#stops = true;
    await end(this.#process, 'SIGKILL');
    rmSync(this.address.logs, { recursive: true, force: true });
    dropBridge(this.address);
  }
}

const nameOf = ({ number, mtu }: { number: number; mtu: number }) => `guest${number}-mtu${mtu}`;

const consoleOf = ({ logs }: GuestAddress) => join(logs, 'console.log');

const readConsole = (file: string) => (existsSync(file) ? readFileSync(file, 'latin1') : '');

/** The end of a console, for an error message. */
const lastLines = (file: string) =>
  readConsole(file)
    .trimEnd()
    .split(/\r?\n/)
    .slice(-15)
    .map((line) => `  | ${line}`)
    .join('\n');

/** Words of the kernel's command line, for guest/init. */
const wordsOf = ({ ip4, ip6, mtu }: GuestAddress) => [
  `guest.ip4=${ip4}/24`,
  `guest.ip6=${ip6}/64`,
  `guest.mtu=${mtu}`,
];

function launchUm(image: string, name: string, address: GuestAddress): ChildProcess {
  const kernel = process.env.ROCE_GUEST_UM;
  if (!kernel) throw new Error('ROCE_GUEST_UM: no kernel for User-Mode Linux: run `npm run test:interop`');
  const { number, port, control, mtu, guestControl } = address;
  const { command, args, env } = umCommand({
    ...{ kernel, image, name },
    directory: mkdtempSync(join(tmpdir(), 'um-')), // gone with the run
    cards: [
      { device: guestEnd(port), mtu, mac: macOf(number, 0, 2) },
      { device: guestEnd(control), mtu: 1500, mac: macOf(number, 1, 2) },
    ],
    words: [...wordsOf(address), `guest.control=${guestControl}/24`],
  });
  const log = openSync(consoleOf(address), 'w');
  const guest = spawnTethered(command, args, { stdio: ['ignore', log, log], env });
  closeSync(log);
  return guest;
}

function launchQemu(
  image: string,
  name: string,
  accelerator: 'tcg' | 'kvm',
  address: GuestAddress,
): ChildProcess {
  const { number, port, mtu, execPort } = address;
  rmSync(consoleOf(address), { force: true });
  // All offloads of the guest's network card are off: the bridge sees what a wire would carry.
  const off = ['csum', 'gso', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ecn', 'guest_ufo']
    .concat(['host_tso4', 'host_tso6', 'host_ecn', 'host_ufo'])
    .map((feature) => `${feature}=off`)
    .join(',');
  const append = [
    // no_timer_check: on a busy machine the emulated timer is late, and the kernel would take it for broken.
    'console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=nowatchdog no_timer_check',
    ...wordsOf(address),
  ].join(' ');
  const card = (id: string, kind: 0 | 1) =>
    `virtio-net-pci,netdev=${id},mac=${macOf(number, kind, 2)},romfile=`;
  const args = [
    // Two CPUs: on one, a program that polls keeps rxe's softirqs waiting until timers have expired.
    ['-machine', `q35,accel=${accelerator}`, '-cpu', CPU[accelerator], '-smp', '2', '-m', '768'],
    ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-name', name],
    ['-kernel', join(image, 'vmlinuz'), '-initrd', join(image, 'initramfs.cpio'), '-append', append],
    ['-serial', `file:${consoleOf(address)}`],
    ['-netdev', `tap,id=rdma,ifname=${port},script=no,downscript=no,vhost=off`],
    ['-device', `${card('rdma', 0)},host_mtu=${mtu},${off}`],
    ['-netdev', `user,id=control,restrict=on,hostfwd=tcp:127.0.0.1:${execPort}-10.0.2.15:2000`],
    ['-device', card('control', 1)],
    ['-device', 'virtio-rng-pci'],
  ].flat();
  const log = openSync(join(address.logs, `qemu-${accelerator}.log`), 'w');
  const guest = spawnTethered('qemu-system-x86_64', args, { stdio: ['ignore', log, log] });
  closeSync(log);
  return guest;
}

/** The console's line of a panic, and where the kernel was. */
function panicOf(text: string): string {
  const lines = text.split(/\r?\n/).filter((line) => /Kernel panic|BUG:|RIP:/.test(line));
  return lines.map((line) => line.replace(/^\[ *[\d.]+\] /, '')).join('; ');
}

/** Waits until the guest takes commands. Returns what went wrong, or undefined. */
async function booted(
  guest: ChildProcess,
  address: GuestAddress,
  timeout: number,
): Promise<Trouble | undefined> {
  for (const end = Date.now() + timeout; Date.now() < end; await sleep(50)) {
    const text = readConsole(consoleOf(address));
    // The console's last line may come before the exec daemon listens.
    if (text.includes('GUEST-READY') && (await listens(address))) return undefined;
    if (text.includes('Kernel panic')) return { reason: panicOf(text) };
    if (guest.exitCode === null && guest.signalCode === null) continue;
    if (isTracingRefused(text)) return { reason: REFUSED, final: true };
    return { reason: `it ended with ${guest.signalCode ?? guest.exitCode}` };
  }
  return { reason: `not ready after ${timeout / 1000} s` };
}

const REFUSED =
  'this machine refuses ptrace, which User-Mode Linux needs (of a container: --cap-add SYS_PTRACE --security-opt seccomp=unconfined)';

async function listens({ execHost, execPort }: GuestAddress): Promise<boolean> {
  const socket = connect({ host: execHost, port: execPort });
  try {
    return await new Promise((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
      setTimeout(() => resolve(false), 1000).unref();
    });
  } finally {
    socket.destroy();
  }
}
