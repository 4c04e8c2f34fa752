import type { Mutant } from '../broken-device.ts';
import { connectionManagerMutants } from './connection-manager.ts';
import { counterMutants } from './counters.ts';
import { extendedMutants } from './extended.ts';
import { headerMutants } from './headers.ts';
import { placementMutants } from './placement.ts';
import { repetitionMutants } from './repetitions.ts';
import { requesterMutants } from './requester.ts';
import { responderMutants } from './responder.ts';
import { sharedMutants } from './shared.ts';
import { unreliableMutants } from './unreliable.ts';
import { windowMutants } from './windows.ts';

export const MUTANTS: Readonly<Record<string, Mutant>> = {
  ...responderMutants,
  ...repetitionMutants,
  ...requesterMutants,
  ...headerMutants,
  ...placementMutants,
  ...sharedMutants,
  ...windowMutants,
  ...unreliableMutants,
  ...counterMutants,
  ...extendedMutants,
  ...connectionManagerMutants,
};

/** Rules that no mutant of the model can break, with the reason. */
export const WITHOUT_MUTANT: Readonly<Record<string, string>> = {
  'KEY-09': 'the model has one protection domain',
  'STA-06': 'a queue pair of the model goes from RESET to RTS in one step',
};
