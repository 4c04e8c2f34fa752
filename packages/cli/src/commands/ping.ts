/** `roce ping`: round trips over RC to an rping server, with statistics as ping prints them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CmId } from '@node-roce/rdmacm';
import { RoceError } from '@node-roce/verbs-api';
import { type LinkChoice, openOptions } from '../link-choice.ts';
import { ping, pingText, RPING_PARAMETERS, RpingSide } from '../rping/dialogue.ts';
import { Statistics } from '../rping/statistics.ts';
import type { Terminal } from '../terminal.ts';

interface Given {
  port: number;
  count?: number;
  size: number;
  interval: number;
  timeout: number;
  bind?: string;
  link: LinkChoice;
  udpPort: number;
  json?: boolean;
}

export async function run(args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const { port, count, size, interval, timeout, bind, json } = given;
  const host = args[0];
  const id = new CmId({ deviceOptions: { port: given.udpPort, ...openOptions(given.link) } });
  const statistics = new Statistics();
  const began = performance.now();
  try {
    await id.resolveAddr({ host, port, ...(bind === undefined ? {} : { source: bind }) });
    await id.resolveRoute();
    await using side = await RpingSide.open(id, size);
    const late = AbortSignal.timeout(Math.ceil(timeout * 1000));
    try {
      await id.connect(RPING_PARAMETERS, { signal: AbortSignal.any([terminal.signal, late]) });
    } catch (error) {
      if (!late.aborted || terminal.signal.aborted) throw error;
      throw new RoceError(
        'ERR_ROCE_CM_UNREACHABLE',
        `no answer from port ${port} of ${host} within ${timeout} s: start 'rping -s' or 'roce rping -s' there first, and try 'roce doctor ${host}'`,
        { errno: 'ETIMEDOUT' },
      );
    }
    const { address } = id.remoteAddress!;
    if (!json) terminal.line(`PING ${host} (${address}) port ${port}: ${size} bytes by RDMA READ and WRITE`);
    try {
      for (let number = 0; number !== count; number++) {
        if (number > 0) await sleep(interval * 1000, undefined, { signal: terminal.signal });
        const start = performance.now();
        statistics.sent();
        await ping(side, pingText(number, size));
        const milliseconds = performance.now() - start;
        statistics.received(milliseconds);
        if (!json)
          terminal.line(
            `${size} bytes from ${address}: seq=${number + 1} time=${milliseconds.toFixed(3)} ms`,
          );
        terminal.flush();
      }
      await id.disconnect();
    } catch (error) {
      // A server that leaves ends it, as Ctrl-C does: what was measured is shown.
      if (!terminal.signal.aborted && id.state === 'CONNECTED') throw error;
    }
    if (json) terminal.json({ host, address, port, size, ...statistics.summary });
    else for (const line of statistics.lines(host, performance.now() - began)) terminal.line(line);
    return statistics.lost === 0 ? 0 : 1;
  } finally {
    await id.destroy();
  }
}
