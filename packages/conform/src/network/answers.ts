/** Fields of the agent's answers. One that is missing or wrong is the agent's fault, never the device's: each of these functions throws an error. */
import type { Completion } from '../device.ts';

type Answer = Readonly<Record<string, unknown>>;

/** `enum ibv_wc_status`. */
const STATUSES = [
  'SUCCESS',
  'LOC_LEN_ERR',
  'LOC_QP_OP_ERR',
  'LOC_EEC_OP_ERR',
  'LOC_PROT_ERR',
  'WR_FLUSH_ERR',
  'MW_BIND_ERR',
  'BAD_RESP_ERR',
  'LOC_ACCESS_ERR',
  'REM_INV_REQ_ERR',
  'REM_ACCESS_ERR',
  'REM_OP_ERR',
  'RETRY_EXC_ERR',
  'RNR_RETRY_EXC_ERR',
  'LOC_RDD_VIOL_ERR',
  'REM_INV_RD_REQ_ERR',
  'REM_ABORT_ERR',
  'INV_EECN_ERR',
  'INV_EEC_STATE_ERR',
  'FATAL_ERR',
  'RESP_TIMEOUT_ERR',
  'GENERAL_ERR',
] as const;

/** Of `enum ibv_qp_state`. */
const STATES: readonly unknown[] = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR', '?'];

/** Characters of a name that the agent gives. */
const MAX_NAME = 64;

function wrong(verb: string, name: string, expected: string): Error {
  return new Error(`the agent answers ${verb} without ${name}: expected ${expected}`);
}

const isCount = (value: unknown, end: number): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < end;

const isName = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_NAME;

/** A number of 32 bits. */
export function numberIn(answer: Answer, verb: string, name: string): number {
  const value = answer[name];
  if (isCount(value, 2 ** 32)) return value;
  throw wrong(verb, name, 'a number of 32 bits');
}

/** A number of 64 bits, in decimal digits. */
export function addressIn(answer: Answer, verb: string): bigint {
  const { addr } = answer;
  const text = typeof addr === 'string' || typeof addr === 'number' ? `${addr}` : '';
  if (/^\d{1,20}$/.test(text) && BigInt(text) < 1n << 64n) return BigInt(text);
  throw wrong(verb, 'addr', 'a number of 64 bits, in decimal digits');
}

/** The state of a queue pair. */
export function stateIn(answer: Answer): string {
  if (STATES.includes(answer.state)) return String(answer.state);
  throw wrong('state', 'state', STATES.join(', '));
}

/** So many bytes, in hexadecimal digits. */
export function bytesIn(answer: Answer, length: number): Uint8Array {
  const { hex } = answer;
  if (typeof hex === 'string' && hex.length === 2 * length && /^[0-9a-f]*$/i.test(hex))
    return new Uint8Array(Buffer.from(hex, 'hex'));
  throw wrong('peek', 'hex', `${length} bytes in hexadecimal digits`);
}

/** Names of events. */
export function eventsIn({ events }: Answer): string[] {
  if (Array.isArray(events) && events.every(isName)) return events;
  throw wrong('events', 'events', 'an array of names');
}

/** Counters by their names. */
export function countersIn({ counters }: Answer): Record<string, number> {
  const isObject = typeof counters === 'object' && counters !== null && !Array.isArray(counters);
  if (isObject && Object.values(counters).every((value) => isCount(value, Number.POSITIVE_INFINITY)))
    return counters as Record<string, number>;
  throw wrong('counters', 'counters', 'an object of numbers');
}

interface PlainCompletion {
  id: number;
  status: number;
  len?: number;
  imm?: number;
  src?: number;
}

const isOptional = (value: unknown): boolean => value === undefined || isCount(value, 2 ** 32);

function isCompletion(value: unknown): value is PlainCompletion {
  if (typeof value !== 'object' || value === null) return false;
  const { id, status, len, imm, src } = value as Partial<PlainCompletion>;
  return isCount(id, 2 ** 64) && isCount(status, 256) && [len, imm, src].every(isOptional);
}

/** Completions, in order. */
export function completionsIn({ wc }: Answer): Completion[] {
  if (!Array.isArray(wc) || !wc.every(isCompletion))
    throw wrong('poll', 'wc', 'an array of completions with id and status');
  return wc.map(({ id, status, len, imm, src }) => ({
    id,
    status: STATUSES[status] ?? `status ${status}`,
    length: len,
    immediate: imm,
    sourceQpn: src,
  }));
}

/** A fact of `hello`, as text for reports. */
export const factOf = (value: unknown): string | number =>
  typeof value === 'number'
    ? value
    : `${typeof value === 'string' ? value : JSON.stringify(value)}`.slice(0, MAX_NAME);
