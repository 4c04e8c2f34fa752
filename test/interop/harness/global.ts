/** One guest at MTU 9000 and one at 1500 for all test files; with ROCE_GUEST_MTU, that one alone. */
import type { TestProject } from 'vitest/node';
import type { GuestAddress } from './guest.ts';
import { GuestMachine } from './machine.ts';
import { prompt } from './shell.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    guest9000: GuestAddress;
    guest1500: GuestAddress;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // One after the other: if both boot under emulation, two cores would only share the time.
  const machines: GuestMachine[] = [];
  const only = process.env.ROCE_GUEST_MTU;
  try {
    for (const [i, mtu] of [9000, 1500].entries())
      if (!only || Number(only) === mtu) machines.push(await GuestMachine.start({ mtu, number: i + 1 }));
    for (const machine of machines) machine.revive();
  } catch (error) {
    for (const machine of machines) await machine.stop();
    throw error;
  }
  if (process.env.ROCE_GUEST_SHELL) await prompt(machines.map((machine) => machine.address));
  if (process.env.ROCE_GUEST_SHELL === 'only') {
    for (const machine of machines) await machine.stop();
    process.exit(0);
  }
  for (const { address } of machines) project.provide(`guest${address.mtu as 9000 | 1500}`, address);
  return async () => {
    for (const machine of machines) {
      if (project.vitest.state.getCountOfFailedTests() > 0 || process.exitCode) machine.keepLogs();
      await machine.stop();
    }
  };
}
