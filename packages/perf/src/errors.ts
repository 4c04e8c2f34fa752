/** Errors of a test, in words of the dialogue. */
import { RoceError } from '@node-roce/verbs-api';

/** The peer did not keep to the dialogue, or left it. */
export const broken = (message: string, cause?: unknown): RoceError =>
  new RoceError('ERR_ROCE_EXCHANGE', message, { errno: 'EIO', cause });

/** The peer was silent for too long. */
export const silent = (message: string): RoceError =>
  new RoceError('ERR_ROCE_TIMEOUT', message, { errno: 'EIO' });

/** DEL and C1: JSON leaves them as they are, and a terminal obeys them. */
const CONTROLS = /[\u007f-\u009f]/g;

/** Received bytes as text for an error, shortened. */
export const quoted = (bytes: Uint8Array): string =>
  JSON.stringify(Buffer.from(bytes).toString('latin1').slice(0, 60)).replace(
    CONTROLS,
    (control) => `\\u00${control.charCodeAt(0).toString(16)}`,
  );
