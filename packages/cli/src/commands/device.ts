/** `roce device`: a device for programs of libibverbs, until Ctrl-C. */
import { once } from 'node:events';
import { resolve } from 'node:path';
import { DeviceServer, defaultInterface, socketPath } from '@node-roce/device';
import { type LinkChoice, openOptions, recoveryOptions } from '../link-choice.ts';
import type { Terminal } from '../terminal.ts';

interface Given {
  bind?: string;
  socket?: string;
  idle?: number;
  trace?: string;
  link: LinkChoice;
  probes: boolean;
}

export async function run(_args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const place = given.bind === undefined ? { interface: defaultInterface() } : { address: given.bind };
  const path = given.socket ?? socketPath(given.bind ?? defaultInterface());
  const log = (line: string) => terminal.message(line);
  const trace = given.trace === undefined ? {} : { trace: resolve(given.trace) };
  const open = { ...openOptions(given.link), ...recoveryOptions(given.probes) };
  const server = await DeviceServer.listen({ ...place, path, log, ...trace, ...open });
  terminal.message(`device at ${server.address}: ${path}`);
  const idle = new AbortController();
  let since = performance.now();
  const timer = setInterval(() => {
    if (server.connections > 0) since = performance.now();
    else if (performance.now() - since > (given.idle ?? Number.POSITIVE_INFINITY) * 1000) idle.abort();
  }, 200);
  const end = AbortSignal.any([terminal.signal, idle.signal]);
  if (!end.aborted) await once(end, 'abort');
  clearInterval(timer);
  await server.close();
  return 0;
}
