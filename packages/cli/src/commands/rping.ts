/** `roce rping`: the peer of rdma-core's rping, as client and as server. */
import { CmId } from '@node-roce/rdmacm';
import { RoceError } from '@node-roce/verbs-api';
import { type LinkChoice, openOptions } from '../link-choice.ts';
import { UsageError } from '../options.ts';
import { ping, pingText, pong, RPING_PARAMETERS, RpingSide, textOf } from '../rping/dialogue.ts';
import type { Terminal } from '../terminal.ts';

interface Given {
  server?: boolean;
  client?: boolean;
  address?: string;
  bind?: string;
  port: number;
  count?: number;
  size: number;
  verbose?: boolean;
  validate?: boolean;
  persistent?: boolean;
  link: LinkChoice;
  udpPort: number;
}

export async function run(_args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  if (given.server === given.client) throw new UsageError('expected either -s (server) or -c (client)');
  if (given.persistent && !given.server)
    throw new UsageError('-P needs -s: only a server serves several clients');
  if (given.address === undefined)
    throw new UsageError(
      given.server
        ? 'expected -a with the address to listen at'
        : 'expected -a with the address of the server',
    );
  return given.server ? serve(given.address, given, terminal) : call(given.address, given, terminal);
}

const deviceOptions = ({ udpPort, link }: Given) => ({
  deviceOptions: { port: udpPort, ...openOptions(link) },
});

async function call(host: string, given: Given, terminal: Terminal): Promise<number> {
  const { port, size, count, validate, verbose, bind } = given;
  const id = new CmId(deviceOptions(given));
  try {
    await id.resolveAddr({ host, port, ...(bind === undefined ? {} : { source: bind }) });
    await id.resolveRoute();
    await using side = await RpingSide.open(id, size);
    await id.connect(RPING_PARAMETERS, { signal: terminal.signal });
    for (let number = 0; number !== count && !terminal.signal.aborted; number++) {
      const text = pingText(number, size);
      const back = await ping(side, text).catch((error) => {
        // The outstanding requests were flushed.
        if (id.state === 'CONNECTED') throw error;
        throw new RoceError('ERR_ROCE_EXCHANGE', 'the server has disconnected', {
          errno: 'EIO',
          expected: 'the same -S on both sides, and no smaller -C there',
          cause: error,
        });
      });
      if (validate && !back.every((byte, i) => byte === text[i])) {
        terminal.message('data mismatch!');
        return 1;
      }
      if (verbose) terminal.line(`ping data: ${textOf(back)}`);
    }
    terminal.flush();
    await id.disconnect();
    return 0;
  } finally {
    await id.destroy();
  }
}

async function serve(address: string, given: Given, terminal: Terminal): Promise<number> {
  const { port, persistent } = given;
  await using listener = new CmId(deviceOptions(given));
  await listener.listen({ address, port });
  terminal.message(`waiting for a client at port ${port} of ${address}`);
  const serving = new Set<Promise<void>>();
  try {
    for (;;) {
      const id = await listener.getRequest({ signal: terminal.signal });
      const served = answer(id, given, terminal);
      if (!persistent) {
        await served;
        return 0;
      }
      const caught = served.catch((error) => terminal.message(`a client ended: ${error.message}`));
      serving.add(caught);
      void caught.finally(() => serving.delete(caught));
    }
  } catch (error) {
    if (!terminal.signal.aborted) throw error;
    return 0;
  } finally {
    await Promise.all(serving);
  }
}

/** Serves one client until it disconnects. */
async function answer(id: CmId, { size, count, verbose }: Given, terminal: Terminal): Promise<void> {
  await using side = await RpingSide.open(id, size);
  await id.accept(RPING_PARAMETERS, { signal: terminal.signal });
  const print = (bytes: Uint8Array) => {
    if (verbose) terminal.line(`server ping data: ${textOf(bytes)}`);
    terminal.flush();
  };
  const left = id.disconnected.then(() => false);
  for (let number = 0; number !== count; number++) {
    const done = pong(side, print).then(() => true);
    const goesOn = await Promise.race([done, left]).catch((error: RoceError) => {
      // The receive that waited is flushed as the client leaves.
      if (error instanceof RoceError && id.state !== 'CONNECTED') return false;
      throw error;
    });
    if (!goesOn) {
      done.catch(() => {});
      break;
    }
  }
  await left;
  terminal.message('server DISCONNECT EVENT...');
}
