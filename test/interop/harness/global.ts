/** One guest at MTU 9000 and one at 1500 for all test files. */
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
  // One after the other: both boot under emulation, and two cores would only share the time.
  const machines: GuestMachine[] = [];
  try {
    machines.push(await GuestMachine.start({ mtu: 9000, number: 1 }));
    machines.push(await GuestMachine.start({ mtu: 1500, number: 2 }));
  } catch (error) {
    for (const machine of machines) await machine.stop();
    throw error;
  }
  if (process.env.ROCE_GUEST_SHELL) await prompt(machines.map((machine) => machine.address));
  project.provide('guest9000', machines[0].address);
  project.provide('guest1500', machines[1].address);
  return async () => {
    for (const machine of machines) {
      if (project.vitest.state.getCountOfFailedTests() > 0 || process.exitCode) machine.keepLogs();
      await machine.stop();
    }
  };
}
