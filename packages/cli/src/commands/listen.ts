/** `roce listen`: one client of rsockets, its bytes to stdout and those of stdin to it. */
import { listen } from '@node-roce/rsocket';
import { exchange, type NetcatOptions } from '../netcat.ts';
import type { Terminal } from '../terminal.ts';

interface Given extends NetcatOptions {
  port: number;
  bind?: string;
  udpPort: number;
}

export async function run(_args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const { port, bind, udpPort } = given;
  const { signal } = terminal;
  await using server = await listen({
    port,
    ...(bind === undefined ? {} : { address: bind }),
    deviceOptions: { port: udpPort },
    allowHalfOpen: true,
  });
  if (given.verbose) terminal.message(`listening at port ${server.port}`);
  const socket = await server.accept({ signal });
  signal.addEventListener('abort', () => socket.destroy(signal.reason), { once: true });
  await server.close();
  await exchange(socket, given, terminal);
  return 0;
}
