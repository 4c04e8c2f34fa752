/** A tester on a busy machine, in virtual time: it notices packets late, and its requests to the device take their time. */
import type { Bench, DeviceConnection } from '@node-roce/conform';
import { createRandom } from '@node-roce/sim';

/** Calls of a connection that an agent takes time for. */
const CALLS = ['post', 'receive', 'completions', 'state', 'peek', 'poke', 'fail', 'destroyQp'] as const;

/** The bench, with waits and calls that take up to `most` ms longer, every second one. */
export function stalled(bench: Bench, seed: number, most = 10): Bench {
  const { line, device, waits } = bench;
  const random = createRandom(seed).unit;
  const wait = line.wait.bind(line);
  const stall = async () => {
    if (random() < 0.5) await wait(() => false, random() * most);
  };
  line.wait = async (done, ms) => {
    await wait(done, ms);
    await stall();
  };
  const connect = async (spec: Parameters<typeof device.connect>[0]): Promise<DeviceConnection> => {
    const connection = await device.connect(spec);
    for (const name of CALLS) slow(connection, name, stall);
    return connection;
  };
  // An upper bound is missed by as much as the tester is late.
  return { ...bench, device: { ...device, connect }, waits: { ...waits, slack: 5 * most } };
}

function slow(connection: DeviceConnection, name: (typeof CALLS)[number], stall: () => Promise<void>): void {
  const call = connection[name] as ((...values: unknown[]) => Promise<unknown>) | undefined;
  if (call === undefined) return;
  const late = async (...values: unknown[]) => {
    await stall();
    const value = await call.apply(connection, values);
    await stall();
    return value;
  };
  Object.assign(connection, { [name]: late });
}
