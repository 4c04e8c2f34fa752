/** Comparison of packages/cm with the state tables of the model, message by message and call by call. */
import type { CmMessage } from '@node-roce/sim';
import { type CmInput, type CmState, ON_CALL, ON_INPUT, ROLE_OF } from '@node-roce/sim';
import type { Life } from './life.ts';

type State = CmState | 'NONE';

/** A step of a side: the state before and after, and the messages that it sent at once. */
interface Step {
  before: State;
  after: State;
  answers: readonly string[];
}

const ANSWERS = { RTU: 'RTU', DREP: 'DREP', MRA: 'MRA', REJ_STALE: 'REJ' } as const;
const STALE = 10;
const TIMEOUT = 4;

const inputOf = (message: CmMessage): CmInput =>
  message.name === 'MRA' ? (message.mraed === 1 ? 'MRA_REP' : 'MRA_REQ') : (message.name as CmInput);

/** States and answers that are right for a message. */
function foreseen(life: Life, message: CmMessage, before: CmState): { states: State[]; answers: string[] } {
  const input = inputOf(message);
  const nothing = { states: [before], answers: [] };
  if (ROLE_OF[input] && ROLE_OF[input] !== life.role) return nothing;
  const isByGuid = message.name === 'REJ' && message.reason === TIMEOUT && message.remoteId === 0;
  const isOfPeer = !('localId' in message) || life.remoteId === 0 || message.localId === life.remoteId;
  if (!isOfPeer && !isByGuid) return nothing;
  const cell = ON_INPUT[before][input];
  if (!cell) return nothing;
  // More time is asked for without a call, so MRA_REQ_SENT is REQ_RCVD, and MRA_REP_SENT REP_RCVD.
  if ((input === 'REQ' && before === 'REQ_RCVD') || (input === 'REP' && before === 'REP_RCVD'))
    return { states: [before], answers: ['MRA'] };
  // Both disconnect, or the program has destroyed the id: DREP is sent without a call.
  if (input === 'DREQ' && cell.to && (before === 'DREQ_SENT' || life.destroyed))
    return { states: ['TIMEWAIT'], answers: ['DREP'] };
  if (input === 'DREP' && before === 'DREQ_RCVD') return nothing;
  const answers = cell.answer ? [ANSWERS[cell.answer]] : [];
  // Linux closes at once what was never established; the tables let its queue pair rest. In REQ_RCVD there is none (§12.9.8.3.1).
  if (message.name === 'REJ' && cell.to && /^(REQ|REP|RTU)_/.test(before) && before !== 'REP_RCVD') {
    const mustRest = message.reason === STALE && before !== 'REQ_RCVD';
    return { states: [mustRest ? 'TIMEWAIT' : 'NONE'], answers };
  }
  return { states: [cell.to === 'IDLE' ? 'NONE' : (cell.to ?? before)], answers };
}

/** Checks what a side made of a message for `life`; undefined where it has none with these ids. */
export function checkArrival(life: Life | undefined, message: CmMessage, step: Step): string | undefined {
  const { before, after, answers } = step;
  if (message.name === 'LAP' || message.name === 'APR') return undefined;
  if (life === undefined || before === 'NONE') {
    if (message.name !== 'DREQ' || answers.join() === 'DREP') return undefined;
    return `DREQ for unknown ids drew ${answers.join() || 'nothing'}`;
  }
  // The REP of a queue pair that counts as connected.
  if (message.name === 'REP' && after === 'NONE' && answers.includes('REJ') && /^RE[QP]_/.test(before))
    return undefined;
  const right = foreseen(life, message, before);
  if (right.states.includes(after) && right.answers.join() === answers.join()) return undefined;
  const what = `${message.name} for ${life.communicationId.toString(16)} in ${before}`;
  return `${what}: ${after} and [${answers}], not ${right.states} and [${right.answers}]`;
}

/** Checks the messages of a call. */
export function checkCall(name: string, before: State, answers: readonly string[]): string | undefined {
  const row = before === 'NONE' ? {} : ON_CALL[before];
  const cell = name === 'destroy' ? (row.disconnect ?? row.reject) : row[name as keyof typeof row];
  const right = cell ? [cell.send] : [];
  if (answers.join() === right.join()) return undefined;
  return `${name} in ${before} sent [${answers}], not [${right}]`;
}
