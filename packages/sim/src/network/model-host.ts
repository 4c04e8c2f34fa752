/** The common state of the queue pairs of a model's device. */
import type { ModelMemory, ModelRegion } from '../model/memory.ts';
import type { ModelWindow } from '../model/windows.ts';

export interface ModelDeviceOptions {
  gid: Uint8Array;
  /** Of the first queue pair; the others count up. */
  qpn: number;
  arenaBytes: number;
  /** PSNs of a reliable connection that may be out. */
  window?: number;
  timerFactor?: number;
  /** Whether marked packets of connections are answered with CNPs, as an adapter before the model would. */
  notifies?: boolean;
}

/** The common state of the queue pairs of a device. */
export interface ModelHost {
  options: ModelDeviceOptions;
  arena: Uint8Array;
  region: ModelRegion;
  memory: ModelMemory;
  windows: ModelWindow[];
}
