/**
 * `fi_pingpong` of libfabric: one message there and back, many times; its figure is the mean. Over `udp;ofi_rxd`, reliable datagrams
 * over UDP sockets, and over `tcp;ofi_rxm`, the same interface over TCP.
 */
import { missingProgram, play } from './client-server.mjs';

const COMMAND = 'fi_pingpong';

function over(provider) {
  return {
    name: `${COMMAND} ${provider}`,
    missing: () => missingProgram(COMMAND, 'libfabric-bin'),
    async pingpong({ size, count }) {
      const args = ['-p', provider, '-d', 'lo', '-e', 'rdm', '-I', count, '-S', size];
      const out = await play({
        command: COMMAND,
        server: (port) => [...args, '-B', port],
        client: (port) => [...args, '-P', port, '127.0.0.1'],
      });
      // bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec; a transfer is one way.
      return { p50: 2 * Number(out.trim().split('\n').at(-1).split(/\s+/)[6]), mean: true };
    },
  };
}

export const fabricUdp = over('udp;ofi_rxd');
export const fabricTcp = over('tcp;ofi_rxm');
