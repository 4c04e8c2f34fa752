/** A prompt for the guests, before the suite: `npm run test:interop -- --shell`. */
import { createInterface } from 'node:readline';
import { Guest, type GuestAddress } from './guest.ts';

/** Reads commands until the end of input (Ctrl-D); `1 COMMAND` and `2 COMMAND` choose the guest, 1 is meant otherwise. */
export async function prompt(addresses: readonly GuestAddress[]): Promise<void> {
  for (const [i, { ip4, ip6, mtu, bridge, execHost, execPort, logs }] of addresses.entries()) {
    console.error(
      `guest ${i + 1}: ${ip4} ${ip6}, MTU ${mtu}, bridge ${bridge}, exec ${execHost}:${execPort}, logs ${logs}`,
    );
  }
  const lines = createInterface({ input: process.stdin, output: process.stderr, prompt: 'guest> ' });
  lines.prompt();
  for await (const line of lines) {
    const [, number = '1', command] = /^(?:([12])\s+)?(.*)$/.exec(line.trim()) ?? [];
    if (command) {
      const running = new Guest(addresses[Number(number) - 1]).spawn(command);
      running.endInput();
      running.onStdout = (text) => process.stdout.write(text);
      const { stderr, code } = await running.exited;
      process.stderr.write(stderr);
      if (code !== 0) console.error(`ended with ${code}`);
    }
    lines.prompt();
  }
}
