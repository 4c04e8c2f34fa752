/** What the queue pairs of a model's device share. */
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
}

/** What the queue pairs of a device share. */
export interface ModelHost {
  options: ModelDeviceOptions;
  arena: Uint8Array;
  region: ModelRegion;
  memory: ModelMemory;
  windows: ModelWindow[];
}
