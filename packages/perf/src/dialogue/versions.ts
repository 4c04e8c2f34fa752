/** The version that each side of the dialogue announces, and the messages that depend on it (perftest_communication.c). */
import { broken, quoted } from '../errors.ts';

/** Bytes of the field: text, and zeros behind it. */
export const VERSION_BYTES = 16;

/** Versions that a client can announce: of Debian 12, of Debian 13, and the newest, of builds without mlx5dv and with it. */
export const CLIENT_VERSIONS = ['6.06', '6.24', '6.29', '6.29-mlx5'] as const;
export type ClientVersion = (typeof CLIENT_VERSIONS)[number];

/** Older ones have another layout, and perftest refuses them too. */
const OLDEST = 5.7;
const NEGOTIATES = 6.28;
const NEWEST = '6.29';

/** Text of the field. `6.29-mlx5` announces 6.29: the two differ in the structure alone. */
export function encodeVersion(version: string): Buffer {
  const field = Buffer.alloc(VERSION_BYTES);
  field.write(version.split('-')[0], 'latin1');
  return field;
}

/** @throws RoceError ERR_ROCE_EXCHANGE for what is no version, or one that is too old */
export function decodeVersion(field: Uint8Array): string {
  const match = /^(\d{1,4}\.\d{1,8})\0+$/.exec(Buffer.from(field).toString('latin1'));
  if (match === null) throw broken(`the peer sent ${quoted(field)} in place of its version: is it perftest?`);
  const version = match[1];
  if (Number.parseFloat(version) < OLDEST)
    throw broken(`the peer has version ${version} of the dialogue, which is too old: 5.70 is the first`);
  return version;
}

/** Compared as a number, as perftest does: 6.06 comes before 6.6. */
export const negotiates = (version: string): boolean => Number.parseFloat(version) >= NEGOTIATES;

/** perftest's `--data_validation` adds a field to the parameters and to a key over the connection manager, by the sender's own version alone. */
export const validatesData = (version: string): boolean => Number.parseFloat(version) >= 6.29;

/** The answer of a server: the client's own version, and the newest known to one that negotiates. */
export const answerTo = (version: string): string => (negotiates(version) ? NEWEST : version);
