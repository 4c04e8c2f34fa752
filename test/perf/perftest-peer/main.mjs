// perftest's peer as a program: node test/perf/perftest-peer/main.mjs '{"verb":"write","kind":"bw","role":"server",…}'
//
// The argument is a test (test.mjs) with `address` of the device, `gidIndex`, `port` (18515), and as client `host`.
// Prints the result as JSON; exit code 1 and a line on stderr if the dialogue failed.
import { CmChannel } from './cm-channel.mjs';
import { Endpoint } from './endpoint.mjs';
import { play } from './play.mjs';
import { accept, dial } from './tcp-channel.mjs';
import { testOf } from './test.mjs';

const same = (channel) => channel;

/**
 * Plays one test from the connection on; see above. `spoil` gives the channel to use in place of the one that it gets; `signal` ends a
 * test whose other side has gone.
 */
export async function playTest({
  address,
  gidIndex,
  host,
  port = 18515,
  onListening,
  spoil = same,
  signal,
  ...given
}) {
  const test = testOf(given);
  const endpoint = await Endpoint.open(test, { address, gidIndex });
  signal?.addEventListener('abort', () => endpoint.close());
  try {
    const where = { host: host ?? address, port, onListening, signal };
    const overTcp = test.role === 'server' ? accept : dial;
    const channel = await (test.cm ? CmChannel.open(test, endpoint.device, where) : overTcp(where));
    try {
      return await play(test, spoil(channel), endpoint);
    } finally {
      await channel.close();
    }
  } finally {
    await endpoint.close();
  }
}

if (process.argv[1] === import.meta.filename) {
  try {
    const result = await playTest(JSON.parse(process.argv[2]));
    const plain = (_, value) => (typeof value === 'bigint' ? `0x${value.toString(16)}` : value);
    console.log(JSON.stringify(result, plain));
  } catch (error) {
    console.error(`perftest-peer: ${error.message}`);
    process.exitCode = 1;
  }
}
