/** The truth of a recorded run, as `NAME.json` has it (truth.mjs). */
import { readFileSync } from 'node:fs';

export type Tap = 'a' | 'b';

/** Numbers of the frames of one packet at each tap, the first arrival first; `from` is its sender's side. */
export type Frames = Record<Tap, number[]> & { from: Tap };

export interface TruthEvent {
  id: number;
  /** The requester's side. */
  side: Tap;
  psn: number;
  cause: string;
  /** All causes that came within the same moment. */
  possible: string[];
  trigger: Frames | null;
  lost: { what: string; fate?: string; psn?: number; frame?: Frames };
  /** The packets retransmitted. */
  frames: Frames[];
}

export interface Truth {
  name: string;
  unseen: boolean;
  kernels: Record<Tap, string>;
  server: string;
  client: string;
  faults: string[];
  seed: number;
  exit: number;
  counters: Record<Tap, Record<string, number>>;
  frames: Record<Tap, number>;
  events: TruthEvent[];
  lost: Frames[];
  damaged: Frames[];
  late: Frames[];
  duplicated: Frames[];
  marked: Frames[];
  cnps: Frames[];
  pfc: Frames[];
  sequenceNaks: Frames[];
  rnrNaks: Frames[];
  fatalNaks: Frames[];
  cm: (Frames & { attribute: number })[];
}

export const readTruth = (path: string): Truth => JSON.parse(readFileSync(path, 'utf8'));
