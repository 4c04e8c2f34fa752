/** Benches in virtual time: a fresh network and a fresh device for each rule, so that no rule sees what another left. */
import type { EndpointFactory, SimDevice } from '@node-roce/sim';
import { gidFromText } from '@node-roce/wire';
import type { Bench, Waits } from '../case.ts';
import type { Device } from '../device.ts';
import { type AcceptFrame, acceptFrame, DEVICE, VirtualLine } from './line.ts';
import { ListeningModel, SERVICE_ID } from './listening-model.ts';
import { adapterDevice, endpointDevice } from './sim-device.ts';

/** Virtual time costs nothing: waits are as long as the slowest device needs. */
const WAITS: Waits = { quiet: 150, patience: 800, slack: 1 };

/** GID and first QPN of the device. */
export interface AdapterOptions {
  gid: Uint8Array;
  qpn: number;
}

function benchOf(makeDevice: (line: VirtualLine) => Device, accept?: AcceptFrame, delay?: number): Bench {
  const line = new VirtualLine(accept, delay);
  return { line, device: makeDevice(line), waits: WAITS, connections: 0 };
}

export interface AdapterBenchOptions {
  name?: string;
  /** The device's own handling of frames: rules about IP and UDP headers are played, too. */
  accept?: AcceptFrame;
  /** µs of a packet on its way, 1 by default: a device that repeats early then has packets there when an answer comes. */
  delay?: number;
  /** The service ID at which it accepts connections. */
  serviceId?: bigint;
}

/** A bench with a simulated adapter: `make` gives the `SimDevice`. */
export function adapterBench(
  make: (options: AdapterOptions) => SimDevice,
  { name = 'adapter', accept, delay, serviceId }: AdapterBenchOptions = {},
): Bench {
  const options = { gid: gidFromText(DEVICE.ip), qpn: 0x40 };
  return benchOf((line) => adapterDevice(line, make(options), name, serviceId), accept, delay);
}

/** A bench with a device that implements `Endpoint` only: the rules of reliable connections. */
export function endpointBench(make: EndpointFactory, name = 'endpoint'): Bench {
  return benchOf((line) => endpointDevice(line, make, name));
}

/** Options of a model that is a device under test. */
export const MODEL_OPTIONS = { arenaBytes: 4096, window: 1 << 20, timerFactor: 2, notifies: true } as const;

/** The reference model as the device. */
export function modelBench(): Bench {
  const make = (options: AdapterOptions) => new ListeningModel({ ...options, ...MODEL_OPTIONS });
  return adapterBench(make, { name: 'model', accept: acceptFrame, serviceId: SERVICE_ID });
}
