/** `roce connect`: to a listener of rsockets; stdin goes to it, and what it sends to stdout. */
import { connect } from '@node-roce/rsocket';
import { exchange, type NetcatOptions } from '../netcat.ts';
import type { Terminal } from '../terminal.ts';

interface Given extends NetcatOptions {
  port: number;
  bind?: string;
  udpPort: number;
}

export async function run(args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const { port, bind, udpPort } = given;
  const socket = await connect({
    host: args[0],
    port,
    ...(bind === undefined ? {} : { source: bind }),
    deviceOptions: { port: udpPort },
    allowHalfOpen: true,
    signal: terminal.signal,
  });
  await exchange(socket, given, terminal);
  return 0;
}
