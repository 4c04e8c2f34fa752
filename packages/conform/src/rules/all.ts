/** The rules, in the order in which they are listed and played. */
import type { Rule } from '../rule.ts';
import { ackRules } from './acks.ts';
import { alternatePathRules } from './alternate-paths.ts';
import { atomicRules } from './atomics.ts';
import { callerRules } from './callers.ts';
import { connectionLifeRules } from './connection-life.ts';
import { connectionManagerRules } from './connection-manager.ts';
import { counterRules } from './counters.ts';
import { duplicateRules } from './duplicates.ts';
import { extendedRules } from './extended.ts';
import { headerRules } from './headers.ts';
import { keyRules } from './keys.ts';
import { lengthRules } from './lengths.ts';
import { placementRules } from './placement.ts';
import { psnRules } from './psn.ts';
import { readRules } from './reads.ts';
import { requesterRules } from './requester.ts';
import { rnrRules } from './rnr.ts';
import { sequenceRules } from './sequence.ts';
import { sharedRules } from './shared.ts';
import { slowRules } from './slow.ts';
import { stateRules } from './states.ts';
import { unreliableRules } from './unreliable.ts';
import { windowRules } from './windows.ts';

export const RULES: readonly Rule[] = [
  ...psnRules,
  ...duplicateRules,
  ...atomicRules,
  ...placementRules,
  ...ackRules,
  ...rnrRules,
  ...sharedRules,
  ...sequenceRules,
  ...headerRules,
  ...lengthRules,
  ...keyRules,
  ...windowRules,
  ...stateRules,
  ...requesterRules,
  ...readRules,
  ...unreliableRules,
  ...counterRules,
  ...extendedRules,
  ...connectionManagerRules,
  ...connectionLifeRules,
  ...alternatePathRules,
  ...callerRules,
  ...slowRules,
];

const areaOf = (id: string): string => id.slice(0, id.indexOf('-'));

/**
 * The rules that are selected, in the order of the list: `PSN` is an area, `PSN-01` a rule. All without a selector. The beginning of an
 * id selects nothing: `KEY-1` would be ten rules.
 * @throws RangeError for a selector that is neither
 */
export function rules(...selectors: readonly string[]): Rule[] {
  const wanted = selectors.map((selector) => selector.toUpperCase());
  const wrong = wanted.findIndex((name) => !RULES.some(({ id }) => id === name || areaOf(id) === name));
  if (wrong >= 0)
    throw new RangeError(
      selectors[wrong] === ''
        ? 'an empty name of a rule'
        : `no rule and no area ${selectors[wrong]}: expected one as PSN-01 or PSN`,
    );
  if (wanted.length === 0) return [...RULES];
  return RULES.filter(({ id }) => wanted.includes(id) || wanted.includes(areaOf(id)));
}
