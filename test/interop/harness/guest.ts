/** A guest that runs, as tests use it: commands, rxe's counters, faults on its network. */
import { PATIENCE } from '../../tiers/patience.mjs';
import type { Bridge } from './bridge.ts';
import { GuestProcess, type Result } from './exec.ts';
import { clearFaults, endLosses, raiseFaults } from './netem.ts';

/** The facts by which a test reaches a guest that another process started. Plain data. */
export interface GuestAddress extends Bridge {
  /** Address and TCP port of the exec daemon, in this namespace. */
  execHost: string;
  execPort: number;
  /** Of the network, in bytes. */
  mtu: number;
  /** Directory of console, QEMU's messages and the record of commands, until the guest stops. */
  logs: string;
}

/** GID index on rxe0 by IP version. */
export const GID_INDEX = { 4: 1, 6: 2 } as const;

/** Commands and files in the guest. */
export class Guest {
  readonly address: GuestAddress;

  constructor(address: GuestAddress) {
    this.address = address;
  }

  /** Starts a shell command; its stdin stays open. */
  spawn(command: string): GuestProcess {
    return new GuestProcess(this.address, command);
  }

  /** Runs a shell command to its end; killed after `timeout` ms, and longer with `ROCE_PATIENCE`, or by `signal` (code −1). */
  async exec(
    command: string,
    { timeout = 30_000, stdin = '', signal }: { timeout?: number; stdin?: string; signal?: AbortSignal } = {},
  ): Promise<Result> {
    const process = this.spawn(command);
    signal?.addEventListener('abort', () => process.kill());
    if (stdin) process.write(stdin);
    process.endInput();
    const timer = setTimeout(() => process.kill(), timeout * PATIENCE);
    try {
      return await process.exited;
    } catch (error) {
      return { stdout: process.output, stderr: String(error), code: -1 };
    } finally {
      clearTimeout(timer);
    }
  }

  /** As `exec`, and throws unless the command succeeds. */
  async must(command: string, options?: { timeout?: number; stdin?: string }): Promise<string> {
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

  /**
   * Spoils the guest's RoCE packets, and no others, with netem (`loss 5%`, `delay 2ms reorder 25%`,
   * `corrupt 2%`): those it sends, and those it receives. '' mends both.
   */
  async netem(sent: string, received = ''): Promise<void> {
    await this.exec(clearFaults);
    if (sent || received) await this.must(raiseFaults(sent, received));
  }

  /** Ends the losses of netem() while rxe is sending; netem('') takes the rest away afterwards. */
  async endLosses(): Promise<void> {
    await this.exec(endLosses);
  }
}

/** The differences between two readings. */
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
