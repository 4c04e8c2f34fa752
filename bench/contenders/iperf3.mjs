/** `iperf3`: one TCP stream, C on both sides. */
import { missingProgram, play } from './client-server.mjs';

const COMMAND = 'iperf3';

export const iperf3 = {
  name: 'iperf3 TCP',
  missing: () => missingProgram(COMMAND, 'iperf3'),
  async stream({ size, bytes }) {
    const args = ['--client', '127.0.0.1', '--json', '--bytes', bytes, '--length', Math.min(size, 1 << 20)];
    const out = await play({
      command: COMMAND,
      server: (port) => ['--server', '--one-off', '--port', port],
      client: (port) => [...args, '--port', port],
    });
    const { sum_received: received, cpu_utilization_percent: cpu } = JSON.parse(out).end;
    // Percents of a processor, in the time of the run.
    const cpuSeconds = ((cpu.host_total + cpu.remote_total) / 100) * received.seconds;
    const { bits_per_second: bits } = received;
    return {
      gbps: bits / 1e9,
      messagesPerSecond: bits / 8 / size,
      cpuSecondsPerGigabyte: cpuSeconds / (bytes / 1e9),
    };
  },
};
