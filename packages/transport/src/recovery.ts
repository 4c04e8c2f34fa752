/** Checks how a device or a queue pair is asked to recover from losses. */
import { KEEP_EARLY, type Recovery } from './control.ts';
import { invalid } from './errors.ts';

/** @throws RoceError (EINVAL) with the field at fault, after the name of the whole */
export function checkRecovery(recovery: Partial<Recovery> = {}, name: string): Partial<Recovery> {
  const { probes, selective, keepEarly } = recovery;
  for (const [key, value] of Object.entries({ probes, selective })) {
    if (value !== undefined && typeof value !== 'boolean') {
      throw invalid(`${name}.${key}`, String(value), 'true or false');
    }
  }
  if (keepEarly !== undefined && !KEEP_EARLY.includes(keepEarly)) {
    throw invalid(`${name}.keepEarly`, String(keepEarly), KEEP_EARLY.join(', '));
  }
  const given = Object.entries({ probes, selective, keepEarly }).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given);
}
